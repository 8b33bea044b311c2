"""Waits: how long each rank waits for others, and for whom.

Takes: the seconds that collectives block. Gives: one warning that names a rank for which all others wait. Runs at
every collective; every 100 steps ranks tell one another.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from time import perf_counter

STEPS = 100  # between two times that ranks tell one another
SHARE = 0.25  # of the time: less is not worth a warning


class Waits:
    """The seconds that a process has been blocked in collectives: ``with waits:`` around each."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._entered = self._since = perf_counter()
        self._steps, self._has_warned = 0, False

    def __enter__(self) -> None:
        self._entered = perf_counter()

    def __exit__(self, *error: object) -> None:
        self.seconds += perf_counter() - self._entered

    def step(self, rank: int, gather: Callable[[int, str], list[int]]) -> None:
        """Counts a step, which all ranks make; rank 0 warns once, if there is somebody to warn of."""
        self._steps += 1
        if self._steps % STEPS:
            return
        waited = [one / 1e6 for one in gather(round(1e6 * self.seconds), "waits")]
        slow, share = find_slow(waited, perf_counter() - self._since)
        self.seconds, self._since = 0.0, perf_counter()
        if slow is not None and rank == 0 and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"rank {slow} is slower than the others, which waited for it {share:.0%} of the last {STEPS} steps; "
                "cure: look at its machine and link, or give it less of the graph: DistGraph(path, shares=...)",
                stacklevel=4,  # at the line that calls vgraph.distributed.mean
            )


def find_slow(waited: Sequence[float], elapsed: float) -> tuple[int | None, float]:
    """The rank that waits least, if all others wait much longer, and the share of the time that they wait for it."""
    order = sorted(range(len(waited)), key=waited.__getitem__)
    if len(waited) < 2 or elapsed <= 0:
        return None, 0.0
    share = (waited[order[1]] - waited[order[0]]) / elapsed
    return (order[0], share) if share > SHARE else (None, share)
