"""Programs: what verify refuses, how they print, what forward saves and backward reads."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vgraph
import vgraph.capture.derivative_programs
import vgraph.function as fn
from vgraph.ir.moves import Gather, PutSlot, SegmentReduce, TakeSlot
from vgraph.ir.printer import format_program
from vgraph.ir.program import Carry, Input, Op, Pointwise, Program, Reduction, Rows, RowSum, Value
from vgraph.ir.space import EDGE, SHARED, SOURCE, VERTEX, Space
from vgraph.ir.tdl.table import is_pointwise, is_view
from vgraph.ir.topology import Topology
from vgraph.ir.verify import verify
from vgraph.memory.row_order import build_row_order
from vgraph.runtime.extent import Extent
from vgraph.scheduler.build import build_schedule
from vgraph.scheduler.phases import build_phases
from vgraph.scheduler.policy import ONCE
from vgraph_kernels import reference

aten = torch.ops.aten
H = 4


class TreeLSTM(vgraph.VertexFunction):
    """Child-sum."""

    def __init__(self) -> None:
        super().__init__()
        self.W, self.U = nn.Linear(3, 3 * H), nn.Linear(H, 3 * H, bias=False)
        self.Wf, self.Uf = nn.Linear(3, H), nn.Linear(H, H, bias=False)

    def forward(self, v: Any) -> None:
        child, x = v.gather(), v.pull("x")
        i, o, u = (self.W(x) + self.U(child["h"].sum())).chunk(3, -1)
        f = torch.sigmoid(self.Wf(x) + self.Uf(child["h"]))
        c = torch.sigmoid(i) * torch.tanh(u) + (f * child["c"]).sum()
        h = torch.sigmoid(o) * torch.tanh(c)
        v.scatter(h=h, c=c)
        v.push(h=h)


def run_tree_lstm() -> Tensor:
    g = vgraph.graph(([0, 1, 2, 3], [2, 2, 4, 4]))
    return TreeLSTM()(g, x=torch.randn(5, 3, requires_grad=True))["h"]


def run_gcn() -> Tensor:
    g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
    g.ndata["h"], g.edata["w"] = torch.randn(3, H, requires_grad=True), torch.rand(3)
    g.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "out"))
    return g.ndata["out"]


def attend(nodes: Any) -> dict[str, Tensor]:
    weight = F.softmax(nodes.mailbox["score"], dim=1)
    return {"out": (weight * nodes.mailbox["m"]).sum(1)}


def score(edges: Any) -> dict[str, Tensor]:
    total = edges.src["a"] + edges.dst["b"]
    return {"m": edges.src["h"], "score": F.leaky_relu(total, 0.2)}


def run_attention() -> Tensor:
    g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
    for name, width in (("h", H), ("a", 1), ("b", 1)):
        g.ndata[name] = torch.randn(3, width, requires_grad=True)
    g.update_all(score, attend)
    return g.ndata["out"]


MODELS: dict[str, Callable[[], Tensor]] = {
    "tree_lstm": run_tree_lstm,
    "gcn": run_gcn,
    "attention": run_attention,
}


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[Program]]:
    """The Programs that a model compiles: forward, then backward."""
    found: list[Program] = []
    begin_program = vgraph.capture.derivative_programs.begin_program

    def note(program: Program, **options: Any) -> Any:
        found.append(program)
        return begin_program(program, **options)

    monkeypatch.setattr(vgraph.capture.derivative_programs, "begin_program", note)
    monkeypatch.setattr("vgraph.capture.capture._families", type(vgraph.capture.capture._families)())

    def compiled(name: str) -> list[Program]:
        found.clear()
        MODELS[name]().sum().backward()
        return sorted(found[-2:], key=lambda program: program.name.endswith("'"))

    return compiled


# ---------------------------------------------------------------- printed and cut
@pytest.mark.parametrize("name", MODELS)
def test_golden(name: str, programs: Callable[[str], list[Program]], golden: Callable[[str, str], str]) -> None:
    assert not golden(f"program_{name}", "\n".join(format_program(p) for p in programs(name)))


@pytest.mark.parametrize("name", MODELS)
def test_cut(name: str, programs: Callable[[str], list[Program]]) -> None:
    """Computed twice: views, Gathers, what is pointwise on edges. Saved: what backward reads."""
    forward, backward = programs(name)
    ahead = {v.id: op for op in forward.ops for v in op.results}
    behind = {v.id for op in backward.ops for v in op.results}
    again = [ahead[i] for i in ahead.keys() & behind]
    assert [op.target for op in again if not is_cheap(op)] == []
    saved = {i.value.id for i in backward.inputs if i.name.startswith("saved:")}
    assert saved <= {v.id for v in forward.outputs if v is not None}
    read = {v.id for op in backward.ops for v in op.operands()}
    assert saved <= read | {v.id for v in backward.outputs if v is not None}


def is_cheap(op: Op) -> bool:
    moves = is_view(op.target) or isinstance(op.target, Gather) or not list(op.operands())
    return moves or (is_pointwise(op.target) and op.results[0].space == EDGE)


def test_phases_of_the_tree_lstm(programs: Callable[[str], list[Program]]) -> None:
    """Inputs are multiplied once before, parameter gradients summed once after the frontiers."""
    forward, backward = (build_phases(p, per_vertex=True) for p in programs("tree_lstm"))
    assert [phase.is_loop for phase in forward][:2] == [False, True]
    assert [phase.is_reverse for phase in forward if phase.is_loop] == [False]
    assert [phase.is_reverse for phase in backward if phase.is_loop] == [True]
    for phase in (*forward, *backward):
        if phase.is_loop:
            assert not any(v.space == SHARED and v.shape for op in phase.ops for v in op.results
                           if any(o.row_dim is not None for o in op.operands()))  # fmt: skip
    gemms = [sum("mm" in str(op.target) for op in phase.ops) for phase in forward]
    assert gemms == [2, 2, *[0] * (len(gemms) - 2)]  # W and Wf of x before; U and Uf within


# ---------------------------------------------------------------- verify
def value(number: int, *shape: Any) -> Value:
    rows = [d.space for d in shape if isinstance(d, Rows)]
    return Value(number, rows[0] if rows else SHARED, torch.float32, shape)


A, B, C = (value(i, Rows(VERTEX), 3) for i in range(3))
GOOD = Program("f", (Input(A, "a"),), (Op(aten.exp.default, (A,), {}, (B,)),), (B,))
TURNED = value(5, 3, Rows(VERTEX))
MOVED = value(7, Rows(EDGE), 3)
BOTH = value(6, Rows(VERTEX), Rows(VERTEX))
EDGES = Program("f", (Input(MOVED, "m"),), (), ())
SCALAR = Pointwise((value(8),), (), value(8))
BROKEN: dict[str, tuple[Program, str]] = {
    "read too early": (
        replace(GOOD, ops=(Op(aten.exp.default, (C,), {}, (B,)),)), "read before it is made",
    ),
    "wrong order": (
        replace(GOOD, ops=(Op(aten.exp.default, (B,), {}, (C,)), *GOOD.ops)),
        "read before it is made",
    ),
    "made twice": (replace(GOOD, ops=(*GOOD.ops, *GOOD.ops)), "made twice"),
    "input made again": (
        replace(GOOD, ops=(Op(aten.exp.default, (A,), {}, (A,)),)), "made twice",
    ),
    "two inputs of one name": (
        replace(GOOD, inputs=(Input(A, "a"), Input(C, "a"))), "two inputs of one name",
    ),
    "output never made": (replace(GOOD, outputs=(C,)), "never made"),
    "carry never made": (
        replace(GOOD, carries=(Carry(value(9, 3), C, Gather("src")),)), "never made",
    ),
    "rows in two dims": (
        replace(GOOD, ops=(Op(aten.exp.default, (A,), {}, (BOTH,)),), outputs=()), "two dims",
    ),
    "unknown reduction": (
        replace(EDGES, ops=(Op(SegmentReduce("dst", "median"), (MOVED,), {}, (B,)),)), "no reduction 'median'",
    ),
    "unknown reduction over rows": (
        replace(GOOD, ops=(Op(RowSum(Reduction(SCALAR, "median"), (0,), False, (A,), ()), (A,), {}, (C,)),)),
        "no reduction 'median'",
    ),
    "extremum over out-edges": (
        replace(EDGES, ops=(Op(SegmentReduce("src", "max"), (MOVED,), {}, (B, C)),)), "in-edges alone",
    ),
    "extremum without slots": (
        replace(EDGES, ops=(Op(SegmentReduce("dst", "max"), (MOVED,), {}, (B,)),)), "gives 2 results",
    ),
    "unknown operator": (replace(GOOD, ops=(Op("tan", (A,), {}, (B,)),)), "no operator 'tan'"),
    "move of turned rows": (
        Program("f", (Input(TURNED, "a"),), (Op(Gather("dst"), (TURNED,), {}, (MOVED,)),), ()),
        "first dim",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_verify_catches(name: str) -> None:
    verify(GOOD)
    program, reason = BROKEN[name]
    with pytest.raises(AssertionError, match=reason):
        verify(program)


# ---------------------------------------------------------------- moves
def whole_extent(topology: Topology) -> Extent:
    schedule = build_schedule(topology, ONCE, None, build_row_order(topology, None))
    return Extent(schedule, schedule.frontiers[0], None, {})


@pytest.mark.parametrize("end", ["src", "dst"])
@pytest.mark.parametrize("seed", range(3))
def test_gathers_are_transposed_by_sums(end: str, seed: int) -> None:
    torch.manual_seed(seed)
    topology = Topology(torch.randint(0, 6, (11,)), torch.randint(0, 6, (11,)), 6, 6)
    extent = whole_extent(topology)
    x, y = (torch.randn(n, 2, dtype=torch.float64) for n in (6, 11))
    there = getattr(extent, f"gather_{end}")(x)
    back = getattr(extent, f"reduce_{end}")("sum", y)
    torch.testing.assert_close((there * y).sum(), (x * back).sum())
    assert Gather(end).transpose() == SegmentReduce(end, "sum")
    assert SegmentReduce(end, "sum").transpose() == Gather(end)


@pytest.mark.parametrize("k", [0, 1, 2])
def test_slots_are_transposed_by_slots(k: int) -> None:
    ptr = torch.tensor([0, 2, 2, 3, 6])
    x, y = (torch.randn(n, 2, dtype=torch.float64) for n in (6, 4))
    there = reference.take_slot(x, ptr, None, k)
    back = reference.put_slot(y, ptr, 6, None, k)
    torch.testing.assert_close((there * y).sum(), (x * back).sum())
    assert TakeSlot(k).transpose() == PutSlot(k)
    assert PutSlot(k).transpose() == TakeSlot(k)


@pytest.mark.parametrize(
    "given", [VERTEX, Space("edge", "likes"), Rows(VERTEX), Rows(Space("edge", "likes"), 3)], ids=str
)
def test_there_is_one_object_of_each_space_and_size(given: Space | Rows) -> None:
    assert copy.deepcopy(given) is given
    assert pickle.loads(pickle.dumps(given)) is given
    assert replace(given) is given
    with pytest.raises(FrozenInstanceError):
        given.kind = "edge"  # pyright: ignore


def test_spaces_of_moves() -> None:
    assert (Gather("src").source, Gather("src").result) == (SOURCE, EDGE)
    assert (SegmentReduce("dst", "max").source, SegmentReduce("dst", "max").result) == (EDGE, VERTEX)
    with pytest.raises(AssertionError, match="linear"):
        SegmentReduce("dst", "max").transpose()
