"""Every row of the table of reductions, in every dtype, with special numbers: kernels, what stands in for a GPU and
torch's operators agree; and a row alone is enough for a new reduction."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from tests.cuda import shim
from tests.fusion.fuzz import running
from tests.tables import table
from vgraph.capture import capture
from vgraph.capture.rows import row_tensor, slot_reductions
from vgraph.fusion.cpu import build
from vgraph.ir.reductions import REDUCTIONS, Derivative, ReduceInfo

pytestmark = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
WAYS = ["kernels", "cuda-shim", "operators"]
INF, NAN = math.inf, math.nan

NORM = ReduceInfo(  # what a new row looks like: the root of a sum of squares
    name="euclidean",
    identity=0,
    empty=0,
    lift="{x} * {x}",
    combine="{a} + {x}",
    finish="vg_sqrt({x})",
    segments=lambda rows, ptr, degree: REDUCTIONS["sum"].segments(rows.double().square(), ptr, degree).sqrt().to(rows),
    dims=lambda element, dims: torch.linalg.vector_norm(element, dim=dims),
    derivative=Derivative(
        lambda value, result, grad: torch.where(result == 0, torch.zeros_like(value), grad * (value / result)),
        reads_result=True,
    ),
    in_chains=True,
)


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The table with one row more; nothing captured before."""
    monkeypatch.setitem(REDUCTIONS, NORM.name, NORM)
    monkeypatch.setitem(slot_reductions.REDUCERS, NORM.name, slot_reductions.of_row(NORM))
    monkeypatch.setitem(row_tensor._REDUCERS, CALLS[NORM.name], NORM.name)
    capture.forget()
    shim.launched.clear()
    yield
    capture.forget()


NAMES = [*REDUCTIONS, NORM.name]


def segments_of(dtype: torch.dtype) -> list[list[float]]:
    """Elements of every segment."""
    tiny = torch.finfo(dtype).tiny / 4  # has no leading one
    many = (torch.randn(2500).clamp(-2, 2) / 8 + 1).tolist()
    return [
        [], [1.5], [-0.0], [0.0, -0.0], [-0.0, -0.0], [NAN], [NAN, NAN], [2.0, NAN, -3.0], [NAN, 2.0], [INF],
        [-INF, 1.0], [INF, -INF], [INF, INF, 1.0], [-INF, -INF], [NAN, INF], [0.0, INF], [tiny], [tiny, -tiny, 0.0],
        [tiny, 2 * tiny], [3.0, -1.0, 2.0, 2.0, 3.0, -1.0], [], many, many[:37], many[:40], [0.5] * 33,
    ]  # fmt: skip


CALLS: dict[str, Callable[..., Any]] = {NORM.name: torch.nanmedian}  # how torch says it, if not by the row's name


def by_call(name: str) -> Callable[[Any], dict[str, Tensor]]:
    """A reduce function whose one call asks for the row of that name."""
    call = CALLS.get(name) or getattr(torch, name)
    if REDUCTIONS[name].picks:
        return lambda nodes: {"o": call(nodes.mailbox["m"], 1).values}
    return lambda nodes: {"o": call(nodes.mailbox["m"], 1)}


def reduced(name: str, way: str, rows: Tensor, lengths: list[int]) -> Tensor:
    """Rows of edges reduced at their vertices."""
    g = vgraph.graph((torch.zeros(len(rows), dtype=torch.int64), torch.repeat_interleave(torch.tensor(lengths))))
    g = vgraph.graph(g.edges(), num_nodes=len(lengths))
    g.edata["x"] = rows
    with running(way):
        capture.forget()
        g.update_all(lambda e: {"m": e.data["x"] * 1}, by_call(name))
    assert (way == "cuda-shim") == bool(shim.launched)
    shim.launched.clear()
    return g.ndata["o"]


def exactly(name: str, rows: Tensor, lengths: list[int], empty: float = 0) -> Tensor:
    """The same by torch's operators, in 64 bits, a segment after the other; update_all gives 0 without messages."""
    row, wide = REDUCTIONS[name], rows.double()
    parts = [
        row.dims(part, (0,)) if len(part) else part.new_full(part.shape[1:], empty) for part in wide.split(lengths)
    ]
    return torch.stack(parts)


@pytest.mark.parametrize(("name", "dtype"), table(NAMES, DTYPES))
def test_special_numbers(name: str, dtype: torch.dtype) -> None:
    segments = segments_of(dtype)
    lengths = [len(part) for part in segments]
    column = torch.tensor([x for part in segments for x in part], dtype=torch.float64).to(dtype)
    rows = torch.stack([column, -column, column / 2], 1)
    wanted = exactly(name, rows, lengths).to(dtype)
    for way in WAYS:
        found = reduced(name, way, rows, lengths)
        assert found.dtype == dtype
        eps = torch.finfo(dtype).eps * (64 if name == "prod" or dtype == torch.float64 else 8)
        torch.testing.assert_close(found, wanted, rtol=eps, atol=torch.finfo(dtype).tiny, equal_nan=True, msg=way)


@pytest.mark.parametrize("name", NAMES)
def test_whole_numbers(name: str) -> None:
    """Of what picks and of what becomes int64."""
    row = REDUCTIONS[name]
    if not (row.picks or row.widens):
        pytest.skip("is of floating-point numbers alone")
    lengths = [0, 3, 1, 5]
    rows = torch.randint(-4, 5, (sum(lengths), 2))
    for way in WAYS:
        assert torch.equal(reduced(name, way, rows, lengths), exactly(name, rows, lengths).long()), way


@pytest.mark.parametrize(("name", "way"), table(NAMES, WAYS))
def test_gradients(name: str, way: str) -> None:
    """Those of torch, of any order: of equal numbers the first one is picked, as torch.max does."""
    lengths = [0, 4, 1, 7, 3]
    rows = torch.randn(sum(lengths), 2, dtype=torch.float64)
    rows[0, 0] = rows[6, 1] = 0
    if name == "nansum":
        rows[2, 0] = rows[5, 1] = NAN
    leaf, weights = rows.clone().requires_grad_(), torch.randn(len(lengths), 2, dtype=torch.float64)
    with running(way):
        out = reduced(name, way, leaf, lengths)
        (found,) = torch.autograd.grad((out * weights).sum(), leaf, create_graph=True)
        second = second_gradient(found, leaf)
    wide = rows.clone().requires_grad_()
    (wanted,) = torch.autograd.grad((exactly(name, wide, lengths) * weights).sum(), wide, create_graph=True)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(second, second_gradient(wanted, wide))


class Leaves(vgraph.VertexFunction):
    """What children hold, reduced without a dim; leaves have none."""

    def __init__(self, call: Callable[..., Any], *, looks: bool) -> None:
        super().__init__()
        self.call, self.looks = call, looks

    def forward(self, v: vgraph.Vertex) -> None:
        x = v.pull("x")
        if self.looks and x.sum().item() > 99:  # so that it runs one vertex at a time
            x = x - 1
        found = self.call(v.gather()["h"])
        v.scatter(h=torch.tanh(x) + found / 8)
        v.push(h=found)


@pytest.mark.parametrize(("name", "way"), table(NAMES, [*WAYS, "one vertex at a time"]))
def test_empty_segments_in_loops(name: str, way: str, caplog: pytest.LogCaptureFixture) -> None:
    """Loops over frontiers, and one vertex after the other, give the same; leaves what the row says of nothing."""
    g = vgraph.graph(([0, 1, 2, 3, 4, 5, 6], [4, 4, 5, 5, 6, 6, 7]))
    x = torch.randn(8, 3, dtype=torch.float64)
    states = [torch.empty(0)] * 8
    for vertex in range(8):
        kids = [states[u] for u, v in zip(*(ids.tolist() for ids in g.edges()), strict=True) if v == vertex]
        below = exactly(name, torch.stack(kids), [len(kids)])[0] if kids else x.new_full((3,), REDUCTIONS[name].empty)
        states[vertex] = torch.tanh(x[vertex]) + below / 8
    wanted = (torch.stack(states) - torch.tanh(x)) * 8
    is_serial = way not in WAYS
    function = Leaves(CALLS.get(name) or getattr(torch, name), looks=is_serial)
    with running("operators" if is_serial else way), caplog.at_level("INFO", "vgraph"):
        capture.forget()
        found = function(g, x=x)["h"]
    assert ("one vertex at a time" in caplog.text) == is_serial
    torch.testing.assert_close(found, wanted)


# ---------------------------------------------------------------- over the dims of a tensor
@pytest.mark.parametrize(("name", "dtype"), table(NAMES, DTYPES))
def test_over_dims(name: str, dtype: torch.dtype) -> None:
    """The dims of vgraph.reduce, with special numbers; what combines them is the same row."""
    rows = (torch.randn(5, 4, 6) / 2 + 1).to(dtype)
    rows[0, 0, 0], rows[1, 1, 1], rows[2, 0, 2], rows[3, 1, 3], rows[4, 2] = NAN, INF, -INF, 0.0, -0.0
    wanted = REDUCTIONS[name].dims(rows.double(), (0, 2)).to(dtype)
    for way in WAYS:
        with running(way):
            found = vgraph.reduce(rows, (0, 2), name)
        eps = torch.finfo(dtype).eps * 64
        torch.testing.assert_close(found, wanted, rtol=eps, atol=0, equal_nan=True, msg=way)


@pytest.mark.parametrize(("name", "way"), table(NAMES, WAYS))
def test_gradients_over_dims(name: str, way: str) -> None:
    leaf, other = torch.randn(4, 5, 3, requires_grad=True), torch.randn(5, 1, requires_grad=True)
    with running(way):
        out = vgraph.reduce((leaf, other), (0, 1), name, of=lambda a, b: a * b)
        found = torch.autograd.grad(out.sum(), [leaf, other])
    wanted = torch.autograd.grad(REDUCTIONS[name].dims(leaf * other, (0, 1)).sum(), [leaf, other])
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_over_dims(name: str) -> None:
    nothing = torch.zeros(3, 0)
    if REDUCTIONS[name].picks:
        with pytest.raises(vgraph.VGraphError, match="hold no elements"):
            vgraph.reduce(nothing, 1, name)
    else:
        assert torch.equal(vgraph.reduce(nothing, 1, name), torch.full((3,), float(REDUCTIONS[name].empty)))


def second_gradient(gradient: Tensor, leaf: Tensor) -> Tensor:
    """Of some sum of the gradient's numbers; zeros where it is constant."""
    if not gradient.requires_grad:
        return torch.zeros_like(leaf)
    total = (gradient * torch.cos(leaf.detach()).nan_to_num()).sum()
    found = torch.autograd.grad(total, leaf, allow_unused=True)[0]
    return torch.zeros_like(leaf) if found is None else found


def test_what_a_derivative_does_not_read_may_be_written_to() -> None:
    leaf = torch.randn(40, 3, requires_grad=True)
    x = leaf * 1
    with running("kernels"):
        total, largest = vgraph.reduce(x, 0), vgraph.reduce(leaf, 0, "max")
        for written in (x, total, largest):
            written += 1
        weight = torch.ones(3, requires_grad=True)
        (slope,) = torch.autograd.grad(total @ weight, leaf, create_graph=True)
    assert torch.equal(slope, torch.ones_like(leaf))
    assert torch.autograd.grad(slope.sum(), weight)[0].tolist() == [40] * 3
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        largest.sum().backward()
