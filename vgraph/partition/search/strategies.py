"""Strategies: every way to divide one op among the workers of one step.

Takes: an Op. Gives: its Strategies, from its index notation alone. Runs once per function.
Source: Tofu section 4.2: case 1 splits an output dim, case 2 a reduction; Partial passes through linear ops.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vgraph.ir.program import Op, Value, map_leaves, op_name
from vgraph.ir.reductions import REDUCTIONS
from vgraph.ir.sharding import REPLICATED, Partial, Placement, Replicate, Split, Strategy, split_at
from vgraph.ir.tdl.affine import parse_access
from vgraph.ir.tdl.notation import Indices, Notation
from vgraph.ir.tdl.table import is_absent
from vgraph.partition.rewrite.regions import index_sizes, keep_notation, notation_of
from vgraph.partition.search.linear import linear_operands

Factors = Mapping[int, Sequence[frozenset[int]]]  # value id -> outer factors of each dim worth a cut of the inner one
LONG = 256  # entries a worker from which on a dim may be cut into blocks that differ by one
_REDUCERS = {kind: row.name for row in REDUCTIONS.values() for kind in row.joins} | {"addend": "sum"}


@dataclass(frozen=True, eq=False)
class Described:
    """An op's notation and the sizes of its indices."""

    notation: Notation
    sizes: Mapping[str, int]


def described(op: Op) -> Described | None:
    """None for an op that is not described."""
    notation = notation_of(op)
    return Described(notation, index_sizes(op, notation)) if notation is not None else None


def strategies(op: Op, num_ways: int, factors: Factors | None = None, known: Described | None = None) -> list[Strategy]:
    """Every strategy of an op for ``num_ways`` workers; the first one, always there, replicates it.

    ``factors``: for dims that views take apart, the outer sizes under which an inner factor may be cut.
    A dim is split where ``num_ways`` divides it, or where it is ``LONG``. ``known``: what ``described`` says, if it was
    asked.
    """
    found = [replicated(op)]
    known = known or described(op)
    if known is None:
        return found
    notation, sizes = known.notation, known.sizes
    for index in sizes:
        for outer in sorted(_outers(op, notation, index, factors or {})):
            strategy = _divided(op, known, index, outer, num_ways)
            found += [strategy] if strategy is not None else []
    found += _passing_partials(op)
    return found


def is_strategy(op: Op, strategy: Strategy, num_ways: int) -> bool:
    """Whether an op may be divided so: in place of all strategies the one that has this name is derived."""
    if strategy.index == "":
        return strategy == replicated(op)
    known = described(op)
    if known is None or strategy.outer < 1:
        return False
    if strategy.index == "+":
        return strategy in _passing_partials(op)
    return strategy.index in known.sizes and strategy == _divided(op, known, strategy.index, strategy.outer, num_ways)


def _divided(op: Op, known: Described, index: str, outer: int, num_ways: int) -> Strategy | None:
    """The strategy that splits one index, if its size and the notation allow it."""
    size, parts = known.sizes[index], outer * num_ways
    if size % parts == 0 or (outer == 1 and is_long(size, parts) and stands_alone(known.notation, index)):
        return _split(op, known.notation, known.sizes, index, outer, num_ways)
    return None


def is_long(size: int, parts: int) -> bool:
    """Whether a dim that a number does not divide is cut into so many parts: they differ by one entry.

    >>> is_long(50_257, 8), is_long(197, 8)
    (True, False)
    """
    return size >= LONG * parts


def stands_alone(notation: Notation, index: str) -> bool:
    """Whether every dim that is cut with this index has no other: then blocks of it are blocks of those dims."""
    dims = {dim for side in (*notation.inputs, *notation.outputs) for dim in side if "?" not in dim}
    return all(dim == index or not _has(dim, index) for dim in dims)


def passes_terms(op: Op) -> bool:
    """Whether it may work on each term of a sum: not a product, which would be computed once a term."""
    if op_name(op.target) in ("mm", "bmm", "mv", "dot"):
        return False
    sizes = [math.prod(value.row_shape) for value in op.operands()]
    return op_name(op.target) not in ("mul", "div") or min(sizes) == 1 or len(sizes) == 1


def replicated(op: Op) -> Strategy:
    """Every worker reads and makes everything."""
    count = len(list(op.operands()))
    return Strategy("", 1, (REPLICATED,) * count, (REPLICATED,) * len(op.results))


def shrink(op: Op, strategy: Strategy, ways: int) -> Op:
    """The op that one step leaves to the next: only its shapes are true, to list strategies from."""
    placements = iter(strategy.inputs)

    def local(value: Value, placement: Placement) -> Value:
        shape = list(value.shape)
        if isinstance(placement, Split):
            size = shape[placement.dim]
            assert isinstance(size, int)
            shape[placement.dim] = -(-size // ways)
        return replace(value, shape=tuple(shape))

    def swap(leaf: object) -> object:
        return local(leaf, next(placements)) if isinstance(leaf, Value) else leaf

    args = map_leaves(op.args, swap)
    kwargs = {key: map_leaves(value, swap) for key, value in op.kwargs.items()}
    results = tuple(local(v, p) for v, p in zip(op.results, strategy.outputs, strict=True))
    return keep_notation(replace(op, args=args, kwargs=kwargs, results=results), op)


def _passing_partials(op: Op) -> Iterator[Strategy]:
    """A linear op may work on the terms of a sum: its result is then a sum of terms too."""
    count = len(list(op.operands()))
    for together in linear_operands(op):
        inputs = tuple(Partial() if i in together else REPLICATED for i in range(count))
        yield Strategy("+", 1, inputs, (Partial(),) * len(op.results))


def _outers(op: Op, notation: Notation, index: str, factors: Factors) -> set[int]:
    """1, and the outer factors of all dims that this index alone indexes."""
    found = {1}
    sides = [*zip(op.operands(), notation.inputs, strict=True), *zip(op.results, notation.outputs, strict=True)]
    for value, dims in sides:
        for known, dim in zip(factors.get(value.id, ()), dims, strict=False):
            found |= known if dim == index else set()
    return found


def _split(op: Op, notation: Notation, sizes: Mapping[str, int], index: str, outer: int, ways: int) -> Strategy | None:
    """The strategy that splits one index, if the notation allows it."""
    if index in notation.whole and (index not in notation.located or outer > 1):
        return None
    outputs: list[Placement] = []
    for number, (result, dims) in enumerate(zip(op.results, notation.outputs, strict=True)):
        placement = REPLICATED if is_absent(result) else _made(notation, number, dims, sizes, index, outer)
        if placement is None:
            return None
        outputs.append(placement)
    if all(isinstance(placement, Replicate) for placement in outputs):
        return None
    inputs: list[Placement] = []
    halo: dict[int, tuple[int, int]] = {}
    for number, (value, dims) in enumerate(zip(op.operands(), notation.inputs, strict=True)):
        needed = _read(value, dims, sizes, index, outer, ways)
        if needed is None:
            return None
        inputs.append(needed[0])
        if needed[1] != (0, 0):
            halo[number] = needed[1]
    return Strategy(index, outer, tuple(inputs), tuple(outputs), halo)


def _made(
    notation: Notation, number: int, dims: Indices, sizes: Mapping[str, int], index: str, outer: int
) -> Placement | None:
    """Where a result lies if an index is split: case 1 by its dim, case 2 a term of a reduction."""
    found = [_position(position, dim, sizes, index, outer) for position, dim in _places(dims, index)]
    if len(found) == 1:
        return found[0]
    if found:
        return None
    read = notation.reads.get(number, range(len(notation.inputs)))
    if not any(_has(dim, index) for operand in read for dim in notation.inputs[operand]):
        return REPLICATED
    reducer = _REDUCERS.get(notation.reduced.get(index, "") or notation.located.get(index, ""))
    return Partial(reducer) if reducer else None


def _places(dims: Indices, index: str) -> list[tuple[int, str]]:
    """The dims that have an index, with their positions; one of which only positions in it are known has not."""
    return [(position, dim) for position, dim in enumerate(dims) if "?" not in dim and _has(dim, index)]


def _has(dim: str, index: str) -> bool:
    access = parse_access(dim.split("|", maxsplit=1)[0])
    return index in (access.names if access is not None else dim.replace("?", "").split())


def _position(position: int, dim: str, sizes: Mapping[str, int], index: str, outer: int) -> Split | None:
    """The cut of a dim that cuts one of the indices it is composed of."""
    for name in dim.split():
        if name == index:
            return split_at(position, outer)
        outer *= sizes.get(name, 1)
    return None


def _read(
    value: Value, dims: Indices, sizes: Mapping[str, int], index: str, outer: int, ways: int
) -> tuple[Placement, tuple[int, int]] | None:
    """The shard of an operand that is read, and its halo."""
    found = _places(dims, index)
    if not found:
        return (REPLICATED, (0, 0))
    if len(found) > 1:
        return None
    position, dim = found[0]
    plain = _position(position, dim, sizes, index, outer)
    if plain is not None:
        return (plain, (0, 0))
    size = value.shape[position]
    assert isinstance(size, int)
    return _affine(position, dim, size, sizes, index, outer, ways)


def _affine(
    position: int, dim: str, size: int, sizes: Mapping[str, int], index: str, outer: int, ways: int
) -> tuple[Placement, tuple[int, int]] | None:
    """The shard for offsets and strides: blocks with a halo where the operand's dim divides too."""
    blocks = size // sizes[index] if sizes[index] and size % sizes[index] == 0 else 0
    accesses = [parse_access(part) for part in dim.split("|")]
    if all(a is not None and a.terms == ((index, 1),) and a.divisor == 1 for a in accesses):
        starts = [a.constant for a in accesses if a is not None]
        if blocks and all(start % sizes[index] == 0 and start >= 0 for start in starts):
            return (split_at(position, blocks * outer), (0, 0))
        parts = sizes[index] // size if size and sizes[index] % size == 0 else 0
        if parts and outer % parts == 0 and -starts[0] % size == 0:  # one of the operands of a cat
            return (split_at(position, outer // parts), (0, 0))
        return (REPLICATED, (0, 0))
    access = accesses[0]
    if access is None or len(accesses) > 1 or outer > 1:
        return None
    if size % ways:
        return (REPLICATED, (0, 0))
    before = after = 0
    block, mine = size // ways, sizes[index] // ways
    for worker in range(ways):
        bounds = {name: (0, sizes[name]) for name in access.names}
        low, high = access.interval(bounds | {index: (worker * mine, (worker + 1) * mine)})
        before = max(before, worker * block - max(low, 0))
        after = max(after, min(high, size) - (worker + 1) * block)
    return (split_at(position), (before, after))
