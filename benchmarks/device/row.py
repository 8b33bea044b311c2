"""A row of gpu.py: its sides, what it must reach, and how it is measured."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from reductions import take_turns
from sides.steps import Step
from sides.worker import describe
from torch import Tensor
from torch.nn.functional import embedding_bag

Results = list[Tensor]


@dataclass(frozen=True, eq=False)
class Row:
    """``sides``: what makes each side's step. ``check``: vgraph's results on a device, small.

    ``aims``: least values of figures. ``gathers``: (vertices, edges, width) of a sum. ``trees``: a step.
    """

    name: str
    sides: Mapping[str, Callable[[], Step]]
    check: Callable[[str], Results]
    degree: int = 1 << 16  # the largest of the check
    aims: Mapping[str, float] = field(default_factory=dict[str, float])
    gathers: tuple[int, int, int] | None = None
    trees: int = 0
    row_bytes: float = 0.0  # taken along edges in a step
    floor: float = 0.0  # seconds that nothing can do without on an H200 whose L2 holds what is gathered


@dataclass(frozen=True)
class Machine:
    """Rates of this machine, measured: bytes a second copied (read and written), and gathered at random by width."""

    copy: float
    gather: dict[int, float]

    def floor(self, vertices: int, edges: int, width: int) -> float:
        """Seconds of a sum over in-edges that nothing can do without."""
        needed = 4.0 * (2 * vertices * width + edges)
        return max(needed / self.copy, 4.0 * edges * width / self.gather[width])


def measure_machine(device: str, widths: tuple[int, ...], rows: int, edges: int) -> Machine:
    x = torch.ones(1 << (28 if device == "cuda" else 18), device=device)
    room = torch.empty_like(x)
    rate = 8 * x.numel() / best_of(lambda: room.copy_(x), device)
    pieces = torch.randint(0, rows, (edges // 256, 256), device=device)
    gather: dict[int, float] = {}
    for width in widths:
        table = torch.ones(rows, width, device=device)
        # added up as they come, so that what is gathered is not written
        seconds = best_of(lambda table=table: embedding_bag(pieces, table, mode="sum"), device)
        gather[width] = 4.0 * pieces.numel() * width / seconds
    return Machine(rate, gather)


def best_of(run: Callable[[], Any], device: str) -> float:
    return take_turns({"": run}, device, 0.1 if device == "cuda" else 0.0)[""]


def measure(row: Row, device: str, budget: float, machine: Machine) -> Iterator[dict[str, Any]]:
    """Every side is built, or says why not; those that ran take turns. What compiles long comes in a second result."""
    told: dict[str, Any] = {}
    quick, slow = ({n: m for n, m in row.sides.items() if ("compiled" in n) == late} for late in (False, True))
    steps = built_sides(quick, device, told)
    if "vgraph" not in steps:
        yield {"row": row.name, "sides": told, "figures": {}, "aims": dict(row.aims)}
        return
    timed(steps, device, budget, told)
    yield {"row": row.name, "sides": dict(told), "figures": figures(row, told, machine), "aims": dict(row.aims)}
    steps |= built_sides(slow, device, told)
    if slow.keys() & steps.keys():
        timed({n: step for n, step in steps.items() if n in ("vgraph", *slow)}, device, budget, told)
    if slow:
        yield {"row": row.name, "sides": told, "figures": figures(row, told, machine), "aims": dict(row.aims)}


def built_sides(sides: Mapping[str, Callable[[], Step]], device: str, told: dict[str, Any]) -> dict[str, Step]:
    """Those that ran once; of the others ``told`` says why."""
    steps: dict[str, Step] = {}
    for name, make in sides.items():
        try:
            step = make()
            told[name] = {"peak_bytes": peak_of(step, device)}
            steps[name] = step
        except Exception as error:  # of a library that is not there, or of what does not fit
            told[name] = {"problem": describe(error)}
        tidy(device)
    return steps


def timed(steps: dict[str, Step], device: str, budget: float, told: dict[str, Any]) -> None:
    """In turns; one by one where two do not fit beside each other."""
    try:
        found = take_turns(steps, device, budget)
    except Exception:
        found = {}
        for name, step in steps.items():
            tidy(device)
            try:
                found |= take_turns({name: step}, device, budget)
            except Exception as error:
                told[name] = {"problem": describe(error)}
    for name, seconds in found.items():
        told[name]["seconds"] = min(seconds, told[name].get("seconds", seconds))


def figures(row: Row, told: Mapping[str, Any], machine: Machine) -> dict[str, float]:
    mine = told["vgraph"]
    found: dict[str, float] = {}
    if "seconds" not in mine:
        return found
    for name, other in told.items():
        if name != "vgraph" and "seconds" in other:
            found[f"times {name}"] = other["seconds"] / mine["seconds"]
            if mine["peak_bytes"]:
                found[f"memory of {name} over ours"] = other["peak_bytes"] / mine["peak_bytes"]
    if row.gathers is not None:
        found["of the floor"] = machine.floor(*row.gathers) / mine["seconds"]
    if row.floor:
        found["of the L2 floor"] = row.floor / mine["seconds"]
    if row.trees:
        found["trees a second"] = row.trees / mine["seconds"]
    if row.row_bytes:
        found["bytes of rows a second"] = row.row_bytes / mine["seconds"]
    return found


def beside_sum(rows: list[dict[str, Any]]) -> None:
    """Adds how fast functions take rows along edges beside the sum alone on the same graph."""
    rates = {row["row"]: row["figures"].get("bytes of rows a second") for row in rows}
    for row in rows:
        if row["row"].startswith("udf-") and row["row"] != "udf-none" and rates.get("udf-none"):
            row["figures"]["of the sum's bytes a second"] = rates[row["row"]] / rates["udf-none"]


def peak_of(step: Step, device: str) -> int:
    """Bytes that a step takes on top of what was there before; 0 where nothing counts them."""
    step()
    if device != "cuda":
        return 0
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def tidy(device: str) -> None:
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def deviation(found: Results, wanted: Results, degree: int) -> float:
    """How far results lie apart, in bounds: 8 eps (1 + log2 degree) of the largest magnitude, on either side."""
    worst = 0.0
    for mine, theirs in zip(found, wanted, strict=True):
        mine, theirs = mine.cpu().double(), theirs.cpu().double()
        bound = 2 * 8 * torch.finfo(torch.float32).eps * (1 + torch.tensor(float(degree)).log2())
        worst = max(worst, float((mine - theirs).abs().max() / (bound * theirs.abs().max().clamp(min=1e-30))))
    return worst
