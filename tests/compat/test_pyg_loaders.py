"""PyG's loaders that work on a ``SparseTensor`` or ask for METIS, where no package of theirs is installed."""

from __future__ import annotations

import importlib.util
import warnings
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from vgraph.compat.pyg import accelerated
from vgraph.compat.pyg.adjacency import Adjacency
from vgraph.errors import GraphError, VGraphError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG's import uses what torch has deprecated
    pytest.importorskip("torch_geometric")
    import torch_geometric.typing as flags
    from torch_geometric import loader as loaders
    from torch_geometric.data import Data

pytestmark = pytest.mark.skipif(
    flags.WITH_PYG_LIB or flags.WITH_TORCH_SPARSE, reason="what PyG's loaders call is installed"
)
N, E = 40, 300
MADE: dict[str, Callable[[Data], torch.utils.data.DataLoader]] = {
    "nodes": lambda data: loaders.GraphSAINTNodeSampler(data, 12, num_steps=3, log=False),
    "edges": lambda data: loaders.GraphSAINTEdgeSampler(data, 6, num_steps=3, log=False),
    "walks": lambda data: loaders.GraphSAINTRandomWalkSampler(data, 4, 3, num_steps=3, sample_coverage=5, log=False),
    "ego": lambda data: loaders.ShaDowKHopSampler(data, 2, 3, batch_size=8),
    "all of an ego": lambda data: loaders.ShaDowKHopSampler(data, 1, 50, batch_size=8, num_workers=1),
    "spawned": lambda data: loaders.ShaDowKHopSampler(
        data, 1, 2, batch_size=20, num_workers=1, multiprocessing_context="spawn"
    ),
    "clusters": lambda data: loaders.ClusterLoader(loaders.ClusterData(data, 5, log=False), batch_size=2),
}


def given() -> Data:
    pairs = torch.randperm(N * N)[:E]  # no edge twice: which of two it was is for nobody to see
    edge_index = torch.stack([pairs // N, pairs % N])
    return Data(x=torch.randn(N, 2), n_id=torch.arange(N), e_id=torch.arange(E), edge_index=edge_index)


@pytest.mark.parametrize("name", MADE)
def test_subgraphs_have_all_edges_among_their_nodes(name: str) -> None:
    if name == "clusters":
        pytest.importorskip("pymetis")
    data = given()
    with accelerated():
        loader = MADE[name](data)
    batches = list(loader)  # what was made accelerated stays so
    assert batches
    for batch in batches:
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert torch.equal(batch.x, data.x[batch.n_id])
        egos = batch.batch if "batch" in batch else torch.zeros(batch.num_nodes, dtype=torch.int64)
        wanted: Counter[int] = Counter()
        for ego in egos.unique():
            inside = torch.isin(data.edge_index, batch.n_id[egos == ego]).all(0)
            wanted.update(inside.nonzero().view(-1).tolist())
        assert Counter(batch.e_id.tolist()) == wanted
        assert torch.equal(*egos[batch.edge_index])
    if name == "walks":
        assert batches[0].node_norm.shape == (batches[0].num_nodes,)
        assert batches[0].edge_norm.shape == (batches[0].num_edges,)
    if name == "clusters":
        assert torch.cat([batch.n_id for batch in batches]).sort()[0].tolist() == list(range(N))


def test_what_an_ego_has() -> None:
    data = given()
    with accelerated():
        whole = next(iter(loaders.ShaDowKHopSampler(data, 1, N, node_idx=torch.tensor([7, 3, 7]), batch_size=3)))
        some = next(iter(loaders.ShaDowKHopSampler(data, 1, 2, node_idx=torch.tensor([7] * 500), batch_size=500)))
    assert whole.n_id[whole.root_n_id].tolist() == [7, 3, 7]
    for ego, root in enumerate([7, 3, 7]):
        mine = whole.n_id[whole.ptr[ego] : whole.ptr[ego + 1]].tolist()
        sources, destinations = data.edge_index
        assert mine == sorted({root, *sources[destinations == root].tolist()})
    counts = Counter(some.n_id.tolist())
    others = set(data.edge_index[0][data.edge_index[1] == 7].tolist()) - {7}
    assert counts[7] == 500 and set(counts) == {7, *others}
    share = 2 / int((data.edge_index[1] == 7).sum())
    assert all(abs(counts[other] - 500 * share) < 5 * (500 * share * (1 - share)) ** 0.5 for other in others)


@pytest.mark.parametrize("returns_ids", [True, False])
def test_bipartite_hops(returns_ids: bool) -> None:
    """Targets come first among the sources; the first hop is the last in the list."""
    data = given()
    with accelerated():
        loader = loaders.NeighborSampler(data.edge_index, [-1, 2], batch_size=5, return_e_id=returns_ids)
    for size, n_id, hops in loader:
        assert size == 5 and len(n_id.unique()) == len(n_id)
        assert hops[-1].size[1] == 5 and hops[0].size == (len(n_id), hops[-1].size[0])
        for edge_index, e_id, (num_sources, num_targets) in hops:
            ends = n_id[edge_index]
            assert int(edge_index[0].max()) < num_sources and int(edge_index[1].max()) < num_targets
            if returns_ids:
                assert torch.equal(ends, data.edge_index[:, e_id])
        whole = torch.isin(data.edge_index[1], n_id[:5])
        assert hops[-1].edge_index.shape[1] == int(whole.sum())
        assert hops[0].edge_index[1].bincount().max() <= 2


def test_walks_are_even() -> None:
    """From node 0 to 1, 2 or 3 and back; node 4 has no neighbor and is stayed at."""
    row, col = torch.tensor([0, 0, 0, 1, 2, 3]), torch.tensor([1, 2, 3, 0, 0, 0])
    walks = Adjacency(row, col, None, (5, 5)).random_walk(torch.tensor([0] * 3000 + [4]), 2)
    assert walks[:-1, ::2].eq(0).all() and walks[-1].tolist() == [4, 4, 4]
    counts = walks[:-1, 1].bincount(minlength=5)
    assert counts[0] == counts[4] == 0
    assert all(abs(int(count) - 1000) < 5 * (3000 * 2 / 9) ** 0.5 for count in counts[1:4])


def test_clusters_are_those_of_the_graph() -> None:
    """Two cliques with one edge between them."""
    pytest.importorskip("pymetis")
    cliques = torch.block_diag(torch.ones(8, 8), torch.ones(8, 8)) - torch.eye(16)
    cliques[0, 8] = cliques[8, 0] = 1
    order = torch.randperm(16)
    data = Data(n_id=torch.arange(16), edge_index=order[cliques.nonzero().t()], num_nodes=16)
    with accelerated():
        for recursive in (False, True):
            parts = loaders.ClusterData(data, 2, recursive, log=False)
            assert {frozenset(part.n_id.tolist()) for part in (parts[0], parts[1])} == {
                frozenset(order[:8].tolist()), frozenset(order[8:].tolist())
            }  # fmt: skip


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = given()
    with pytest.raises(ImportError, match="requires 'torch-sparse'"):
        loaders.ShaDowKHopSampler(data, 1, 2)
    with accelerated():
        with pytest.raises(GraphError, match="edges end at node 39 of 20"):
            loaders.NeighborSampler(data.edge_index, [2], num_nodes=20)
        monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
        with pytest.raises(VGraphError, match="pymetis"):
            loaders.ClusterData(data, 2, log=False)


def test_a_matrix_and_its_transpose() -> None:
    row, col = torch.tensor([2, 0, 1, 0]), torch.tensor([1, 2, 0, 0])
    matrix = Adjacency(row, col, torch.arange(4), (3, 4))

    def entries(one: Adjacency) -> list[list[int]]:
        return [part.tolist() for part in one.coo() if isinstance(part, Tensor)]

    assert entries(matrix) == [[0, 0, 1, 2], [0, 2, 0, 1], [3, 1, 2, 0]]
    assert entries(matrix.t()) == [[0, 0, 1, 2], [0, 1, 2, 0], [3, 2, 0, 1]]
    assert matrix.t().sparse_sizes() == (4, 3) and matrix.t().sparse_size(0) == 4
    assert matrix.storage.rowcount().tolist() == [2, 1, 1] and matrix.storage.colcount().tolist() == [2, 1, 1, 0]
