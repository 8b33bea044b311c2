"""Sampled minibatches in one process: what they are of, their order, where a loader stands, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.distributed as vd
from tests.distributed.sampled_edges import edges_of, outputs_of, rows_of
from tests.distributed.sampled_graphs import SAMPLERS, graph_for, heterogeneous, homogeneous, seeds_for
from vgraph.distributed.sampled.permutation import permuted
from vgraph.distributed.sampled.seeds import share_out
from vgraph.errors import ArgumentError, CheckpointError, FeatureError, FunctionError, GraphError, NameLookupError
from vgraph.graphs.draw.random_numbers import keyed
from vgraph.nn import GATv2Conv, GraphConv, SAGEConv
from vgraph.runtime.distributed.peers import Machines
from vgraph.sampling import NeighborSampler, ShaDowKHopSampler
from vgraph.sampling.samplers import Want


def parted(g: vgraph.Graph, folder: Path, num_parts: int = 5) -> vd.DistGraph:
    vd.partition_graph(g, folder / "parts", num_parts=num_parts, method="hash")
    return vd.DistGraph(folder / "parts")


def names_of(g: vd.DistGraph) -> tuple[Any, Any]:
    def node(kind: str, ids: Tensor) -> Tensor:
        return g.orig_ids(ids, kind)

    def edge(kind: Any, ids: Tensor) -> Tensor:
        stored = g.whole.stored
        return torch.cat([stored.part(p).eid(kind).long() for p in range(stored.num_parts)])[ids]

    return node, edge


def new_seeds(g: vd.DistGraph, seeds: Any) -> Any:
    if isinstance(seeds, dict):
        return {kind: g.new_ids(ids, kind) for kind, ids in seeds.items()}
    return g.new_ids(seeds)


def keep_what_was_asked_for(made: Any, wants: list[Want]) -> None:
    """Minibatches of a whole graph have all of its features, to be gathered when they are read."""
    asked = {(id(want.frame), want.name) for want in wants}
    for part in made[2] if isinstance(made[2], list) else [made[2]]:
        for frames in (part.src_frames, part.dst_frames, part.edge_frames):
            for frame in frames.values():
                for name in [n for n in frame if n != "_ID" and (id(frame), n) not in asked]:
                    del frame[name]


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("name", list(SAMPLERS))
def test_minibatches_are_what_one_process_draws(name: str, prefetch: int, tmp_path: Path) -> None:
    whole = graph_for(name)
    g = parted(whole, tmp_path)
    loader = vd.DistDataLoader(
        g,
        new_seeds(g, seeds_for(name)),
        SAMPLERS[name](),
        batch_size=10,
        shuffle=True,
        seed=4,
        prefetch=prefetch,
        bulk=2,
    )
    node, edge = names_of(g)
    for epoch in range(2):
        for step, made in enumerate(loader):
            outputs = outputs_of(made, node)
            by_type = {kind: torch.tensor([i for k, i in outputs if k == kind]) for kind, _ in outputs}
            with keyed(loader.key_of(epoch, step)):
                sampler = SAMPLERS[name]()
                wanted = sampler.sample(whole, by_type if len(whole.ntypes) > 1 else by_type["_N"])
            keep_what_was_asked_for(wanted, sampler.wants(whole, wanted[2]))
            itself = (lambda _, ids: ids,) * 2
            assert edges_of(made, node, edge) == edges_of(wanted, *itself)
            rows, expected = rows_of(made, node, edge), rows_of(wanted, *itself)
            weights = {key: rows.pop(key) for key in list(rows) if key[3] == "_WEIGHT"}
            assert sum(float(sum(one.values())) for key, one in weights.items() if key[1] == "dst") == len(outputs)
            assert rows.keys() == expected.keys()
            for key, column in expected.items():
                assert all(torch.equal(rows[key][i], row) for i, row in column.items())


def test_epochs_go_through_all_seeds_in_another_order(tmp_path: Path) -> None:
    g = parted(homogeneous(), tmp_path)
    loader = vd.DistDataLoader(g, g.ndata["train"], NeighborSampler([2]), batch_size=8, shuffle=True)
    epochs = [torch.cat([g.orig_ids(ids) for _, ids, _ in loader]).tolist() for _ in range(2)]
    assert len(loader) == 7 and sorted(epochs[0]) == sorted(epochs[1]) == seeds_for("uniform").tolist()
    assert epochs[0] != epochs[1] and epochs[0] != sorted(epochs[0])
    plain = vd.DistDataLoader(g, g.ndata["train"], NeighborSampler([2]), batch_size=8, drop_last=True)
    ids = torch.cat([g.orig_ids(ids) for _, ids, _ in plain]).tolist()
    assert ids == sorted(epochs[0])[: len(ids)] and len(plain) == len(ids) // 8 == 6


@pytest.mark.parametrize("count", [1, 2, 3, 64, 1000])
def test_permutations(count: int) -> None:
    orders = [permuted(count, key, np.arange(count)) for key in range(3)]
    assert all(sorted(order.tolist()) == list(range(count)) for order in orders)
    assert permuted(count, 1, np.arange(count)[::2]).tolist() == orders[1][::2].tolist()
    assert count < 3 or orders[0].tolist() != orders[1].tolist()


def test_any_place_is_as_likely() -> None:
    count = np.zeros((10, 10))
    for key in range(4000):
        count[np.arange(10), permuted(10, key, np.arange(10))] += 1
    assert abs(count / 4000 - 0.1).max() < 5 * (0.1 * 0.9 / 4000) ** 0.5


def test_shares_stay_with_their_owners_but_for_what_is_too_much() -> None:
    machines = Machines(((0, 1), (2, 3), (4, 5)))
    owners = np.array([0] * 60 + [1] * 30 + [2] * 30)
    shares = share_out(owners, machines, np.arange(120))
    assert sorted(np.concatenate(shares).tolist()) == list(range(120))
    by_machine = [len(shares[2 * m]) + len(shares[2 * m + 1]) for m in range(3)]
    assert by_machine[0] == 42 and sorted(by_machine[1:]) == [39, 39]
    assert all((owners[share] == 0).all() for share in shares[:2]), "machine 0 has none of others"
    unequal = share_out(np.zeros(9, np.int64), Machines(((0,), (1, 2))), np.arange(9))
    assert [len(share) for share in unequal] == [4, 3, 2]


def test_resumes_where_it_stood(tmp_path: Path) -> None:
    g = parted(homogeneous(), tmp_path)

    def loader(**other: Any) -> vd.DistDataLoader:
        options: Any = {"batch_size": 7, "shuffle": True, "seed": 3} | other
        return vd.DistDataLoader(g, g.ndata["train"], NeighborSampler([2]), **options)

    whole, states = loader(), []
    seen = []
    for _ in range(2):
        for _, ids, _ in whole:
            seen.append(ids.tolist())
            states.append(whole.state_dict())
    for stop in (3, 6, 9):
        again = loader(bulk=3)
        again.load_state_dict(states[stop])
        found = [ids.tolist() for _ in range(2) for _, ids, _ in again]
        assert found[: len(seen) - stop - 1] == seen[stop + 1 :]
    left = loader()
    next(iter(left))
    assert [ids.tolist() for _, ids, _ in left] == seen[7:], "an epoch that was left early is over"
    for other, match in (({"batch_size": 8}, "batch_size 7"), ({"seed": 5}, "seed 3")):
        with pytest.raises(CheckpointError, match=match):
            loader(**other).load_state_dict(states[0])
    with pytest.raises(CheckpointError, match="format"):
        whole.load_state_dict({})
    with pytest.raises(CheckpointError, match="step 99"):
        whole.load_state_dict(states[0] | {"steps": 99})


def test_a_changed_graph_refuses_the_state(tmp_path: Path) -> None:
    g = parted(homogeneous(), tmp_path)
    state = vd.DistDataLoader(g, g.ndata["train"], NeighborSampler([2])).state_dict()
    fewer = g.ndata["train"].clone()
    fewer[fewer.nonzero()[0]] = False
    changed = homogeneous()
    changed.ndata["feat"] = changed.ndata["feat"] + 1
    other = parted(changed, tmp_path)
    for graph, ids in ((g, fewer), (other, other.ndata["train"])):
        with pytest.raises(CheckpointError, match="of another graph, or of other ids"):
            vd.DistDataLoader(graph, ids, NeighborSampler([2])).load_state_dict(state)


def test_refusals(tmp_path: Path) -> None:
    g = parted(homogeneous(), tmp_path)

    class Own(NeighborSampler):
        def sample_blocks(self, g: Any, seed_nodes: Any, exclude_eids: Any = None) -> Any:
            return super().sample_blocks(g, seed_nodes, exclude_eids)

    with pytest.raises(FunctionError, match="Own has its own sample_blocks"):
        vd.DistDataLoader(g, [0], Own([2]))
    with pytest.raises(FunctionError, match="SAINTSampler draws from a graph in memory"):
        vd.DistDataLoader(g, [0], vgraph.sampling.SAINTSampler("node", 3))
    with pytest.raises(ArgumentError, match="bulk=0"):
        vd.DistDataLoader(g, [0], NeighborSampler([2]), bulk=0)
    with pytest.raises(GraphError, match="given twice"):
        vd.DistDataLoader(g, [3, 1, 3], NeighborSampler([2]))
    with pytest.raises(GraphError, match="no rank was given an id"):
        vd.DistDataLoader(g, [], NeighborSampler([2]))
    with pytest.raises(GraphError, match="a mask has 3 entries"):
        vd.DistDataLoader(g, torch.tensor([True, False, True]), NeighborSampler([2]))
    with pytest.raises(ArgumentError, match="batch_size=0"):
        vd.DistDataLoader(g, [0], NeighborSampler([2]), batch_size=0)
    with pytest.raises(ArgumentError, match=r"seed=0\.5"):
        vd.DistDataLoader(g, [0], NeighborSampler([2]), seed=0.5)
    with pytest.raises(NameLookupError, match="no feature 'none'"):
        list(vd.DistDataLoader(g, [0], NeighborSampler([2], prefetch_node_feats=["none"])))
    with pytest.raises(FeatureError, match="one number an edge"):
        changed = homogeneous()
        changed.edata["w"] = torch.ones(900, 2)
        other = parted(changed, tmp_path)
        list(vd.DistDataLoader(other, [0], NeighborSampler([2], prob="w")))


def test_a_split_of_nodes_asks_for_their_type(tmp_path: Path) -> None:
    g = parted(heterogeneous(), tmp_path)
    with pytest.raises(GraphError, match="type"):
        vd.node_split([0], g)
    for ntype in g.ntypes:
        mask = torch.zeros(g.num_nodes(ntype), dtype=torch.bool)
        mask[-1] = True
        assert vd.node_split(mask, g, ntype).tolist() == [g.num_nodes(ntype) - 1]


def test_splits_and_neighbours(tmp_path: Path) -> None:
    whole = homogeneous()
    g = parted(whole, tmp_path)
    node, edge = names_of(g)
    ids = vd.node_split(g.ndata["train"], g)
    assert sorted(g.orig_ids(ids).tolist()) == seeds_for("uniform").tolist()
    assert vd.node_split(ids, g).tolist() == ids.tolist() and vd.edge_split(torch.arange(900), g).shape == (900,)
    with pytest.raises(GraphError, match="a mask has 5 entries"):
        vd.node_split(torch.ones(5, dtype=torch.bool), g)
    made = vd.sample_neighbors(g, ids, -1)
    src, dst = made.edges()
    ids_of_edges = edge(("_N", "_E", "_N"), made.edata["_ID"])
    found = set(zip(*(some.tolist() for some in (node("_N", src), node("_N", dst), ids_of_edges)), strict=True))
    near = torch.isin(whole.edges()[1], seeds_for("uniform"))
    wanted = zip(*(end[near].tolist() for end in whole.edges()), near.nonzero().squeeze(1).tolist(), strict=True)
    assert found == set(wanted)
    few = [vd.sample_neighbors(g, ids, 3).edata["_ID"].tolist() for _ in range(2)]
    assert few[0] != few[1]
    with pytest.raises(GraphError, match="edge_dir is 'out'"):
        vd.sample_neighbors(g, ids, 3, "out")


LAYERS: dict[str, Any] = {
    "mean": lambda: SAGEConv(6, 3, "mean"),
    "pool": lambda: SAGEConv(6, 3, "pool"),
    "lstm": lambda: SAGEConv(6, 3, "lstm"),
    "graph": lambda: GraphConv(6, 3, allow_zero_in_degree=True),
    "attention": lambda: GATv2Conv(6, 3, 2, allow_zero_in_degree=True),
}


@pytest.mark.parametrize("name", list(LAYERS))
def test_a_block_without_edges_reaches_all_parameters(name: str, tmp_path: Path) -> None:
    """Or DistributedDataParallel would wait for those of a rank whose seeds have no in-edge."""
    g = parted(homogeneous(), tmp_path)
    lonely = (homogeneous().in_degrees() == 0).nonzero()[0]
    sampler = NeighborSampler([2], prefetch_node_feats=["feat"])
    ((_, _, (block,)),) = vd.DistDataLoader(g, g.new_ids(lonely), sampler)
    layer = LAYERS[name]().double()
    layer(block, block.srcdata["feat"]).sum().backward()
    assert block.num_edges() == 0 and all(p.grad is not None for p in layer.parameters())


def test_a_subgraph_without_edges_is_read_out_by_itself(tmp_path: Path) -> None:
    g = parted(homogeneous(), tmp_path)
    lonely = (homogeneous().in_degrees() == 0).nonzero()[0]
    ((_, _, part),) = vd.DistDataLoader(g, g.new_ids(lonely), ShaDowKHopSampler([2], prefetch_node_feats=["feat"]))
    row = homogeneous().ndata["feat"][lonely]
    for op in ("sum", "mean", "max", "min"):
        assert torch.equal(vgraph.readout_nodes(part, "feat", op=op), row)
    assert torch.equal(vgraph.softmax_nodes(part, "feat"), torch.ones_like(row))
