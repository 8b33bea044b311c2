"""Hints: dims that a number of workers does not divide, and what makes a worker hold much more than its share.

Takes: an Account, the whole step's and a worker's Footprint. Gives: lines of text. Runs once per plan.
Source: none (what a user can do about a plan).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vgraph.ir.program import Op, op_name
from vgraph.ir.sharding import Strategy
from vgraph.ir.step import TrainingStep
from vgraph.ir.tdl.table import is_absent
from vgraph.partition.accounting.account import Account
from vgraph.partition.accounting.footprint import Footprint, whole_footprint
from vgraph.partition.search.search import Found
from vgraph.partition.search.strategies import Described, described, is_long
from vgraph.partition.search.strategies import strategies as possible

NEAR = 1.25  # fair shares of memory that need no reason
MUCH = 1.5  # those that are told unasked
_ENOUGH = 2**20  # bytes beyond them, from which on it is told unasked
MOST = 3  # lines of a kind


def hints(book: Account, whole: Footprint, worker: Footprint) -> Iterator[str]:
    """What a user may change so that less moves or less is held."""
    count = book.plan.num_workers
    if count == 1:
        return
    yield from _odd_dims(book, count)
    share = whole.total / count
    if worker.total > NEAR * share:
        yield f"a worker holds {worker.total / share:.2f} fair shares; memory_limit= asks for a plan that holds less"
        yield from undivided(book, share)


def holds_much(step: TrainingStep, found: Found) -> bool:
    """Whether a worker of this plan holds so much more than its part that a user is told without asking."""
    count = found.plan.num_workers
    if count == 1 or found.need < _ENOUGH:  # most plans are of no such size
        return False
    share = whole_footprint(step).total / count
    return found.need > MUCH * share + _ENOUGH


def _odd_dims(book: Account, count: int) -> Iterator[str]:
    """The largest dims of large matrices that could be cut if they were a little longer."""
    step = book.step
    largest = max((value.row_bytes for value in step.parameters.values()), default=0)
    found = [
        (value.row_bytes, name, size)
        for name, value in step.parameters.items()
        if len(value.shape) > 1 and value.row_bytes > largest // 16
        for size in [max(value.row_shape)]
        if size > count and size % count and not is_long(size, count)
    ]
    for _, name, size in sorted(found, reverse=True)[:MOST]:
        longer = -(-size // count) * count
        yield f"{name}: {count} workers do not divide {size}; pad it to {longer}, and it can be cut there"


def undivided(book: Account, share: float, most: int = MOST) -> Iterator[str]:
    """Lines for the ops that hold most beyond a worker's part, and why they are not divided; ``most`` of them."""
    beyond = dict[tuple[str, str, str], float]()
    rows = zip(book.step.ops, book.step.notes, book.plan.strategies, book.rows, strict=True)
    for op, note, strategies, row in rows:
        made = [pair for pair in zip(op.results, row.made, strict=True) if not is_absent(pair[0])]
        read = [pair for pair in zip(op.operands(), row.needed, strict=True) if pair[1] != book.homes[pair[0].id]]
        count = book.plan.num_workers
        extra = sum(
            book.read_bytes(value, placements) - value.row_bytes / count for value, placements in (*made, *read)
        )
        if extra > 0.05 * share:
            key = (op_name(op.target), note.module or "the model", _why_so_much(op, strategies, count))
            beyond[key] = max(beyond.get(key, 0.0), extra)
    for (name, module, why), extra in sorted(beyond.items(), key=lambda item: -item[1])[:most]:
        yield f"  {name} in {module} takes {extra / share:.2f} shares too many: {why}"


def _why_so_much(op: Op, strategies: Sequence[Strategy], count: int) -> str:
    known = described(op)
    if known is None:
        return "no index notation describes it, vgraph.tdl takes one"
    if any(strategy.index == "" for strategy in strategies):
        if any(strategy.index not in ("", "+") for strategy in possible(op, count)):
            return "it could be divided, but that moves more; a larger batch or wider layers make it worth while"
        return _why_uncut(known, count)
    return "it is divided, but each worker reads or makes more than its part of a tensor, less so of wider layers"


def _why_uncut(known: Described, count: int) -> str:
    """Of an op that no dim of can be cut."""
    sizes = [size for index, size in known.sizes.items() if index not in known.notation.whole and size > 1]
    if odd := sorted({size for size in sizes if size % count}):
        lengths = " or ".join(map(str, odd))
        return f"{count} workers do not divide a dim of length {lengths}, make one a multiple of {count}"
    return "each entry of its results depends on all of every dim of more than one"
