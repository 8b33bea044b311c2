"""Parts shared out among ranks: consecutive ones, each rank at least one, the fullest as empty as can be."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vgraph
import vgraph.distributed as vd
from vgraph.distributed.stored.manifest import Manifest
from vgraph.distributed.stored.packing import pack_parts
from vgraph.errors import GraphError


def manifest_of(loads: dict[str, tuple[int, ...]]) -> Manifest:
    empty = Manifest(
        num_parts=1, method="hash", seed=0, balance=(), halo_rows=0, loads={}, nodes={}, edges={}, files={}
    )
    return replace(empty, num_parts=len(next(iter(loads.values()))), loads=loads)


def fullest(loads: dict[str, tuple[int, ...]], bounds: list[int], shares: list[float]) -> float:
    pairs = list(pairwise(bounds))
    return max(
        sum(column[a:b]) / max(1, sum(column)) / share * sum(shares)
        for column in loads.values()
        for (a, b), share in zip(pairs, shares, strict=True)
    )


numbers = st.integers(0, 20)


@settings(max_examples=60)
@given(st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=8), st.integers(1, 5), st.integers(0, 5))
def test_no_other_bounds_are_better(rows: list[tuple[int, int, int]], num_ranks: int, skew: int) -> None:
    num_ranks = min(num_ranks, len(rows))
    loads = dict(zip(("nodes", "edges", "train"), zip(*rows, strict=True), strict=True))
    shares = [1.0 + skew * (rank == 0) for rank in range(num_ranks)]
    bounds = pack_parts(manifest_of(loads), num_ranks, shares)
    assert bounds[0] == 0 and bounds[-1] == len(rows) and len(bounds) == num_ranks + 1
    assert all(a < b for a, b in pairwise(bounds))
    others = [[0, *inner, len(rows)] for inner in combinations(range(1, len(rows)), num_ranks - 1)]
    assert fullest(loads, bounds, shares) <= min(fullest(loads, other, shares) for other in others) + 1e-9


def test_any_number_of_ranks(tmp_path: Path) -> None:
    g = vgraph.rand_graph(200, 1500)
    vd.partition_graph(g, tmp_path / "g.vg", 16, "ldg")
    manifest = vd.PartitionedGraph.open(tmp_path / "g.vg").manifest
    for num_ranks in (1, 3, 16):
        bounds = pack_parts(manifest, num_ranks)
        nodes = [manifest.nodes["_N"].bounds[b] for b in bounds]
        assert max(b - a for a, b in pairwise(nodes)) <= 1.5 * 200 / num_ranks


def test_bad_ranks_and_shares() -> None:
    manifest = manifest_of({"nodes": (1, 2)})
    with pytest.raises(GraphError, match=r"2 parts cannot be shared out among 3 ranks"):
        pack_parts(manifest, 3)
    with pytest.raises(GraphError, match=r"shares of 2 ranks are \[1.0, 0.0\]"):
        pack_parts(manifest, 2, [1.0, 0.0])
