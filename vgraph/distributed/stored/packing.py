"""Packing: which parts a rank takes; parts whose numbers follow one another, so that neighbours stay together.

Takes: what every part holds, how much every rank may have of it. Gives: bounds of parts. Runs once per process.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vgraph.distributed.stored.manifest import Manifest
from vgraph.errors import GraphError

HALVINGS = 60  # of what the fullest rank may hold


def pack_parts(manifest: Manifest, num_ranks: int, shares: Sequence[float] | None = None) -> list[int]:
    """Rank r takes the parts from the r-th bound up to the next: num_ranks + 1 of them, each rank at least one part.

    The fullest rank holds as little as can be of whatever it has most of (nodes, edges, training nodes and whatever
    was balanced). ``shares``: how much each rank is to have of all, for machines that are not equal.

    Raises:
        GraphError: there are more ranks than parts, or a share that is no positive number.
    """
    if not 1 <= num_ranks <= manifest.num_parts:
        fact = f"{manifest.num_parts} parts cannot be shared out among {num_ranks} ranks"
        raise GraphError(fact, cure="partition the graph into more parts, or start fewer processes")
    wanted = np.ones(num_ranks) if shares is None else np.array(shares, np.float64)
    if len(wanted) != num_ranks or not (np.isfinite(wanted) & (wanted > 0)).all():
        raise GraphError(f"shares of {num_ranks} ranks are {wanted.tolist()}", cure="give each rank a positive number")
    loads = np.array([column for column in manifest.loads.values() if any(column)], np.float64).T
    loads = loads / loads.sum(0) if loads.size else np.ones((manifest.num_parts, 1))
    return _fewest_in_the_fullest(loads, wanted / wanted.sum())


def _fewest_in_the_fullest(loads: NDArray[np.float64], shares: NDArray[np.float64]) -> list[int]:
    """``loads`` (parts, constraints) and ``shares`` (ranks,) each sum to 1."""
    low, high = 0.0, 1.0 / float(shares.min())  # so full, any rank could hold everything
    best = _filled(loads, shares, 2 * high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        found = _filled(loads, shares, middle)
        if found is None:
            low = middle
        else:
            best, high = found, middle
    assert best is not None
    return best


def _filled(loads: NDArray[np.float64], shares: NDArray[np.float64], most: float) -> list[int] | None:
    """Bounds where no rank has more than ``most`` times its share; None: there are none."""
    bounds, part, num_parts = [0], 0, len(loads)
    sums = np.concatenate([np.zeros((1, loads.shape[1])), np.cumsum(loads, 0)])
    for rank, share in enumerate(shares):
        last = num_parts - (len(shares) - rank - 1)  # those after it need a part each
        fits = ((sums[part + 1 : last + 1] - sums[part]) <= most * share + 1e-12).all(1)
        taken = int(fits.cumprod().sum())
        if not taken:
            return None
        part += taken
        bounds.append(part)
    return bounds if part == num_parts else None
