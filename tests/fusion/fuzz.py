"""Random functions as kernels: outputs, gradients and second gradients beside torch's operators and DGL's batches.

``python -m tests.fusion.fuzz --minutes 10`` runs until it finds no more time; ``--seed N --cases 1`` runs one again.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.api.agreement import Frames, leaves_of
from tests.api.random_functions import Maker, Pair
from tests.cuda import shim
from vgraph.api.messages.propagate import _uncaptured, propagate
from vgraph.capture import capture
from vgraph.fusion.cpu import compilers
from vgraph.ir.topology import Topology

WAYS = {  # by name: the settings under which a function runs
    "operators": {"VGRAPH_KERNELS": "0", "VGRAPH_HOIST": "0"},
    "hoisted": {"VGRAPH_KERNELS": "0", "VGRAPH_HOIST": "1"},
    "kernels": {"VGRAPH_KERNELS": "1", "VGRAPH_HOIST": "1"},
    "kernels, not hoisted": {"VGRAPH_KERNELS": "1", "VGRAPH_HOIST": "0"},
    "cuda-shim": {"VGRAPH_KERNELS": "1", "VGRAPH_HOIST": "1"},
}
ON_CPU = tuple(way for way in WAYS if way != "cuda-shim")
WIDTHS = (1, 2, 3, 4, 5, 8, 16, 17, 33)
TIGHT = 1e-8
DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MOVES = 8  # times that a case is run with its numbers moved


@dataclass
class Case:
    """Functions, a graph and its features; ``second``: whether second gradients are compared, too."""

    topology: Topology
    frames: Frames
    pair: Pair
    parameters: list[Tensor]
    second: bool
    drops: bool

    def run(self, evaluate: Callable[..., Mapping[str, Tensor]]) -> list[Tensor]:
        """Outputs, gradients, second gradients: zeros where there are none."""
        torch.manual_seed(7)
        leaves = leaves_of(self.frames, self.parameters)
        outputs = evaluate(self.topology, self.frames, *self.pair)
        found = [outputs[name] for name in sorted(outputs)]
        first = _gradients(found, leaves, again=self.second)
        return [*found, *first, *(_gradients(first, leaves, again=False) if self.second else [])]


def _gradients(outputs: list[Tensor], leaves: list[Tensor], *, again: bool) -> list[Tensor]:
    """Of a weighted sum that gives no element the weight of another."""
    able = [(t, i + 1) for i, t in enumerate(outputs) if t.requires_grad]
    if not able:
        return [torch.zeros_like(leaf) for leaf in leaves]
    weights = [torch.linspace(0.3, 1.7, t.numel(), dtype=t.dtype).view(t.shape) / i for t, i in able]
    able = [t for t, _ in able]
    got = torch.autograd.grad(able, leaves, weights, allow_unused=True, create_graph=again)
    return [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, got, strict=True)]


def make_case(
    seed: int, *, second: bool | None = None, dtype: torch.dtype = torch.float64, rounded: torch.dtype = torch.float64
) -> Case:
    """The case of a seed: heads, width, graph, features and functions; numbers are ``rounded``, then of ``dtype``."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    heads, width = draw.choice((1, 2, 3)), draw.choice(WIDTHS)
    only = draw.random() < 0.95
    maker = Maker(seed, heads, width, segments_only=only, dtype=dtype, rounded=rounded)
    topology = random_graph(draw)
    edge_shape = draw.choice([(heads, width), (heads, 1), (1, width), (1, 1)])
    message, reduce = maker.pair(str(seed))
    drops = draw.random() < 0.1 and rounded == torch.float64
    if drops:
        message = _with_dropout(message)
    return Case(
        topology, _frames(topology, heads, width, edge_shape, (dtype, rounded)), (message, reduce), maker.parameters,
        draw.random() < 0.3 if second is None else second, drops,
    )  # fmt: skip


def random_graph(draw: random.Random) -> Topology:
    """Bipartite, with a hub, or any."""
    num_dst, num_edges = draw.randrange(1, 30), draw.choice((1, 2, 5, 20, 70))
    num_src = draw.randrange(1, 30) if draw.random() < 0.3 else num_dst
    hub = draw.randrange(num_dst)
    src = [draw.randrange(num_src) for _ in range(num_edges)]
    dst = [hub if draw.random() < 0.2 else draw.randrange(num_dst) for _ in range(num_edges)]
    kind = draw.choice((torch.int64, torch.int64, torch.int32))
    return Topology(torch.tensor(src, dtype=kind), torch.tensor(dst, dtype=kind), num_src, num_dst)


def _frames(
    topology: Topology, heads: int, width: int, edge_shape: tuple[int, int], kinds: tuple[torch.dtype, torch.dtype]
) -> Frames:
    def rows(count: int, *shape: int) -> Tensor:
        return torch.randn(count, *shape, dtype=torch.float64).to(kinds[1]).to(kinds[0]).requires_grad_()

    dst = {"h": rows(topology.num_dst, heads, width), "s": rows(topology.num_dst, heads, 1)}
    src = dst
    if topology.num_src != topology.num_dst:
        src = {"h": rows(topology.num_src, heads, width), "s": rows(topology.num_src, heads, 1)}
    return {"src": src, "dst": dst, "edge": {"w": rows(topology.num_edges, *edge_shape)}}


def _with_dropout(message: Any) -> Any:
    def dropped(edges: Any) -> dict[str, Tensor]:
        return {name: F.dropout(rows, 0.4) for name, rows in message(edges).items()}

    dropped.__code__ = dropped.__code__.replace(co_name=f"dropped_{message.__code__.co_name}")
    return dropped


# ---------------------------------------------------------------- agreement
def check_seed(seed: int, *, second: bool | None = None, ways: tuple[str, ...] = ON_CPU) -> None:
    """Raises an AssertionError that names way and tensor where one does not agree."""
    case = make_case(seed, second=second)
    wanted = None if case.drops else case.run(_uncaptured)
    for way in ways:
        with running(way):
            capture.forget()
            found = case.run(propagate)
        capture.forget()
        if wanted is None:  # with dropout, the numbers are vgraph's own
            wanted = found
        for number, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
            off = difference(mine, theirs)
            assert off <= TIGHT, f"seed {seed}, {way}, tensor {number} of {len(wanted)}: off by {off:.3g} of its scale"


def check_rounded(seed: int, dtype: torch.dtype, ways: tuple[str, ...] = ("cuda-shim",)) -> None:
    """Outputs and gradients in fewer bits beside fp64 on the same, rounded numbers; AssertionError as above.

    Results may lie apart by ``8 eps (1 + log2 edges)`` of the largest number (of 1, if that is more), by what torch's
    own operators in that dtype lie apart, and by what the function itself does to numbers that are moved by ``2 eps``:
    a maximum may pass to another slot. Results beyond the dtype's range are left out.
    """
    exact_case = make_case(seed, second=False, rounded=dtype)
    exact = exact_case.run(_uncaptured)
    plain = make_case(seed, second=False, dtype=dtype, rounded=dtype).run(_uncaptured)
    eps, edges = torch.finfo(dtype).eps, exact_case.topology.num_edges
    rooms = [8 * eps * (1 + math.log2(edges)) * max(1.0, largest(wanted)) for wanted in exact]
    rooms = [a + 4 * largest(p.double() - e) for a, p, e in zip(rooms, plain, exact, strict=True)]
    for draw in range(MOVES):
        moved = _moved(exact_case, 2 * eps, draw).run(_uncaptured)
        rooms = [a + 2 * largest(m - e) for a, m, e in zip(rooms, moved, exact, strict=True)]
    for way in ways:
        with running(way):
            capture.forget()
            found = make_case(seed, second=False, dtype=dtype, rounded=dtype).run(propagate)
        capture.forget()
        for number, (mine, theirs, operators, room) in enumerate(zip(found, exact, plain, rooms, strict=True)):
            where = f"seed {seed}, {way}, {dtype}, tensor {number} of {len(exact)}"
            within = operators.isfinite() & theirs.isfinite() & (theirs.abs() < 0.01 * torch.finfo(dtype).max)
            assert mine.dtype == dtype and mine.shape == theirs.shape and bool(mine[within].isfinite().all()), where
            off = largest((mine.double() - theirs)[within])
            assert off <= room + torch.finfo(dtype).tiny, f"{where}: off by {off:.3g}, where {room:.3g} may be"


def largest(numbers: Tensor) -> float:
    """The largest magnitude of those that are finite."""
    numbers = numbers.detach()[numbers.isfinite()]
    return float(numbers.abs().max()) if numbers.numel() else 0.0


def _moved(case: Case, eps: float, draw: int) -> Case:
    """The case with every feature moved by up to ``eps`` of itself; functions keep their parameters."""
    made = torch.Generator().manual_seed(draw)
    frames: Frames = {}
    known: dict[int, Tensor] = {}
    for kind, frame in case.frames.items():
        for name, rows in frame.items():
            if id(rows) not in known:
                noise = torch.rand(rows.shape, generator=made, dtype=rows.dtype) * 2 - 1
                known[id(rows)] = (rows.detach() * (1 + eps * noise)).requires_grad_()
            frames.setdefault(kind, {})[name] = known[id(rows)]
        frames.setdefault(kind, {})
    return replace(case, frames=frames)


@contextmanager
def running(way: str) -> Generator[None]:
    """Functions run that way while it lasts."""
    place = shim.in_place_of_cpu() if way == "cuda-shim" else nullcontext()
    with mock.patch.dict(os.environ, WAYS[way]), place:
        yield


def difference(found: Tensor, wanted: Tensor) -> float:
    """The largest difference between finite numbers, of the largest number; inf where others differ."""
    found, wanted = found.detach(), wanted.detach()
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return float("inf")
    plain = wanted.isfinite() & (wanted.abs() < 1e100)
    strange = torch.equal(found.isfinite() | (wanted.abs() >= 1e100), wanted.isfinite())
    if not strange or not torch.equal(found.isnan(), wanted.isnan()):
        return float("inf")
    if not plain.any():
        return 0.0
    return float((found - wanted)[plain].abs().max() / wanted[plain].abs().max().clamp_min(1.0))


@contextmanager
def compile_fast() -> Generator[None]:
    """Less optimised kernels, which take a third of the time to compile, while the context lasts."""
    with mock.patch.object(compilers, "_NEEDED", ("-O1", *compilers._NEEDED[1:])):
        compilers.fingerprint.cache_clear()  # it tells kernels of other flags apart
        yield
    compilers.fingerprint.cache_clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--cases", type=int, help="at most so many")
    parser.add_argument("--second", action="store_true", help="second gradients of every case")
    parser.add_argument("--fast", action="store_true", help="kernels that are compiled faster and run slower")
    parser.add_argument("--ways", nargs="+", default=ON_CPU, choices=WAYS)
    parser.add_argument("--dtype", default="fp64", choices=DTYPES, help="fewer bits are held against fp64")
    given = parser.parse_args()
    end, seed, failed = time.monotonic() + 60 * given.minutes, given.seed, list[int]()
    with compile_fast() if given.fast else nullcontext():
        while time.monotonic() < end and (given.cases is None or seed < given.seed + given.cases):
            try:
                if given.dtype == "fp64":
                    check_seed(seed, second=True if given.second else None, ways=tuple(given.ways))
                else:
                    check_rounded(seed, DTYPES[given.dtype], tuple(given.ways))
            except Exception:
                failed.append(seed)
                traceback.print_exc(limit=-3)
            seed += 1
    print(f"{seed - given.seed - len(failed)} of {seed - given.seed} agree; failed: {failed}")


if __name__ == "__main__":
    main()
