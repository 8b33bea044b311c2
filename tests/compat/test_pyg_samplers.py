"""PyG's loaders where neither pyg-lib nor torch-sparse is installed: what they draw, by hand and by counts."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from vgraph.compat.pyg import accelerated
from vgraph.errors import FeatureError, FunctionError, GraphError, NameLookupError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG's import uses what torch has deprecated
    pytest.importorskip("torch_geometric")
    import torch_geometric.typing as flags
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.loader import HGTLoader, LinkNeighborLoader, NeighborLoader
    from torch_geometric.sampler import BidirectionalNeighborSampler, NeighborSampler, NodeSamplerInput

pytestmark = pytest.mark.skipif(
    flags.WITH_PYG_LIB or flags.WITH_TORCH_SPARSE, reason="a sampler that PyG calls is installed"
)
N, E = 40, 300


@pytest.fixture(autouse=True)
def on(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every sampler is accelerated, but in tests of the switch."""
    if request.node.name in ("test_the_switch", "test_a_loader_of_budgets_stays_accelerated"):
        yield
    else:
        with accelerated():
            yield


def given(**more: Tensor) -> Data:
    x = torch.arange(N)[:, None].float()
    return Data(x=x, edge_index=torch.randint(0, N, (2, E)), edge_attr=torch.arange(E), **more)


def star(leaves: int, **more: Tensor) -> Data:
    """All edges lead to node 0."""
    ids = torch.stack([torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.int64)])
    return Data(edge_index=ids, num_nodes=leaves + 1, **more)


def typed() -> HeteroData:
    data = HeteroData()
    data["author"].x, data["paper"].x = torch.arange(20.0)[:, None], torch.arange(30.0)[:, None]
    for kind, (sources, destinations) in {
        ("author", "writes", "paper"): (20, 30),
        ("paper", "cites", "paper"): (30, 30),
        ("paper", "written_by", "author"): (30, 20),
    }.items():
        ends = [torch.randint(0, sources, (120,)), torch.randint(0, destinations, (120,))]
        data[kind].edge_index = torch.stack(ends)
    return data


def drawn_once(data: Data, trials: int, fanout: int, **options: Any) -> Counter[int]:
    """How often each in-neighbor of node 0 is drawn; none twice in one trial, unless it may be."""
    found: Counter[int] = Counter()
    seeds = torch.zeros(trials, dtype=torch.int64)
    batch = next(iter(NeighborLoader(data, [fanout], seeds, batch_size=trials, disjoint=True, **options)))
    sources, destinations = batch.edge_index
    pairs = list(zip(destinations.tolist(), batch.n_id[sources].tolist(), strict=True))
    assert options.get("replace") or len(set(pairs)) == len(pairs)
    for _, source in pairs:
        found[source] += 1
    return found


def test_the_switch() -> None:
    """Where it is off PyG refuses as it did; nothing else of the process changes where it is on."""
    data = given()
    with pytest.warns(UserWarning, match="without a 'pyg-lib'"):
        loader = NeighborLoader(data, [2], batch_size=N)
    with pytest.raises(ImportError, match="requires either"):
        next(iter(loader))
    with accelerated():
        assert next(iter(loader)).num_edges > 0
        assert not flags.WITH_PYG_LIB and not flags.WITH_WEIGHTED_NEIGHBOR_SAMPLE
        assert not hasattr(torch.ops.pyg, "neighbor_sample")
        kept = copy.deepcopy(loader)
    for other in (loader, kept):
        with pytest.raises(ImportError, match="requires either"):
            next(iter(other))
    assert vgraph.accelerate(loader) is loader
    assert next(iter(loader)).num_edges > 0
    sent = pickle.loads(pickle.dumps(loader.node_sampler))
    assert sent.sample_from_nodes(NodeSamplerInput(None, torch.arange(N))).row.numel() > 0
    with pytest.raises(FunctionError, match="neither a module nor a loader"):
        vgraph.accelerate([1, 2])


def test_all_neighbors_of_two_hops() -> None:
    data, seeds = given(), torch.tensor([3, 11, 7])
    batch = next(iter(NeighborLoader(data, [-1, -1], seeds, batch_size=3)))
    assert batch.batch_size == 3 and torch.equal(batch.input_id, torch.arange(3))
    assert torch.equal(batch.n_id[:3], seeds) and len(batch.n_id.unique()) == len(batch.n_id)
    sources, destinations = data.edge_index
    first = torch.isin(destinations, seeds)
    found = torch.cat([seeds, sources[first]]).unique()
    assert set(batch.e_id.tolist()) == set(torch.isin(destinations, found).nonzero().view(-1).tolist())
    assert len(batch.e_id) == len(batch.e_id.unique())
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    assert torch.equal(batch.x, data.x[batch.n_id]) and torch.equal(batch.edge_attr, batch.e_id)
    assert batch.num_sampled_nodes[:2] == [3, len(found) - 3] and sum(batch.num_sampled_nodes) == len(batch.n_id)
    assert batch.num_sampled_edges[0] == int(first.sum()) and sum(batch.num_sampled_edges) == len(batch.e_id)


def test_each_neighbor_is_as_likely() -> None:
    """Counts of 4 of 12 without replacement: each is drawn in a third of 6000 trials, +- 5 standard deviations."""
    counts = drawn_once(star(12), 6000, fanout=4)
    assert sum(counts.values()) == 4 * 6000
    assert all(abs(counts[leaf] - 2000) < 5 * (6000 * 1 / 3 * 2 / 3) ** 0.5 for leaf in range(1, 13))


def test_with_replacement() -> None:
    counts = drawn_once(star(3), 4000, fanout=6, replace=True)
    assert sum(counts.values()) == 6 * 4000
    assert all(abs(counts[leaf] - 8000) < 5 * (24000 * 1 / 3 * 2 / 3) ** 0.5 for leaf in (1, 2, 3))


def test_by_weights() -> None:
    weights = torch.tensor([0.0, 1.0, 3.0, 0.0])
    counts = drawn_once(star(4, weight=weights), 4000, fanout=1, weight_attr="weight")
    assert set(counts) == {2, 3} and sum(counts.values()) == 4000
    assert abs(counts[3] - 3000) < 5 * (4000 * 3 / 4 / 4) ** 0.5
    with pytest.raises(FeatureError, match="weights below 0"):
        drawn_once(star(4, weight=weights - 1), 1, fanout=1, weight_attr="weight")


def test_subgraphs_of_seeds_are_their_own() -> None:
    data, seeds = given(), torch.tensor([5, 5, 8])
    batch = next(iter(NeighborLoader(data, [3, 3], seeds, batch_size=3, disjoint=True)))
    assert torch.equal(batch.batch[:3], torch.arange(3))
    assert torch.equal(*batch.batch[batch.edge_index])
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    pairs = torch.stack([batch.batch, batch.n_id], 1)
    assert len(pairs.unique(dim=0)) == len(pairs)


def test_a_seed_that_is_given_twice() -> None:
    batch = next(iter(NeighborLoader(given(), [-1], torch.tensor([5, 9, 5]), batch_size=3)))
    assert batch.n_id[:3].tolist() == [5, 9, 5]
    ends = batch.edge_index[1]
    assert (ends == 0).sum() == (ends == 2).sum() > 0
    assert not (batch.edge_index[0] == 2).any()  # what it is a source of leads from the first


@pytest.mark.parametrize("kind", ["node", "edge"])
@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_by_time(kind: str, strategy: str) -> None:
    """Times of leaves are 1 to 12, shuffled; a seed at time 8 sees none behind that."""
    order = torch.randperm(12)
    times = torch.cat([torch.tensor([8]), order + 1]) if kind == "node" else order + 1
    options: dict[str, Any] = {"time_attr": "time", "temporal_strategy": strategy}
    options["input_time"] = torch.full((500,), 8)
    counts = drawn_once(star(12, time=times), 500, fanout=3, **options)
    seen = {int(order[leaf - 1]) + 1 for leaf in counts}
    assert sum(counts.values()) == 1500
    assert seen == ({6, 7, 8} if strategy == "last" else set(range(1, 9)))


def test_what_times_ask_for() -> None:
    data = star(12, time=torch.arange(12))
    with pytest.raises(FunctionError, match="seeds have none"):
        drawn_once(data, 1, fanout=3, time_attr="time")
    options: dict[str, Any] = {"time_attr": "time", "input_time": torch.tensor([3])}
    with pytest.raises(FunctionError, match="temporal_strategy is 'first'"):
        drawn_once(data, 1, fanout=3, temporal_strategy="first", **options)
    data.weight = torch.ones(12)
    with pytest.raises(FunctionError, match="not drawn by weights"):
        drawn_once(data, 1, fanout=3, temporal_strategy="last", weight_attr="weight", **options)
    data.time = data.time.flip(0)
    with pytest.raises(GraphError, match="not sorted"):
        drawn_once(data, 1, fanout=3, is_sorted=True, time_attr="time", input_time=torch.tensor([30]))


def test_induced_and_both_ways() -> None:
    data = given()
    batch = next(iter(NeighborLoader(data, [2, 2], torch.arange(4), batch_size=4, subgraph_type="induced")))
    inside = torch.isin(data.edge_index, batch.n_id).all(0)
    assert sorted(batch.e_id.tolist()) == inside.nonzero().view(-1).tolist()
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    both = next(iter(NeighborLoader(data, [2, 2], torch.arange(4), batch_size=4, subgraph_type="bidirectional")))
    pairs = set(map(tuple, both.edge_index.t().tolist()))
    assert pairs == {(b, a) for a, b in pairs}
    sampler = BidirectionalNeighborSampler(data, [-1])
    out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([3])))
    touching = (data.edge_index == 3).any(0)
    assert set(out.node.tolist()) == set(data.edge_index[:, touching].view(-1).tolist()) | {3}


@pytest.mark.parametrize("subgraph", ["directional", "induced"])
def test_types(subgraph: str) -> None:
    data, kinds = typed(), typed().edge_types
    fanouts = {kinds[0]: [4, 0], kinds[1]: [-1, 2], kinds[2]: [3, 3]}
    seeds = ("paper", torch.tensor([2, 17]))
    batch = next(iter(NeighborLoader(data, fanouts, seeds, batch_size=2, subgraph_type=subgraph)))
    assert torch.equal(batch["paper"].n_id[:2], seeds[1]) and batch["paper"].batch_size == 2
    for kind in kinds:
        ends = torch.stack(
            [batch[kind[0]].n_id[batch[kind].edge_index[0]], batch[kind[2]].n_id[batch[kind].edge_index[1]]]
        )
        assert torch.equal(ends, data[kind].edge_index[:, batch[kind].e_id])
    for name in ("author", "paper"):
        assert torch.equal(batch[name].x, data[name].x[batch[name].n_id])
    if subgraph == "directional":
        hops = {kind: batch[kind].num_sampled_edges for kind in kinds}
        assert hops[kinds[2]][0] == 0 and hops[kinds[2]][1] > 0  # no author is a seed
        assert hops[kinds[0]][0] > 0 and hops[kinds[0]][1] == 0
        assert hops[kinds[1]][0] == int(torch.isin(data[kinds[1]].edge_index[1], seeds[1]).sum())
        assert all(sum(batch[name].num_sampled_nodes) == len(batch[name].n_id) for name in ("author", "paper"))


def test_disjoint_types_and_times() -> None:
    data = typed()
    data["paper"].time, data["author"].time = torch.arange(30), torch.zeros(20, dtype=torch.int64)
    seeds = ("paper", torch.tensor([10, 25]))
    batch = next(iter(NeighborLoader(data, [-1, -1], seeds, batch_size=2, time_attr="time")))
    assert (batch["paper"].time <= torch.tensor([10, 25])[batch["paper"].batch]).all()
    for source, name, destination in data.edge_types:
        ends = batch[source, name, destination].edge_index
        assert torch.equal(batch[source].batch[ends[0]], batch[destination].batch[ends[1]])
    del data["author"].time
    with pytest.raises(NameLookupError, match="'author' have no time"):
        next(iter(NeighborLoader(data, [1], ("author", torch.tensor([1])), batch_size=1, time_attr="time")))


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_links(mode: str) -> None:
    data = given()
    links = data.edge_index[:, :10]
    loader = LinkNeighborLoader(data, [3, 3], edge_label_index=links, neg_sampling=mode, batch_size=5)
    for i, batch in enumerate(loader):
        wanted = links[:, 5 * i : 5 * i + 5]
        if mode == "binary":
            assert batch.edge_label.tolist() == [1.0] * 5 + [0.0] * 5
            assert torch.equal(batch.n_id[batch.edge_label_index][:, :5], wanted)
        else:
            assert torch.equal(torch.stack([batch.n_id[batch.src_index], batch.n_id[batch.dst_pos_index]]), wanted)
            assert batch.dst_neg_index.shape == (5,)
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])


def test_hgt() -> None:
    """So many of each type a hop, each once, and all edges among them; what many edges lead to comes first."""
    data, seeds = typed(), ("paper", torch.tensor([4, 9]))
    batch = next(iter(HGTLoader(data, {"paper": [3, 2], "author": [4, 2]}, seeds, batch_size=2)))
    assert len(batch["paper"].x) == 2 + 5 and len(batch["author"].x) == 6
    ids = {name: batch[name].x.view(-1).long() for name in ("author", "paper")}
    assert torch.equal(ids["paper"][:2], seeds[1])
    for kind in data.edge_types:
        sources, destinations = data[kind].edge_index
        wanted = torch.isin(sources, ids[kind[0]]) & torch.isin(destinations, ids[kind[2]])
        rows, columns = batch[kind].edge_index
        pairs = Counter(zip(ids[kind[0]][rows].tolist(), ids[kind[2]][columns].tolist(), strict=True))
        assert pairs == Counter(map(tuple, data[kind].edge_index[:, wanted].t().tolist()))
    lone = HeteroData()
    lone["a"].x, lone["b"].x = torch.zeros(3, 1), torch.arange(2.0)[:, None]
    lone["b", "to", "a"].edge_index = torch.tensor([[0, 0, 0, 1], [0, 1, 2, 2]])  # shares 1 + 1 + 1/2, and 1/2
    loader = HGTLoader(lone, {"a": [1], "b": [1]}, ("a", torch.arange(3)), batch_size=3)
    first = sum(int(next(iter(loader))["b"].x[0]) == 0 for _ in range(300))
    assert abs(first - 300 * 25 / 26) < 20


def _all_of(loader: NeighborLoader) -> list[list[int]]:
    return [batch.e_id.tolist() for batch in loader]


def test_seeds_repeat_and_workers_differ() -> None:
    data = given()
    loader = NeighborLoader(data, [2, 2], batch_size=10)
    runs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        runs.append(_all_of(loader))
    assert runs[0] == runs[1] != runs[2]
    same = star(40)
    loader = NeighborLoader(same, [5], torch.zeros(4, dtype=torch.int64), batch_size=1, num_workers=2)
    drawn = _all_of(loader)
    assert len(set(map(tuple, drawn))) == 4


def test_new_processes() -> None:
    """Workers that are no forks have a PyG of their own; samplers that are sent there are accelerated in it."""
    loader = NeighborLoader(given(), [-1], batch_size=N, num_workers=1, multiprocessing_context="spawn")
    assert sorted(_all_of(loader)[0]) == list(range(E))


@pytest.mark.parametrize(
    "change",
    [lambda sampler: sampler.row.fill_(N), lambda sampler: sampler.colptr.add_(1)],
    ids=["a source that is no node", "lists that do not fit"],
)
def test_graphs_that_are_wrong(change: Callable[[NeighborSampler], object]) -> None:
    sampler = NeighborSampler(given(), [2, 2])
    change(sampler)
    with pytest.raises(GraphError):
        sampler.sample_from_nodes(NodeSamplerInput(None, torch.arange(N)))


def test_seeds_out_of_range() -> None:
    sampler = NeighborSampler(given(), [2])
    for seed in (-1, N):
        with pytest.raises(GraphError, match="below 40, how many nodes"):
            sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([seed])))


def test_a_loader_of_budgets_stays_accelerated() -> None:
    """PyG asks for torch-sparse where it is made, and would not say what is missing later on."""
    data = typed()
    with accelerated():
        loader = HGTLoader(data, [3, 2], ("paper", torch.arange(4)), batch_size=2)
    assert len(list(loader)) == 2
