"""Graphs and numbers at the edge: kernels, torch's operators and DGL's own batches agree on them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from tests.fusion.fuzz import WAYS, Case, compile_fast, running
from tests.tables import thorough
from vgraph.api.messages.propagate import _uncaptured, propagate
from vgraph.capture import capture
from vgraph.errors import GraphError
from vgraph.fusion.cpu import build
from vgraph.ir.schedule import RowOrder
from vgraph.ir.topology import Topology
from vgraph.runtime.cpu import kernels as cpu
from vgraph.runtime.cpu.kernels import index_tensors

pytestmark = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    capture.forget()
    with compile_fast():
        yield
    capture.forget()


def message(edges: Any) -> dict[str, Tensor]:
    return {"m": edges.src["h"] * edges.data["w"] + edges.dst["h"], "s": edges.src["h"]}


def many(nodes: Any) -> dict[str, Tensor]:
    """All reductions in one pass."""
    m, s = nodes.mailbox["m"], nodes.mailbox["s"]
    return {
        "sum": m.sum(1), "mean": m.mean(1), "max": m.max(1).values, "min": m.amin(1), "lse": m.logsumexp(1),
        "softmax": (s.softmax(1) * m).sum(1), "prod": (m * 0.1 + 1).prod(1), "var": m.var(1, unbiased=False),
    }  # fmt: skip


def frames_of(topology: Topology, width: int, dtype: torch.dtype) -> dict[str, dict[str, Tensor]]:
    made = torch.Generator().manual_seed(3)

    def rows(count: int, *shape: int) -> Tensor:
        return torch.randn(count, *shape, dtype=dtype, generator=made).requires_grad_()

    src = dst = {"h": rows(topology.num_dst, width)}
    if topology.num_src != topology.num_dst:
        src = {"h": rows(topology.num_src, width)}
    return {"src": src, "dst": dst, "edge": {"w": rows(topology.num_edges, 1)}}


def assert_three_ways(topology: Topology, frames: Any, pair: Any = (message, many), tolerance: float = 1e-9) -> None:
    """Outputs and gradients of kernels and of operators equal those of DGL's own batches."""
    case = Case(topology, frames, pair, [], second=False, drops=False)
    wanted = case.run(_uncaptured)
    for way in ("operators", "kernels", "cuda-shim"):
        with running(way):
            capture.forget()
            found = case.run(propagate)
        for number, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
            torch.testing.assert_close(
                mine, theirs, rtol=tolerance, atol=tolerance, equal_nan=True,
                msg=lambda m, way=way, number=number: f"{way}, tensor {number}: {m}",
            )  # fmt: skip


def topology_of(src: Any, dst: Any, num_src: int, num_dst: int, ids: torch.dtype = torch.int64) -> Topology:
    return Topology(torch.as_tensor(src, dtype=ids), torch.as_tensor(dst, dtype=ids), num_src, num_dst)


SHAPES = {
    "one edge": topology_of([0], [1], 3, 3),
    "self loops alone": topology_of([0, 1, 2], [0, 1, 2], 3, 3),
    "self loops, parallel edges, empty rows": topology_of([1, 1, 1, 4, 2, 2], [1, 1, 0, 0, 2, 5], 7, 7),
    "bipartite": topology_of([0, 4, 4, 2, 0], [1, 1, 0, 1, 0], 5, 3),
    "bipartite, more destinations": topology_of([0, 1, 1], [6, 0, 6], 2, 9),
    "ids of 32 bits": topology_of([0, 2, 1, 1], [1, 1, 3, 0], 4, 4, torch.int32),
    "edges in reverse": topology_of([3, 2, 1, 0, 3], [3, 3, 2, 1, 0], 4, 4),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_graphs(name: str) -> None:
    topology = SHAPES[name]
    assert_three_ways(topology, frames_of(topology, 5, torch.float64))


@pytest.mark.parametrize("width", [1, 3, 16, 33, 602, *(pytest.param(width, marks=thorough) for width in (4, 5, 128))])
def test_widths(width: int) -> None:
    """In fp32, whose vectors are the longest."""
    topology = SHAPES["self loops, parallel edges, empty rows"]
    assert_three_ways(topology, frames_of(topology, width, torch.float32), tolerance=3e-5)


@pytest.mark.parametrize("ids", [torch.int64, torch.int32], ids=str)
def test_random_numbers_by_edge(ids: torch.dtype) -> None:
    """The same with kernels and without, whatever the order of edges and the width of ids."""
    topology = topology_of([3, 2, 1, 0, 3], [3, 3, 2, 1, 0], 4, 4, ids)
    frames: Any = {"src": {"h": torch.ones(4, 3)}, "dst": {}, "edge": {}}
    found: list[Tensor] = []

    def dropped(edges: Any) -> dict[str, Tensor]:
        return {"m": torch.dropout(edges.src["h"], 0.4, True)}

    for way in ("operators", "kernels"):
        with mock.patch.dict(os.environ, WAYS[way]):
            capture.forget()
            torch.manual_seed(0)
            found.append(propagate(topology, frames, dropped, fn.sum("m", "o"))["o"])
    assert torch.equal(*found) and (found[0] == 0).any()


def test_without_edges() -> None:
    g = vgraph.graph(([], []), num_nodes=3)
    g.ndata["h"] = torch.ones(3, 2, requires_grad=True)
    g.edata["w"] = torch.ones(0, 1)
    with pytest.warns(UserWarning, match="without edges"):
        g.update_all(message, many)
    g.apply_edges(lambda edges: {"e": torch.tanh(edges.src["h"] + edges.dst["h"])})
    assert g.edata["e"].shape == (0, 2)


def test_without_vertices() -> None:
    g = vgraph.graph(([], []), num_nodes=0)
    g.ndata["h"] = torch.ones(0, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "o"))
    g.apply_edges(lambda edges: {"e": edges.src["h"] + 1})
    assert g.edata["e"].shape == (0, 2)


# ---------------------------------------------------------------- numbers
@pytest.mark.parametrize("special", [torch.nan, torch.inf, -torch.inf], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_special_messages(special: float, dtype: torch.dtype) -> None:
    """Of a vertex with such messages alone, of one with some, of one with none."""
    topology = topology_of([0, 1, 2, 3, 0, 4, 3], [1, 1, 1, 2, 2, 3, 3], 5, 5)
    frames = frames_of(topology, 3, dtype)
    with torch.no_grad():
        frames["src"]["h"][3, :2] = special
        frames["src"]["h"][4, 1] = special
        frames["src"]["h"][0, 2] = special

    def plain(edges: Any) -> dict[str, Tensor]:
        return {"m": edges.src["h"] * 1.0, "s": edges.src["h"]}

    frames = {**frames, "edge": {}}
    assert_three_ways(topology, frames, (plain, many), 1e-5 if dtype == torch.float32 else 1e-9)


def test_softmax_of_nothing_but_minus_infinity() -> None:
    """As torch: NaN for that row, and for no other."""
    g = vgraph.graph(([0, 1, 2, 0], [2, 2, 0, 0]), num_nodes=3)
    g.ndata["h"] = torch.tensor([[-torch.inf], [-torch.inf], [1.0]])
    g.update_all(fn.copy_u("h", "m"), lambda nodes: {"o": (nodes.mailbox["m"].softmax(1) * torch.ones(1)).sum(1)})
    assert torch.isnan(g.ndata["o"][2]).all() and torch.allclose(g.ndata["o"][0], torch.ones(1))


# ---------------------------------------------------------------- memory
def test_rows_that_are_not_contiguous() -> None:
    topology = SHAPES["bipartite"]
    wide = torch.randn(10, 8, dtype=torch.float64)
    frames: Any = {
        "src": {"h": wide[::2, 1::2].requires_grad_()},
        "dst": {"h": torch.randn(4, 3, dtype=torch.float64).t().requires_grad_()},
        "edge": {"w": torch.randn(1, 1, dtype=torch.float64).expand(topology.num_edges, 1).requires_grad_()},
    }
    assert not any(t.is_contiguous() for frame in frames.values() for t in frame.values())
    assert_three_ways(topology, frames)


def hub(num_edges: int = 70_000) -> Topology:
    """All edges but a few end at one vertex."""
    src = torch.randint(0, 50, (num_edges,))
    dst = torch.full((num_edges,), 7)
    dst[: num_edges // 100] = torch.randint(0, 50, (num_edges // 100,))
    return topology_of(src, dst, 50, 50)


def test_a_hub() -> None:
    """One row of over 65,536 positive messages in fp32: no further from the exact sum than torch's own."""
    topology = hub()
    h = torch.rand(50, 5)
    exact = torch.zeros(50, 5, dtype=torch.float64).index_add(0, topology.dst, h.double()[topology.src])
    off: list[float] = []
    for way in ("operators", "kernels"):
        with mock.patch.dict(os.environ, WAYS[way]):
            capture.forget()
            frames: Any = {"src": {"h": h}, "dst": {"h": h}, "edge": {}}
            sums = propagate(topology, frames, fn.copy_u("h", "m"), fn.sum("m", "o"))["o"]
        off.append(float(((sums.double() - exact).abs() / exact.clamp_min(1)).max()))
    assert off[1] <= 1.5 * off[0] < 1e-3


def test_threads_change_nothing() -> None:
    """On one thread, on two, twice, and on more than there are cores: the same bits, gradients included."""
    topology = hub()
    case = Case(topology, frames_of(topology, 8, torch.float32), (message, many), [], second=False, drops=False)
    before, runs = torch.get_num_threads(), list[list[Tensor]]()
    try:
        for threads in (1, 2, 2, 16):
            torch.set_num_threads(threads)
            runs.append(case.run(propagate))
    finally:
        torch.set_num_threads(before)
    for other in runs[1:]:
        assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(runs[0], other, strict=True))


# ---------------------------------------------------------------- others
def test_agrees_with_scipy() -> None:
    rng = np.random.default_rng(0)
    count, edges = 200, 3000
    src, dst, w = rng.integers(0, count, edges), rng.integers(0, count, edges), rng.standard_normal(edges)
    matrix = sp.coo_matrix((w, (dst, src)), shape=(count, count)).tocsr()
    h = torch.from_numpy(rng.standard_normal((count, 17))).requires_grad_()
    g = vgraph.graph((torch.from_numpy(src), torch.from_numpy(dst)), num_nodes=count)
    g.ndata["h"], g.edata["w"] = h, torch.from_numpy(w)[:, None]
    g.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "o"))
    assert np.allclose(g.ndata["o"].detach().numpy(), matrix @ h.detach().numpy(), atol=1e-12)
    seed = torch.from_numpy(rng.standard_normal((count, 17)))
    (grad,) = torch.autograd.grad(g.ndata["o"], h, seed)
    assert np.allclose(grad.numpy(), matrix.T @ seed.numpy(), atol=1e-12)


def test_more_numbers_than_32_bits_count() -> None:
    """Rows at the end of a feature of 2.4 billion numbers, of which few pages are ever touched."""
    num_src, width = 600_000, 4096
    try:
        h = torch.empty(num_src, width, dtype=torch.bfloat16)
    except RuntimeError:
        pytest.skip("so much address space cannot be had")
    rows = torch.tensor([0, 524_289, num_src - 1])
    h[rows] = torch.tensor([1.0, 2.0, 4.0], dtype=torch.bfloat16)[:, None].expand(3, width)
    topology = topology_of(rows, [0, 1, 1], num_src, 2)
    frames: Any = {"src": {"h": h}, "dst": {}, "edge": {"w": torch.ones(3, 1, dtype=torch.bfloat16)}}
    found = propagate(topology, frames, fn.u_mul_e("h", "w", "m"), fn.sum("m", "o"))["o"]
    assert (found[0] == 1).all() and (found[1] == 6).all()


def test_more_edges_than_32_bits_count() -> None:
    """Refused before anything is allocated."""
    few = torch.zeros(1, dtype=torch.int64)
    order = RowOrder({"src_rows": few.expand(2**31), "in_ptr": few, "out_ptr": few}.get)
    with pytest.raises(GraphError, match=f"this graph has {2**31}"):
        index_tensors(order)


@pytest.mark.parametrize(
    ("edges", "width", "moves"), [(400, 16, True), (400, 15, False), (3, 16, False), (400, 80, False)]
)
def test_rows_on_a_line_too_many_are_moved(
    edges: int, width: int, moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays of NumPy's may begin anywhere; torch's begin with a cache line."""
    made = np.random.default_rng(0)
    g = vgraph.graph((made.integers(0, 20, edges), made.integers(0, 20, edges)), num_nodes=20)
    room = torch.empty(20 * width + 32)
    start = (-room.data_ptr() // 4) % 16
    aligned, other = (room[at : at + 20 * width].view(20, width) for at in (start, start + 4))
    copied: list[tuple[int, ...]] = []
    move = cpu.CpuKernel._on_lines

    def watched(self: cpu.CpuKernel, rows: torch.Tensor, edges: int) -> torch.Tensor:
        found = move(self, rows, edges)
        if found is not rows:
            assert found.data_ptr() % 64 == 0
            copied.append(tuple(rows.shape))
        return found

    monkeypatch.setattr(cpu.CpuKernel, "_on_lines", watched)
    numbers, found = torch.randn(20, width), list[torch.Tensor]()
    for rows in (aligned, other):
        rows.copy_(numbers)
        with torch.no_grad():
            g.ndata["h"] = rows
            g.update_all(fn.copy_u("h", "m"), fn.sum("m", "o"))
        found.append(g.ndata["o"])
    assert torch.equal(*found)
    assert copied == [(20, width)] * moves
