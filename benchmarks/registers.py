"""Registers, spilled bytes and shared memory of every function generated for a GPU; needs NVRTC, and no GPU.

    python benchmarks/registers.py [--out benchmarks/results] [--architectures sm_80 sm_90] [--smoke]

Kernels of layers and of pairs of functions, loops over frontiers (sections, hubs and walks) and reductions, forward and
backward, in fp32, fp64 and bf16. Writes registers.md, a row a kernel: the most that any function of its source takes.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from tqdm import tqdm

import vgraph
import vgraph.nn as vnn
from vgraph import compiler
from vgraph.api import reduce as reducing
from vgraph.capture import capture
from vgraph.fusion.cuda.build import Nvrtc, find_nvrtc, usages
from vgraph.fusion.cuda.emit import emit_cuda
from vgraph.fusion.reduction import emit_reduction_cuda
from vgraph.ir.kernel import KernelSpec
from vgraph.ir.loop_body import LoopOnDevice
from vgraph.ir.program import Reduction
from vgraph.ir.reduction import DeviceShape
from vgraph.runtime.reductions.cuda import bind_device

NODES, WIDTH = 40, 64
Work = Callable[[vgraph.Graph, Tensor], Tensor]
SHORT = {torch.float32: "fp32", torch.float64: "fp64", torch.bfloat16: "bf16"}


def layer(make: Callable[[], torch.nn.Module]) -> Callable[[torch.dtype], Work]:
    def of(dtype: torch.dtype) -> Work:
        return make().to(dtype)

    return of


def pair(message: Callable[[Any], Tensor], reduce: Callable[[Tensor], Tensor]) -> Callable[[torch.dtype], Work]:
    """A pair of functions."""

    def run(g: vgraph.Graph, x: Tensor) -> Tensor:
        g.ndata["h"] = x
        g.update_all(lambda edges: {"m": message(edges)}, lambda nodes: {"o": reduce(nodes.mailbox["m"])})
        return g.ndata["o"]

    return lambda dtype: run


WORKS: dict[str, Callable[[torch.dtype], Work]] = {
    "GraphConv": layer(lambda: vnn.GraphConv(WIDTH, WIDTH, allow_zero_in_degree=True)),
    "GATConv 8 x 8": layer(lambda: vnn.GATConv(WIDTH, 8, num_heads=8, attn_drop=0.3, allow_zero_in_degree=True)),
    "GATConv 1 x 64": layer(lambda: vnn.GATConv(WIDTH, 64, num_heads=1, allow_zero_in_degree=True)),
    "GATv2Conv 8 x 8": layer(lambda: vnn.GATv2Conv(WIDTH, 8, num_heads=8, allow_zero_in_degree=True)),
    "DotGatConv 8 x 8": layer(lambda: vnn.DotGatConv(WIDTH, 8, num_heads=8, allow_zero_in_degree=True)),
    "SAGEConv pool": layer(lambda: vnn.SAGEConv(WIDTH, WIDTH, "pool")),
    "gated sum": pair(lambda e: torch.sigmoid(e.src["h"] + e.dst["h"]) * e.src["h"], lambda m: m.sum(1)),
    "softmax a feature": pair(lambda e: e.src["h"], lambda m: (m.softmax(1) * m).sum(1)),
    "standard deviation": pair(lambda e: e.src["h"], lambda m: m.std(1)),
    "maximum": pair(lambda e: e.src["h"] * e.dst["h"], lambda m: m.max(1).values),
}


def recursive(make: Callable[[], vgraph.VertexFunction]) -> Callable[[torch.dtype], Work]:
    """A vertex function on a tree; the given graph's features are its vertices'."""

    def of(dtype: torch.dtype) -> Work:
        model = make().to(dtype)
        tree = vgraph.graph((range(1, NODES), [(child - 1) // 2 for child in range(1, NODES)]))
        return lambda g, x: model(tree, x=x)["h"]

    return of


def reduction(name: str, dims: tuple[int, ...]) -> Callable[[torch.dtype], Work]:
    """Over modes of an array of order 4, as rows or as columns."""

    def run(g: vgraph.Graph, x: Tensor) -> Tensor:
        return vgraph.reduce(x.reshape(8, 5, 8, 8), dims, name)

    return lambda dtype: run


class Recurrent(vgraph.VertexFunction):
    """A gated unit whose previous state is the sum of the children's."""

    def __init__(self) -> None:
        super().__init__(states={"h": WIDTH})
        self.cell = torch.nn.GRUCell(WIDTH, WIDTH)

    def forward(self, v: vgraph.Vertex) -> None:
        h = self.cell(v.pull("x"), v.gather()["h"].sum())
        v.scatter(h=h)
        v.push(h=h)


class Attentive(vgraph.VertexFunction):
    """Children weighed by a softmax."""

    def __init__(self) -> None:
        super().__init__(states={"h": WIDTH})
        self.own, self.score = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 1)

    def forward(self, v: vgraph.Vertex) -> None:
        child = v.gather()["h"]
        h = torch.tanh(self.own(v.pull("x")) + (self.score(child).softmax() * child).sum())
        v.scatter(h=h)
        v.push(h=h)


WORKS.update({
    "frontiers, child-sum Tree-LSTM": recursive(lambda: vnn.ChildSumTreeLSTM(WIDTH, WIDTH)),
    "frontiers, binary Tree-LSTM": recursive(lambda: vnn.NaryTreeLSTM(WIDTH, WIDTH)),
    "frontiers, GRU": recursive(Recurrent),
    "frontiers, attention": recursive(Attentive),
    **{
        f"reduction, {name} over {dims}": reduction(name, dims)
        for name in ("sum", "max") for dims in ((0,), (3,), (0, 2), (1, 3))
    },
})  # fmt: skip


def sources(work: Work, dtype: torch.dtype) -> Iterator[tuple[str, str]]:
    """The CUDA C++ of each Program's kernels, the backward's first, as it is compiled first."""
    made: list[tuple[str, str]] = []
    on_cpu = compiler.TARGETS["cpu"]

    def noted(specs: Sequence[KernelSpec]) -> Any:
        made.extend(("", emit_cuda([spec])[0]) for spec in specs)
        return on_cpu(specs)

    def noted_loops(loops: Sequence[tuple[str, LoopOnDevice]]) -> None:
        for text, loop in loops:
            kind = "loop and walk " if loop.walk else "loop "
            made.append((kind, f'#include "prelude.cuh"\n{text}'))

    def noted_reduction(reduction: Reduction, shape: DeviceShape) -> None:
        made.append(("", emit_reduction_cuda(reduction, shape)))

    draw = torch.Generator().manual_seed(0)
    ends = (torch.randint(NODES, (200,), generator=draw) for _ in range(2))
    with (
        mock.patch.dict(compiler.TARGETS, cpu=noted),
        mock.patch.dict(compiler.LOOPS, cpu=noted_loops),
        mock.patch.dict(compiler.REDUCTIONS, cpu=partial(bind_device, load=noted_reduction)),
    ):
        capture.forget()
        reducing.forget()
        x = torch.randn(NODES, WIDTH, generator=draw).to(dtype).requires_grad_()
        work(vgraph.graph(tuple(ends), num_nodes=NODES), x).float().square().sum().backward()
    capture.forget()
    reducing.forget()
    yield from ((f"{kind}{number}", text) for number, (kind, text) in enumerate(made))


def rows(
    nvrtc: Nvrtc, architectures: Sequence[str], numbers: Sequence[str], *, is_small: bool
) -> Iterator[tuple[str, ...]]:
    names = [name for name in WORKS if not is_small or name == "GraphConv"]
    dtypes = [dtype for dtype, short in SHORT.items() if short in numbers]
    cases = [(name, dtype) for name in names for dtype in dtypes]
    for name, dtype in tqdm(cases, disable=None):
        torch.manual_seed(0)
        for number, text in sources(WORKS[name](dtype), dtype):
            for architecture in architectures:
                cubin, said = nvrtc.compile(text, architecture)
                if cubin[:4] != b"\x7fELF":
                    raise SystemExit(f"{name}, {SHORT[dtype]}, {architecture} does not compile: {said[:400]}")
                used = usages(said).values()
                yield (
                    name, SHORT[dtype], number, architecture, str(len(used)), str(max(u.registers for u in used)),
                    str(max(u.spilled for u in used)), str(max(u.shared for u in used)),
                )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--architectures", nargs="+", default=["sm_80", "sm_90"])
    parser.add_argument("--numbers", nargs="+", default=[*SHORT.values()], choices=[*SHORT.values()])
    parser.add_argument("--smoke", action="store_true", help="one layer")
    given = parser.parse_args()
    nvrtc = find_nvrtc()
    if nvrtc is None:
        print("there is no NVRTC: pip install vgraph[cuda12] or vgraph[cuda13]")
        return
    architectures, numbers = given.architectures, given.numbers
    if given.smoke:
        architectures, numbers = architectures[:1], numbers[:1]
    head = ("work", "numbers", "kernel", "architecture", "functions", "registers", "spilled bytes", "shared bytes")
    table = [head, tuple("---" for _ in head), *rows(nvrtc, architectures, numbers, is_small=given.smoke)]
    lines = [f"| {' | '.join(row)} |" for row in table]
    version = ".".join(map(str, nvrtc.version))
    lines += [
        "",
        f"NVRTC {version}. `python benchmarks/registers.py`; of a kernel's functions the largest figure of each.",
    ]
    with tempfile.TemporaryDirectory() as room:
        folder = given.out or (Path(room) if given.smoke else Path(__file__).parent / "results")
        (folder / "registers.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    spilled = [row for row in table[2:] if row[6] != "0"]
    print(f"{len(table) - 2} rows, {len(spilled)} with spills")


if __name__ == "__main__":
    main()
