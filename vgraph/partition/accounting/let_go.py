"""Let go: a plan whose copies, and what travels, are kept within a budget of memory.

Takes: an Account of a plan that keeps every copy, a budget of bytes. Gives: a ShardingPlan. Runs once per candidate.
Source: Tofu section 7.1 (memory of a worker); copies that are fetched again are rematerialised, as Chen et al. 2016 do.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from vgraph.ir.exchange import MOST_SLICES
from vgraph.ir.sharding import ShardingPlan
from vgraph.partition.accounting.account import Account
from vgraph.partition.accounting.footprint import COMPUTING, FETCHING, MOMENTS, Books, Copy, sliced


def keep_within(book: Account, budget: float) -> tuple[ShardingPlan, float]:
    """The plan with what brings the peak within budget, or as near as it can be; its peak then.

    Fetches travel in slices, which moves nothing more; then copies are let go and fetched again, first those that save
    most memory for longest; while they are fetched again, their pieces are held, too, and until then what they are of.
    """
    books = Books(book)
    peak = float((books.quiet() + books.moving()).max())
    if peak <= budget:
        return book.plan, peak
    found = _LetGo(books)
    if (need := found.run(budget)) > budget:
        found = _LetGo(books)  # no copy is let go in vain
        need = found.run(need)
    return replace(book.plan, fetched_again=frozenset(found.again), room=budget), need


class _LetGo:
    """Gaps between two readers of a copy, each of which it may be absent in; ``again``: those in which it is."""

    def __init__(self, books: Books) -> None:
        self.quiet, self.transit = books.quiet(), books.moving()
        self.again = set(books.book.plan.fetched_again)
        pairs = [(c, a, b) for c in books.copies for a, b in itertools.pairwise(c.readers) if b > a + 1]
        self.gaps: list[tuple[Copy, int]] = [(copy, end) for copy, _, end in pairs]
        self.starts = np.array([MOMENTS * start + COMPUTING + 1 for _, start, _ in pairs], dtype=np.int64)
        self.ends = np.array([MOMENTS * end + FETCHING for *_, end in pairs], dtype=np.int64)
        self.sizes = np.array([copy.bytes for copy, *_ in pairs])
        bases = [books.source_of(copy) for copy, *_ in pairs]
        self.bases = np.array([base for base, _ in bases], dtype=np.int64)
        self.base_sizes = np.array([size for _, size in bases])
        self.until = books.last[self.bases]
        self.in_transit = [books.in_transit(copy) for copy, *_ in pairs]
        self.left = np.ones(len(pairs), dtype=bool)

    def run(self, budget: float) -> float:
        """Lets copies go until slices suffice, or none is left that frees the fullest moment; the peak then."""
        while (held := self.quiet + self.transit / MOST_SLICES).max() > budget:
            at = int(np.argmax(held))
            saved = self.sizes - np.where(self.until < at, self.base_sizes, 0.0)
            spanning = self.left & (self.starts <= at) & (at < self.ends) & (saved > 0)
            if not spanning.any():
                break
            self._let_go(int(np.argmax(np.where(spanning, saved * (self.ends - self.starts), -1.0))))
        return float((self.quiet + sliced(self.quiet, self.transit, budget)).max())

    def _let_go(self, chosen: int) -> None:
        start, end, until = self.starts[chosen], self.ends[chosen], self.until[chosen]
        self.left[chosen] = False
        self.quiet[start:end] -= self.sizes[chosen]
        self.quiet[until + 1 : end + 1] += self.base_sizes[chosen]
        self.until[self.bases == self.bases[chosen]] = max(until, end)
        self.transit[end] += self.in_transit[chosen]
        copy, reader = self.gaps[chosen]
        self.again.add((reader, copy.value.id))
