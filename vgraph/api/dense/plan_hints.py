"""Hints: dims that a number of workers does not divide, and what makes a worker hold much more than its share.

Takes: an Account, the whole step's and a worker's Footprint. Gives: lines of text. Runs once per plan.
Source: none (what a user can do about a plan).
"""

from __future__ import annotations

from collections.abc import Iterator

from vgraph.ir.program import op_name
from vgraph.ir.tdl.table import describe, is_absent
from vgraph.partition.accounting.account import Account
from vgraph.partition.accounting.footprint import Footprint

MUCH = 1.5  # fair shares of memory that are told
MOST = 3  # lines of a kind


def hints(book: Account, whole: Footprint, worker: Footprint) -> Iterator[str]:
    """What a user may change so that less moves or less is held."""
    count = book.plan.num_workers
    if count == 1:
        return
    yield from _odd_dims(book, count)
    share = whole.total / count
    if worker.total > MUCH * share:
        yield f"a worker holds {worker.total / share:.2f} fair shares; memory_limit= asks for a plan that holds less"
        yield from _undivided(book, share)


def _odd_dims(book: Account, count: int) -> Iterator[str]:
    """The largest dims of large matrices that could be cut if they were a little longer."""
    step = book.step
    largest = max((value.row_bytes for value in step.parameters.values()), default=0)
    found = [
        (value.row_bytes, name, size)
        for name, value in step.parameters.items()
        if len(value.shape) > 1 and value.row_bytes > largest // 16
        for size in [max(value.row_shape)]
        if size > count and size % count
    ]
    for _, name, size in sorted(found, reverse=True)[:MOST]:
        longer = -(-size // count) * count
        yield f"{name}: {count} workers do not divide {size}; pad it to {longer}, and it can be cut there"


def _undivided(book: Account, share: float) -> Iterator[str]:
    """The ops whose results take most beyond a worker's part, and why they are not divided."""
    count, beyond = book.plan.num_workers, dict[tuple[str, str, bool], float]()
    for op, note in zip(book.step.ops, book.step.notes, strict=True):
        results = [value for value in op.results if not is_absent(value)]
        extra = sum(book.held_bytes(value) - value.row_bytes / count for value in results)
        if extra > 0.05 * share:
            key = (op_name(op.target), note.module or "the model", describe(op) is not None)
            beyond[key] = max(beyond.get(key, 0.0), extra)
    for (name, module, is_described), extra in sorted(beyond.items(), key=lambda item: -item[1])[:MOST]:
        cut = f"no dim of it is cut, make one a multiple of {count}"
        why = cut if is_described else "no index notation describes it, vgraph.tdl takes one"
        yield f"  {name} in {module} takes {extra / share:.2f} shares too many: {why}"
