"""The cost model: bytes as whole numbers, equal to what is counted; papers100M on paper as the design has it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import vgraph
import vgraph.distributed as vd
from tests.distributed.test_streaming import community_graph
from vgraph.distributed.plan import hashed_halo_rows
from vgraph.errors import ArgumentError, GraphError

PAPERS = (111_059_956, 2 * 1_615_685_872)


ON_PAPER = [(128, 867_656, 22.5e6, 23.0), (1024, 108_457, 3.11e6, 3.18)]


@pytest.mark.parametrize(("ranks", "own", "halo", "gigabytes"), ON_PAPER)
def test_papers_on_paper(ranks: int, own: int, halo: float, gigabytes: float) -> None:
    plan = vd.plan_on_paper(*PAPERS, ranks)
    assert max(plan.nodes) == own and sum(plan.nodes) == PAPERS[0] and sum(plan.edges) == PAPERS[1]
    assert plan.halo_rows[0] == pytest.approx(halo, rel=0.005)
    assert plan.halo_rows[0] * 256 * 4 / 1e9 == pytest.approx(gigabytes, rel=0.005)


def counted(g: vgraph.Graph, stored: vd.PartitionedGraph, bounds: list[int]) -> list[int]:
    """Halo rows of ranks that take the parts between bounds, one by one."""
    new_ids = stored.new_ids("_N").long()
    ranks = torch.bucketize(stored.owners("_N", new_ids), torch.tensor(bounds[1:]), right=True)
    src, dst = g.edges()
    read = {(int(ranks[v]), int(u)) for u, v in zip(src.tolist(), dst.tolist(), strict=True) if ranks[u] != ranks[v]}
    return [sum(rank == r for rank, _ in read) for r in range(len(bounds) - 1)]


def test_halo_rows_of_a_partition(tmp_path: Path) -> None:
    g = community_graph(400, 3000, 8)
    vd.partition_graph(g, tmp_path / "g.vg", 8, "ldg")
    stored = vd.PartitionedGraph.open(tmp_path / "g.vg")
    plan = vd.plan_graph(stored, 8)
    assert not plan.is_bound and plan.halo_rows == counted(g, stored, list(range(9)))
    assert sum(plan.halo_rows) == stored.manifest.halo_rows
    for ranks in (1, 2, 3, 5):
        plan = vd.plan_graph(stored, ranks)
        firsts = [0, *torch.tensor(plan.nodes).cumsum(0).tolist()]
        bounds = torch.searchsorted(stored.bounds("_N"), torch.tensor(firsts)).tolist()
        exact = counted(g, stored, bounds)
        assert plan.is_bound and all(a >= b for a, b in zip(plan.halo_rows, exact, strict=True))
        assert ranks > 1 or plan.halo_rows == [0]


def test_hashed_rows_are_expected(tmp_path: Path) -> None:
    g = vgraph.rand_graph(2000, 20_000)
    summary = vd.partition_graph(g, tmp_path / "g.vg", 16, "hash")
    assert 0.9 <= summary.halo_rows / hashed_halo_rows(2000, 20_000, 16) <= 1.01
    assert hashed_halo_rows(0, 0, 4) == 0 and hashed_halo_rows(10, 50, 1) == 0


def test_unequal_parts_are_told(tmp_path: Path) -> None:
    src = torch.cat([torch.arange(200), torch.zeros(600, dtype=torch.int64)])
    dst = torch.cat([torch.arange(200).roll(1), torch.randint(200, 206, (600,))])
    vd.partition_graph(vgraph.graph((src, dst)), tmp_path / "g.vg", 4, "hash")
    plan = vd.plan_graph(vd.PartitionedGraph.open(tmp_path / "g.vg"), 4)
    assert "edges" in plan.unequal and plan.unequal["edges"] > 1.2
    assert len(plan.memory(16)) == 4


def test_bad_plans(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="num_nodes=-1"):
        vd.plan_on_paper(-1, 0, 4)
    vd.partition_graph(vgraph.graph(([0], [1])), tmp_path / "g.vg", 2)
    with pytest.raises(GraphError, match=r"2 parts cannot be shared out among 3 ranks"):
        vd.plan_graph(vd.PartitionedGraph.open(tmp_path / "g.vg"), 3)
