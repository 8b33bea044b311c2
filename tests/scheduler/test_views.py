"""Slices of rows are taken where they are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import torch

from vgraph.ir.moves import Gather
from vgraph.ir.program import Op, Rows, Value
from vgraph.ir.schedule import Phase
from vgraph.ir.space import EDGE, SHARED, SOURCE, VERTEX
from vgraph.scheduler.views import store_views

aten = torch.ops.aten


def value(number: int, width: int, space=VERTEX) -> Value:
    shape = (width,) if space == SHARED else (Rows(space), width)
    return Value(number, space, torch.float32, shape)


def test_a_slice_moves_into_the_loop_that_reads_it() -> None:
    wide, left, right, out = value(0, 8), value(1, 4), value(2, 4), value(3, 4)
    split = Op(aten.split.Tensor, (wide, 4, -1), {}, (left, right), returns_sequence=True)
    loop = Phase((Op(aten.add.Tensor, (left, right), {}, (out,)),), is_loop=True)
    once, moved = store_views([Phase((split,), is_loop=False), loop], {out.id})
    assert once.ops == (), "nobody else reads the slices"
    assert [op.target for op in moved.ops] == [aten.split.Tensor, aten.add.Tensor]
    assert moved.ops[0].args[0] is wide
    assert moved.ops[1].args == moved.ops[0].results


def test_a_slice_that_others_read_stays_as_well() -> None:
    wide, left, right, out = value(0, 8), value(1, 4), value(2, 4), value(3, 4)
    split = Op(aten.split.Tensor, (wide, 4, -1), {}, (left, right), returns_sequence=True)
    loop = Phase((Op(aten.add.Tensor, (left, right), {}, (out,)),), is_loop=True)
    once, moved = store_views([Phase((split,), is_loop=False), loop], {out.id, right.id})
    assert once.ops == (split,)
    assert moved.ops[1].args == moved.ops[0].results


def test_a_gather_moves_where_only_loops_read_it() -> None:
    rows, there, here, out, other = (
        value(0, 4, SOURCE),
        value(1, 4, EDGE),
        value(2, 4, EDGE),
        value(3, 4, EDGE),
        value(4, 4, EDGE),
    )
    gather = Op(Gather("src"), (rows,), {}, (there,))
    loop = Phase((Op(aten.mul.Tensor, (there, here), {}, (out,)),), is_loop=True)
    once, moved = store_views([Phase((gather,), is_loop=False), loop], {out.id})
    assert once.ops == () and [op.target for op in moved.ops] == [Gather("src"), aten.mul.Tensor]
    reader = Op(aten.neg.default, (there,), {}, (other,))
    once, moved = store_views([Phase((gather,), is_loop=False), loop], {there.id})
    assert once.ops == (gather,) and len(moved.ops) == 1, "the caller reads it, too"
    once, moved, _ = store_views([Phase((gather,), is_loop=False), loop, Phase((reader,), is_loop=False)], {out.id})
    assert once.ops == (gather,) and len(moved.ops) == 1, "it is there anyway"


def test_a_gather_that_one_later_phase_reads_is_made_there() -> None:
    rows, there, left, out = value(0, 4, SOURCE), value(1, 4, EDGE), value(2, 4, EDGE), value(3, 4, EDGE)
    gather = Op(Gather("src"), (rows,), {}, (there,))
    last = Phase((Op(aten.mul.Tensor, (there, left), {}, (out,)),), is_loop=False)
    first, moved = store_views([Phase((gather,), is_loop=False), last], {out.id})
    assert first.ops == () and [op.target for op in moved.ops] == [Gather("src"), aten.mul.Tensor]
    first, stays = store_views([Phase((gather,), is_loop=False), last], {out.id, there.id})
    assert first.ops == (gather,) and len(stays.ops) == 1


def test_phases_are_read_a_fixed_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many gathers there are: a function of thousands of steps has thousands."""
    asked = Counter[int]()
    operands = Op.operands

    def counted(op: Op) -> Iterator[Value]:
        asked[id(op)] += 1
        return operands.func(op)()

    rows, last = value(0, 4, SOURCE), value(99, 4, EDGE)
    gathers = [Op(Gather("src"), (rows,), {}, (value(number, 4, EDGE),)) for number in range(1, 41)]
    reader = Op(aten.cat.default, ([op.results[0] for op in gathers],), {}, (last,))
    monkeypatch.setattr(Op, "operands", counted)
    first, moved = store_views([Phase(tuple(gathers), is_loop=False), Phase((reader,), is_loop=False)], {last.id})
    assert first.ops == () and len(moved.ops) == 41
    assert max(asked.values()) < 10
