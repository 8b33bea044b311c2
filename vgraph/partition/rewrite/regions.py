"""Regions: what every worker reads and makes of one op, exactly, after any number of steps.

Takes: an Op, its strategy in every step. Gives: sets of its indices, operands and results. Runs once per function.
Source: Tofu section 4.2 (symbolic interval analysis), 5.2 (each step splits what is left).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from vgraph.ir.index_set import IndexSet
from vgraph.ir.program import Op, Value
from vgraph.ir.sharding import Partial, Placement, Region, Strategy, shard_region
from vgraph.ir.tdl.affine import parse_access
from vgraph.ir.tdl.notation import Indices, Notation
from vgraph.ir.tdl.table import describe, is_absent, reads_values

Sets = Mapping[str, IndexSet]


def index_sizes(op: Op, notation: Notation) -> dict[str, int]:
    """The size of every index that stands alone in a dim of an operand or result."""
    sizes: dict[str, int] = dict(notation.sizes)
    sides = [*zip(op.operands(), notation.inputs, strict=True), *zip(op.results, notation.outputs, strict=False)]
    for value, dims in reversed(sides):
        if len(value.shape) != len(dims):  # a result that was left out
            continue
        for size, dim in zip(value.shape, dims, strict=True):
            assert isinstance(size, int), f"{value} has rows: only dense Programs are divided"
            if dim.isidentifier():
                sizes[dim] = size
    pairs = [pair for value, dims in sides for pair in zip(value.shape, dims, strict=False) if " " in pair[1]]
    while sum(_solved(size, dim, sizes) for size, dim in pairs):  # one product may need what another gives
        pass
    return sizes


def _solved(size: object, dim: str, sizes: dict[str, int]) -> bool:
    """Finds an index that stands in products only, such as the repetition of a repeat; False: nothing new."""
    unknown = [name for name in dim.split() if "?" not in dim and name not in sizes]
    if len(unknown) != 1 or not isinstance(size, int):
        return False
    sizes[unknown[0]] = size // math.prod(sizes[name] for name in dim.split() if name in sizes)
    return True


_kept: WeakKeyDictionary[Op, Notation | None] = WeakKeyDictionary()


def keep_notation(op: Op, whole: Op) -> Op:
    """Has a smaller op go by the notation of the whole one: dims of one entry left have no index of their own."""
    _kept[op] = notation_of(whole)
    return op


def notation_of(op: Op) -> Notation | None:
    """An op's notation, unless its operands disagree about the size of an index."""
    if op in _kept:
        return _kept[op]
    notation = describe(op)
    return notation if notation is None or _agrees(op, notation) else None


def _agrees(op: Op, notation: Notation) -> bool:
    sizes = index_sizes(op, notation)
    sides = [*zip(op.operands(), notation.inputs, strict=True)]
    sides += [(r, dims) for r, dims in zip(op.results, notation.outputs, strict=False) if not is_absent(r)]
    pairs = ((size, dim) for value, dims in sides for size, dim in zip(value.shape, dims, strict=False))
    return all(size == sizes[dim] for size, dim in pairs if dim in sizes)


def image(dim: str, size: int, sets: Sets, sizes: Mapping[str, int]) -> IndexSet:
    """The entries of an operand's dim that are read for these sets of the indices."""
    if dim == "1" or "?" in dim:
        return IndexSet.whole(size)
    if "|" in dim:
        parts = [image(part, size, sets, sizes) for part in dim.split("|")]
        return IndexSet.of(run for part in parts for run in part.runs)
    names = dim.split()
    if len(names) > 1:
        found = sets[names[0]]
        for name in names[1:]:
            found = found.times(sets[name], sizes[name])
        return found
    access = parse_access(dim)
    assert access is not None, f"{dim} is no access"
    within = IndexSet.whole(size)
    if len(access.terms) == 1 and access.terms[0][1] == 1 and access.divisor == 1:
        return sets[access.terms[0][0]].shifted(access.constant) & within
    bounds = {name: sets[name].bounds for name in access.names}
    return IndexSet.one(*access.interval(bounds)) & within


def region(value: Value, dims: Indices, sets: Sets, sizes: Mapping[str, int]) -> Region:
    """The entries of a value that belong to these sets of the indices."""
    shape = value.row_shape
    return tuple(image(dim, size, sets, sizes) for dim, size in zip(dims, shape, strict=True))


@dataclass(frozen=True)
class OpRegions:
    """One worker's share of one op."""

    sets: Mapping[str, IndexSet]
    inputs: tuple[Region, ...]
    outputs: tuple[Region, ...]


def index_sets(
    sizes: Mapping[str, int], strategies: Sequence[Strategy], axes: Sequence[int], digits: Sequence[int]
) -> Sets:
    """The part of each index that is for the worker with these digits."""
    sets = {name: IndexSet.whole(size) for name, size in sizes.items()}
    for strategy, ways, digit in zip(strategies, axes, digits, strict=True):
        if strategy.index not in ("", "+"):
            sets[strategy.index] = sets[strategy.index].cut(strategy.outer, ways, digit)
    return sets


def op_regions(
    op: Op, notation: Notation | None, strategies: Sequence[Strategy], axes: Sequence[int], digits: Sequence[int]
) -> OpRegions:
    """What the worker with these digits reads and makes."""
    if notation is None:
        assert all(strategy.index in ("", "+") for strategy in strategies), f"{op.target} is not described"
        return OpRegions({}, tuple(map(_whole, op.operands())), tuple(map(_whole, op.results)))
    sizes = index_sizes(op, notation)
    sets = index_sets(sizes, strategies, axes, digits)
    inputs = tuple(region(v, d, sets, sizes) for v, d in zip(op.operands(), notation.inputs, strict=True))
    outputs = tuple(
        region(v, d, sets, sizes) if len(v.shape) == len(d) else _whole(v)
        for v, d in zip(op.results, notation.outputs, strict=True)
    )
    return OpRegions(sets, inputs, outputs)


def _whole(value: Value) -> Region:
    return tuple(map(IndexSet.whole, value.row_shape))


def num_entries(part: Region) -> int:
    """How many elements a region holds."""
    count = 1
    for entries in part:
        count *= len(entries)
    return count


def intersect(one: Region, two: Region) -> Region | None:
    """The common region; None where there is none."""
    found = tuple(a & b for a, b in zip(one, two, strict=True))
    return found if all(len(entries) for entries in found) else None


def read_bytes(op: Op, operand: int, strategy: Strategy, ways: int, have: Placement) -> int:
    """Bytes that cross workers in one step to bring an operand that lies as ``have`` to its readers."""
    value = list(op.operands())[operand]
    shape = value.row_shape
    if not reads_values(op, operand):
        return 0
    is_term = isinstance(have, Partial) and isinstance(strategy.inputs[operand], Partial)
    notation, total = notation_of(op), 0
    for worker in range(ways):
        need = op_regions(op, notation, (strategy,), (ways,), (worker,)).inputs[operand]
        mine = shard_region(shape, (have,), (ways,), (worker,))
        kept = intersect(need, mine) if mine is not None else None
        if isinstance(have, Partial) and not is_term:
            total += num_entries(need) * (ways - 1)
        else:
            total += num_entries(need) - (num_entries(kept) if kept is not None else 0)
    return total * value.dtype.itemsize
