"""Plan files: a ShardingPlan as JSON, and back for the same captured step.

Takes: a ShardingPlan, the step it is of. Gives: text. Runs when asked.
Source: Tofu section 6 (plans are searched once and kept).
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vgraph.atomic_file import write_text
from vgraph.errors import DataError, ModelError
from vgraph.files import damage_told, read_text
from vgraph.ir.program import op_name
from vgraph.ir.sharding import At, Partial, Placement, Replicate, ShardingPlan, Split, Strategy
from vgraph.ir.step import TrainingStep
from vgraph.ir.tdl.notation import Notation
from vgraph.ir.tdl.table import describe
from vgraph.partition.search.legal import check_plan

_FORMAT = 1
CHECKSUM = "crc32"
_NOTATIONS = "notations"
MOST_WORKERS = 1024  # a Program is made for each


def save_plan(path: str | Path, sharding: ShardingPlan, step: TrainingStep) -> None:
    """Writes a plan; values are named by their place in the Program."""
    content = _content_of(sharding, step)
    write_text(path, json.dumps({**content, CHECKSUM: _checksum(content)}))


def plan_digest(sharding: ShardingPlan, step: TrainingStep) -> int:
    """A number that is equal for equal plans of equal steps, in every process."""
    return _checksum(_content_of(sharding, step))


def _checksum(content: Mapping[str, object]) -> int:
    return zlib.crc32(json.dumps(content).encode())


def _content_of(sharding: ShardingPlan, step: TrainingStep) -> dict[str, object]:
    places = {value: place for place, value in _places(step).items()}
    return {
        "format": _FORMAT,
        "ops": _signature(step),
        _NOTATIONS: _notations(step),
        "axes": sharding.axes,
        "strategies": [[_strategy_text(s) for s in strategies] for strategies in sharding.strategies],
        "placements": {places[i]: [_text(p) for p in placements] for i, placements in sharding.placements.items()},
        "fetched again": [[op, places[value]] for op, value in sorted(sharding.fetched_again)],
        "room": sharding.room,
    }


def load_plan(path: str | Path, step: TrainingStep) -> ShardingPlan:
    """Reads a plan that was made for the same step.

    Raises:
        DataError: the file is missing.
        ModelError: the file is no plan or damaged, or one of another model or batch.
    """
    text = read_text(path)
    try:
        with damage_told(path, "write one with plan.save(path)"):
            content = json.loads(text)
            fits = content["format"] == _FORMAT and content["ops"] == _signature(step)
            fits &= content.get(_NOTATIONS) in (None, _notations(step))  # files from before there was such a number
    except DataError as error:
        raise ModelError(f"{path} is not a saved plan", cure="write one with plan.save(path)") from error
    if not fits:
        raise ModelError(
            f"{path} was saved for another model, batch or optimizer",
            cure="search again: call parallelize without this file",
        )
    try:
        return _plan_of(content, step)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        fact = f"{path} is a damaged plan: {error}"
        raise ModelError(fact, cure="search again: call parallelize without this file") from error


def _plan_of(content: dict[str, Any], step: TrainingStep) -> ShardingPlan:
    if content.pop(CHECKSUM, None) != _checksum(content):
        raise ValueError("its checksum does not fit")
    ids, axes = _places(step), tuple(content["axes"])
    if not axes or any(type(ways) is not int or ways < 1 for ways in axes) or math.prod(axes) > MOST_WORKERS:
        raise ValueError(f"it is for {axes} workers")
    if len(content["strategies"]) != len(step.ops):
        raise ValueError(f"it has strategies of {len(content['strategies'])} operators, not of {len(step.ops)}")
    plan = ShardingPlan(
        axes,
        tuple(tuple(_strategy(s) for s in strategies) for strategies in content["strategies"]),
        {ids[place]: tuple(_placement(p) for p in found) for place, found in content["placements"].items()},
        frozenset((op, ids[place]) for op, place in content["fetched again"]),
        _room(content.get("room")),
    )
    check_plan(plan, step)
    if any(not 0 <= op < len(step.ops) for op, _ in plan.fetched_again):
        raise ValueError("it fetches for an operator that there is not")
    return plan


def _room(given: object) -> float | None:
    """Bytes that a worker may hold; files from before there was such a number have none."""
    if given is not None and (isinstance(given, bool) or not isinstance(given, (int, float)) or not given >= 0):
        raise ValueError(f"its room is {given!r}")
    return given


def _places(step: TrainingStep) -> dict[str, int]:
    found = {f"input {i}": given.value.id for i, given in enumerate(step.program.inputs)}
    for position, op in enumerate(step.ops):
        found |= {f"op {position}.{k}": value.id for k, value in enumerate(op.results)}
    return found


def _signature(step: TrainingStep) -> list[str]:
    return [f"{op_name(op.target)} {' '.join(str(tuple(v.shape)) for v in op.results)}" for op in step.ops]


def _notations(step: TrainingStep) -> int:
    """A number that is equal where the indices of all operators have the same meanings, such as which one is summed."""
    every = "\n".join([_notation_text(describe(op)) for op in step.ops])
    return zlib.crc32(every.encode())


def _notation_text(known: Notation | None) -> str:
    if known is None:
        return ""
    maps = [sorted(each.items()) for each in (known.reduced, known.located, known.sizes, known.reads)]
    return f"{known} {maps} {sorted(known.whole)}"


def _text(placement: Placement) -> list[object]:
    if isinstance(placement, Split):
        return ["split", placement.dim, placement.outer]
    if isinstance(placement, Partial):
        return ["partial", placement.reducer]
    return ["at", placement.worker] if isinstance(placement, At) else ["replicate"]


def _placement(text: list[Any]) -> Placement:
    kinds: dict[str, type[Placement]] = {"split": Split, "partial": Partial, "at": At, "replicate": Replicate}
    return kinds[text[0]](*text[1:])


def _strategy_text(strategy: Strategy) -> list[object]:
    halo = [[operand, *width] for operand, width in strategy.halo.items()]
    inputs, outputs = ([_text(p) for p in side] for side in (strategy.inputs, strategy.outputs))
    return [strategy.index, strategy.outer, inputs, outputs, halo]


def _strategy(text: list[Any]) -> Strategy:
    index, outer, inputs, outputs, halo = text
    widths = {operand: (before, after) for operand, before, after in halo}
    return Strategy(index, outer, tuple(map(_placement, inputs)), tuple(map(_placement, outputs)), widths)
