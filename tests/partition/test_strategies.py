"""Strategies of an op are those that its notation allows, and read what they say."""

from __future__ import annotations

from typing import Any

import torch

from vgraph.ir.program import Op, Value
from vgraph.ir.sharding import Partial, Replicate, Split
from vgraph.ir.space import SHARED
from vgraph.partition.rewrite.regions import read_bytes
from vgraph.partition.search.strategies import strategies

aten = torch.ops.aten


def value(number: int, *shape: int) -> Value:
    return Value(number, SHARED, torch.float32, shape)


def shown(target: Any, *args: Any, result: tuple[int, ...], **options: Any) -> list[str]:
    op = Op(target, args, {}, (value(9, *result),))
    return [str(s) for s in strategies(op, 2, **options)]


def test_a_product_has_both_cases() -> None:
    found = shown(aten.mm.default, value(0, 4, 16), value(1, 16, 8), result=(4, 8))
    assert found == [
        "all: R R -> R", "m: S0 R -> S0", "n: R S1 -> S1", "k: S1 S0 -> Psum", "+: Psum R -> Psum", "+: R Psum -> Psum",
    ]  # fmt: skip


def test_inner_factors_are_cut_where_they_are_named() -> None:
    found = shown(aten.t.default, value(0, 8, 3), result=(3, 8), factors={0: (frozenset({4}), frozenset[int]())})
    assert found == ["all: R -> R", "d0: S0 -> S1", "d0/4: S0/4 -> S1/4", "+: Psum -> Psum"]


def test_views_move_the_cut() -> None:
    assert "g1b: S1/4 -> S2" in shown(aten.view.default, value(0, 4, 16), [4, 4, 4], result=(4, 4, 4))


def test_only_dims_that_divide_are_split() -> None:
    assert shown(aten.relu.default, value(0, 3, 5), result=(3, 5)) == ["all: R -> R"]


def test_positions_point_into_a_block_of_what_is_gathered() -> None:
    """What lies outside of a worker's block is no term of its sum; truth values are not summed."""
    ids = Value(1, SHARED, torch.int64, (4, 1))
    for dtype, is_cut in ((torch.float32, True), (torch.int64, True), (torch.bool, False)):
        table, result = Value(0, SHARED, dtype, (4, 8)), Value(9, SHARED, dtype, (4, 1))
        found = [str(s) for s in strategies(Op(aten.gather.default, (table, 1, ids), {}, (result,)), 2)]
        assert ("d1: S1 R -> Psum" in found) == is_cut


def test_bytes_of_one_step() -> None:
    op = Op(aten.mm.default, (value(0, 4, 16), value(1, 16, 8)), {}, (value(2, 4, 8),))
    by_name = {s.index: s for s in strategies(op, 2)}
    assert read_bytes(op, 0, by_name["m"], 2, Split(0)) == 0
    assert read_bytes(op, 0, by_name["n"], 2, Split(0)) == 4 * 16 * 4
    assert read_bytes(op, 0, by_name["m"], 2, Split(1)) == 4 * 16 * 4 // 2
    assert read_bytes(op, 0, by_name["m"], 2, Partial()) == 4 * 16 * 4
    assert read_bytes(op, 1, by_name["m"], 2, Replicate()) == 0
