"""Plan files: a ShardingPlan as JSON, and back for the same captured step.

Takes: a ShardingPlan, the step it is of. Gives: text; tempo: when asked.
Source: Tofu section 6 (plans are searched once and kept).
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from vgraph.errors import ModelError
from vgraph.ir.notation import op_name
from vgraph.ir.sharding import At, Partial, Placement, Replicate, ShardingPlan, Split, Strategy
from vgraph.ir.step import TrainingStep

_FORMAT = 1


def save_plan(path: str | Path, sharding: ShardingPlan, step: TrainingStep) -> None:
    """Writes a plan; values are named by their place in the Program."""
    Path(path).write_text(_text_of(sharding, step), encoding="utf-8")


def plan_digest(sharding: ShardingPlan, step: TrainingStep) -> int:
    """A number that is equal for equal plans of equal steps, in every process."""
    return zlib.crc32(_text_of(sharding, step).encode())


def _text_of(sharding: ShardingPlan, step: TrainingStep) -> str:
    places = {value: place for place, value in _places(step).items()}
    content = {
        "format": _FORMAT,
        "ops": _signature(step),
        "axes": sharding.axes,
        "strategies": [[_strategy_text(s) for s in strategies] for strategies in sharding.strategies],
        "placements": {places[i]: [_text(p) for p in placements] for i, placements in sharding.placements.items()},
        "fetched again": [[op, places[value]] for op, value in sorted(sharding.fetched_again)],
    }
    return json.dumps(content)


def load_plan(path: str | Path, step: TrainingStep) -> ShardingPlan:
    """Reads a plan that was made for the same step.

    Raises:
        ModelError: the file is no plan, or one of another model or batch.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        fits = content["format"] == _FORMAT and content["ops"] == _signature(step)
    except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} is not a saved plan", cure="write one with plan.save(path)") from error
    if not fits:
        raise ModelError(
            f"{path} was saved for another model, batch or optimizer",
            cure="search again: call parallelize without this file",
        )
    ids = _places(step)
    return ShardingPlan(
        tuple(content["axes"]),
        tuple(tuple(_strategy(s) for s in strategies) for strategies in content["strategies"]),
        {ids[place]: tuple(_placement(p) for p in found) for place, found in content["placements"].items()},
        frozenset((op, ids[place]) for op, place in content.get("fetched again", ())),
    )


def _places(step: TrainingStep) -> dict[str, int]:
    found = {f"input {i}": given.value.id for i, given in enumerate(step.program.inputs)}
    for position, op in enumerate(step.ops):
        found |= {f"op {position}.{k}": value.id for k, value in enumerate(op.results)}
    return found


def _signature(step: TrainingStep) -> list[str]:
    return [f"{op_name(op.target)} {' '.join(str(tuple(v.shape)) for v in op.results)}" for op in step.ops]


def _text(placement: Placement) -> list[Any]:
    if isinstance(placement, Split):
        return ["split", placement.dim, placement.outer]
    if isinstance(placement, Partial):
        return ["partial", placement.reducer]
    return ["at", placement.worker] if isinstance(placement, At) else ["replicate"]


def _placement(text: list[Any]) -> Placement:
    kinds: dict[str, Any] = {"split": Split, "partial": Partial, "at": At, "replicate": Replicate}
    return kinds[text[0]](*text[1:])


def _strategy_text(strategy: Strategy) -> list[Any]:
    halo = [[operand, *width] for operand, width in strategy.halo.items()]
    inputs, outputs = ([_text(p) for p in side] for side in (strategy.inputs, strategy.outputs))
    return [strategy.index, strategy.outer, inputs, outputs, halo]


def _strategy(text: list[Any]) -> Strategy:
    index, outer, inputs, outputs, halo = text
    widths = {operand: (before, after) for operand, before, after in halo}
    return Strategy(index, outer, tuple(map(_placement, inputs)), tuple(map(_placement, outputs)), widths)
