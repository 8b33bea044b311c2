"""Memory plans: aligned, never overlapping while alive; lifetimes over phases, views included."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import ref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vgraph.ir.memory import Lifetime, MemoryPlan, Stacks
from vgraph.ir.moves import Gather
from vgraph.ir.program import Op, Rows, Value
from vgraph.ir.schedule import Phase, Schedule
from vgraph.ir.space import EDGE, GRAPH, SOURCE, VERTEX, Space
from vgraph.ir.topology import Topology
from vgraph.memory.liveness import lifetimes
from vgraph.memory.plan import ALIGNMENT, plan_memory
from vgraph.memory.row_order import build_row_order

aten = torch.ops.aten
TOPOLOGY = Topology(torch.tensor([0, 1, 2, 0]), torch.tensor([3, 3, 4, 4]), 6, 6, (4, 2))
SCHEDULE = Schedule(ref(TOPOLOGY), "once", build_row_order(TOPOLOGY, None), ())


def value(number: int, space: Space = VERTEX, *inner: int, times: int = 1) -> Value:
    return Value(number, space, torch.float32, (Rows(space, times), *inner))


def op(target: object, operands: Iterable[Value], result: Value) -> Op:
    return Op(target, tuple(operands), {}, (result,))


def assert_apart(plan: MemoryPlan) -> None:
    spans = [(t.offset, t.offset + t.num_bytes, plan.lifetimes[i]) for i, t in plan.tensors.items()]
    for index, (start, stop, life) in enumerate(spans):
        assert start % ALIGNMENT == 0 and 0 <= start <= stop <= plan.num_bytes
        for start2, stop2, life2 in spans[index + 1 :]:
            assert not life.overlaps(life2) or stop <= start2 or stop2 <= start or start == stop


LIVES = st.tuples(st.integers(0, 5), st.integers(0, 5)).map(lambda p: Lifetime(min(p), max(p)))
SPACES = st.sampled_from([VERTEX, EDGE, SOURCE, GRAPH])
WANTED = st.lists(st.tuples(SPACES, st.integers(0, 40), st.integers(1, 3), LIVES), max_size=12)


@given(WANTED)
def test_live_tensors_never_overlap(wanted: list[tuple[Space, int, int, Lifetime]]) -> None:
    values = [value(i, s, w, times=t) for i, (s, w, t, _) in enumerate(wanted)]
    lives = {i: life for i, (*_, life) in enumerate(wanted)}
    plan = plan_memory(values, lives, SCHEDULE)
    assert_apart(plan)
    assert plan.lifetimes == lives
    aligned = [-(-t.num_bytes // ALIGNMENT) * ALIGNMENT for t in plan.tensors.values()]
    assert plan.num_bytes <= sum(aligned)


@given(WANTED, st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=4))
def test_what_lay_on_what_serves_other_topologies(
    wanted: list[tuple[Space, int, int, Lifetime]], counts: list[tuple[int, int]]
) -> None:
    values = [value(i, s, w, times=t) for i, (s, w, t, _) in enumerate(wanted)]
    lives, stacks = {i: life for i, (*_, life) in enumerate(wanted)}, Stacks()
    first = plan_memory(values, lives, SCHEDULE, stacks)
    alone, again = plan_memory(values, lives, SCHEDULE), plan_memory(values, lives, SCHEDULE, stacks)
    assert first.tensors == alone.tensors == again.tensors and first.num_bytes == again.num_bytes
    for num_src, num_dst in counts:
        ids = torch.zeros(num_src if num_dst else 0, dtype=torch.int64)
        topology = Topology(ids.clamp(max=0), ids, max(num_src, 1), num_dst)
        assert_apart(plan_memory(values, lives, Schedule(ref(topology), "once", SCHEDULE.order, ()), stacks))


def test_rows_and_shapes() -> None:
    values = [value(0, VERTEX, 5), value(1, EDGE, 5, times=2), value(2, GRAPH)]
    values.append(Value(3, VERTEX, torch.float64, (7, Rows(VERTEX))))
    plan = plan_memory(values, dict.fromkeys(range(4), Lifetime(0, 0)), SCHEDULE)
    arena = torch.zeros(plan.num_bytes, dtype=torch.uint8)
    shapes = [tuple(plan.tensors[i].view(arena).shape) for i in range(4)]
    assert shapes == [(6, 5), (4, 2, 5), (2,), (6, 7)]
    for i in range(4):
        plan.tensors[i].view(arena).fill_(i)
    assert all(bool((plan.tensors[i].view(arena) == i).all()) for i in range(4))


def test_memory_is_shared_over_time() -> None:
    lives = {0: Lifetime(0, 1), 1: Lifetime(2, 3), 2: Lifetime(1, 2)}
    plan = plan_memory([value(i, VERTEX, 16) for i in lives], lives, SCHEDULE)
    assert plan.tensors[0].offset == plan.tensors[1].offset == 0
    assert plan.num_bytes == 2 * 6 * 16 * 4


def test_the_smallest_gap_is_taken() -> None:
    lives = [Lifetime(0, 0), Lifetime(0, 1), Lifetime(0, 0), Lifetime(0, 1), Lifetime(1, 1)]
    widths = (96, 80, 64, 48, 32)  # in phase 1 there are two gaps: of 96 and of 64
    values = [value(i, VERTEX, width) for i, width in enumerate(widths)]
    plan = plan_memory(values, dict(enumerate(lives)), SCHEDULE)
    assert plan.tensors[4].offset == plan.tensors[2].offset
    assert_apart(plan)


def test_nothing_to_store() -> None:
    empty = Topology(*torch.empty(2, 0, dtype=torch.int64).unbind(), 0, 0)
    nothing = Schedule(ref(empty), "once", build_row_order(empty, None), ())
    assert plan_memory([], {}, SCHEDULE).num_bytes == 0
    plan = plan_memory([value(0, VERTEX, 3)], {0: Lifetime(0, 0)}, nothing)
    assert plan.num_bytes == 0
    assert plan.tensors[0].view(torch.empty(0, dtype=torch.uint8)).shape == (0, 3)


# ---------------------------------------------------------------- lifetimes
def test_lifetimes_over_phases() -> None:
    x, a, b, c, d = (value(i, VERTEX, 4) for i in range(5))
    phases = (
        Phase((op(aten.tanh.default, [x], a), op(aten.exp.default, [x], b)), is_loop=True),
        Phase((op(aten.mul.Tensor, [a, x], c),), is_loop=False),
        Phase((op(aten.add.Tensor, [c, c], d),), is_loop=True),
    )
    found = lifetimes(phases, [(1, 2), (3,), (4,)], [None, d])
    assert found == {1: Lifetime(0, 1), 2: Lifetime(0, 0), 3: Lifetime(1, 2), 4: Lifetime(2, 3)}


@pytest.mark.parametrize("target", [aten.t.default, aten.reshape.default, aten.contiguous.default, Gather("dst")])
def test_a_view_keeps_what_it_views(target: object) -> None:
    x, a, seen, again, end = (value(i, VERTEX, 4) for i in range(5))
    phases = (
        Phase((op(aten.tanh.default, [x], a),), is_loop=True),
        Phase((op(target, [a], seen), op(aten.t.default, [seen], again)), is_loop=False),
        Phase((op(aten.exp.default, [x], x),), is_loop=True),
        Phase((op(aten.exp.default, [again], end),), is_loop=False),
    )
    assert lifetimes(phases, [(1,), (), (), ()], [end]) == {1: Lifetime(0, 3)}
    assert lifetimes(phases[:2], [(1,), ()], [again]) == {1: Lifetime(0, 2)}


def test_rows_that_nobody_reads_live_while_they_are_written() -> None:
    """A state's, of leaves and then of inner vertices, where no vertex asks for its children's."""
    state, other = value(1, VERTEX, 4), value(2, VERTEX, 4)
    phases = [Phase((), is_loop=True), Phase((), is_loop=True), Phase((), is_loop=False)]
    assert lifetimes(phases, [(1,), (1, 2), ()], [other]) == {1: Lifetime(0, 1), 2: Lifetime(1, 3)}
    assert_apart(plan_memory([state, other], lifetimes(phases, [(1,), (1, 2), ()], [other]), SCHEDULE))


def test_a_loop_copies_what_it_keeps() -> None:
    x, a, seen, end = (value(i, VERTEX, 4) for i in range(4))
    phases = (
        Phase((op(aten.tanh.default, [x], a),), is_loop=True),
        Phase((op(aten.t.default, [a], seen),), is_loop=True),
        Phase((op(aten.exp.default, [seen], end),), is_loop=False),
    )
    found = lifetimes(phases, [(1,), (2,), ()], [end])
    assert found == {1: Lifetime(0, 1), 2: Lifetime(1, 2)}
