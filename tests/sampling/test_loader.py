"""Samplers and loaders: blocks that compute what the whole graph does, the same whatever the workers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vgraph
from tests.sampling.test_neighbors import edges_of, random_graph
from vgraph.errors import ArgumentError, DataError, DTypeError, FeatureError, FunctionError, GraphError
from vgraph.nn import GATConv, HeteroGraphConv, SAGEConv
from vgraph.sampling import (
    BlockSampler,
    DataLoader,
    GlobalUniform,
    GraphDataLoader,
    LaborSampler,
    MultiLayerFullNeighborSampler,
    MultiLayerNeighborSampler,
    NeighborSampler,
    RandomWalkNeighborSampler,
    SAINTSampler,
    Sampler,
    ShaDowKHopSampler,
    Uniform,
    affinity,
    as_edge_prediction_sampler,
    global_uniform_negative_sampling,
    open_features,
    sample_etype_neighbors,
    sample_labors,
    select_topk,
    shares,
)


def flat(made: Any) -> list[Tensor]:
    """All numbers of a minibatch."""
    if isinstance(made, Tensor):
        return [made]
    if isinstance(made, vgraph.Graph):
        features = [t for etype in made.canonical_etypes for t in made.edge_frames[etype].values()]
        return [*features, *(t for etype in made.canonical_etypes for t in made.edges(etype=etype))]
    parts = made.values() if isinstance(made, dict) else made
    return [tensor for part in parts for tensor in flat(part)]


def test_full_blocks_compute_what_the_graph_does() -> None:
    g, x = random_graph(), torch.randn(30, 5)
    layers = nn.ModuleList(
        [SAGEConv(5, 4, "mean"), GATConv(4, 4, 1, allow_zero_in_degree=True), SAGEConv(4, 3, "pool")]
    )

    def run(graphs: list[vgraph.Graph], h: Tensor) -> Tensor:
        for layer, graph in zip(layers, graphs, strict=True):
            h = torch.tanh(layer(graph, h)).flatten(1)
        return h

    whole = run([g] * 3, x)
    for given, output, blocks in DataLoader(g, torch.arange(30), MultiLayerFullNeighborSampler(3), batch_size=7):
        torch.testing.assert_close(run(blocks, x[given]), whole[output])
        assert torch.equal(given[: len(output)], output) and torch.equal(blocks[-1].dstdata["_ID"], output)


def test_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    g, seeds = random_graph(), torch.tensor([4, 9, 1])
    given, output, blocks = NeighborSampler([2, 3]).sample(g, seeds)
    assert torch.equal(output, seeds) and torch.equal(given, blocks[0].srcdata["_ID"])
    assert torch.equal(blocks[0].dstdata["_ID"], blocks[1].srcdata["_ID"])
    for block, fanout in zip(blocks, (2, 3), strict=True):
        ids = block.dstdata["_ID"]
        assert torch.equal(block.in_degrees(), g.in_degrees()[ids].clamp(max=fanout))
        ends = (block.srcdata["_ID"][block.edges()[0]], ids[block.edges()[1]])
        assert all(torch.equal(a, b) for a, b in zip(ends, g.find_edges(block.edata["_ID"]), strict=True))
    assert MultiLayerNeighborSampler is NeighborSampler


def test_features_come_along() -> None:
    g = random_graph()
    g.ndata["label"] = torch.arange(30)
    sampler = NeighborSampler(
        [2, 2], prefetch_node_feats=["h"], prefetch_labels=["label"], prefetch_edge_feats=["w"], output_device="cpu"
    )
    given, output, blocks = sampler.sample(g, [3, 8])
    torch.testing.assert_close(blocks[0].srcdata["h"], g.ndata["h"][given])
    assert torch.equal(blocks[1].dstdata["label"], output)
    for block in blocks:
        torch.testing.assert_close(block.edata["w"], g.edata["w"][block.edata["_ID"]])


SAMPLERS: dict[str, Any] = {
    "neighbors": NeighborSampler([3, 2]),
    "again": NeighborSampler([3, 2], replace=True),
    "by weight": NeighborSampler([3, 2], prob="w"),
    "shadow": ShaDowKHopSampler([3, 2]),
    "edges": as_edge_prediction_sampler(NeighborSampler([3]), "self", negative_sampler=Uniform(2)),
    "global": as_edge_prediction_sampler(NeighborSampler([3]), negative_sampler=GlobalUniform(2)),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_any_number_of_workers(name: str) -> None:
    g, found = random_graph(), []
    for workers in (0, 1, 3):
        torch.manual_seed(7)
        loader = DataLoader(g, torch.arange(30), SAMPLERS[name], batch_size=4, shuffle=True, num_workers=workers)
        found.append([flat(made) for _ in range(2) for made in loader])
    for other in found[1:]:
        assert len(other) == len(found[0]) == 16
        for left, right in zip(found[0], other, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(left, right, strict=True))
    first, second = found[0][0], found[0][8]
    assert any(not torch.equal(a, b) if a.shape == b.shape else True for a, b in zip(first, second, strict=True))


def test_order_and_sizes() -> None:
    g = random_graph()
    loader = DataLoader(g, torch.arange(10), NeighborSampler([1]), batch_size=4)
    assert [made[1].tolist() for made in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] and len(loader) == 3
    short = DataLoader(g, torch.arange(10), NeighborSampler([1]), batch_size=4, drop_last=True, num_workers=2)
    assert [len(made[1]) for made in short] == [4, 4] and len(short) == 2
    shuffled = [made[1] for made in DataLoader(g, torch.arange(10), NeighborSampler([1]), batch_size=4, shuffle=True)]
    assert sorted(torch.cat(shuffled).tolist()) == list(range(10))
    mask = torch.zeros(30, dtype=torch.bool)
    mask[[2, 5]] = True
    assert [made[1].tolist() for made in DataLoader(g, mask, NeighborSampler([1]), batch_size=4, device="cpu")] == [
        [2, 5]
    ]
    torch.manual_seed(0)
    one, two = ([made[1].tolist() for made in DataLoader(
        g, torch.arange(10), NeighborSampler([1]), shuffle=True, generator=torch.Generator().manual_seed(3)
    )] for _ in range(2))  # fmt: skip
    assert one == two


def test_errors_of_workers_arrive() -> None:
    class Broken(Sampler):
        def sample(self, g: vgraph.Graph, indices: Any) -> Any:
            if 5 in indices:
                raise RuntimeError("five")
            return indices

    for workers in (0, 2):
        loader = iter(DataLoader(random_graph(), torch.arange(10), Broken(), batch_size=2, num_workers=workers))
        assert next(loader).tolist() == [0, 1]
        with pytest.raises(RuntimeError, match="five"):
            list(loader)
    stopped = iter(DataLoader(random_graph(), torch.arange(30), NeighborSampler([1]), num_workers=2))
    next(stopped)
    del stopped  # a reader that stops early leaves no thread that anybody waits for


def test_types() -> None:
    edges: Any = {("u", "likes", "f"): ([0, 1, 2, 0], [0, 0, 0, 1]), ("u", "knows", "u"): ([0, 1, 2], [1, 2, 0])}
    g = vgraph.heterograph(edges)
    x = {"u": torch.randn(3, 4), "f": torch.randn(2, 4)}
    layers = [HeteroGraphConv({"likes": SAGEConv(4, 4, "mean"), "knows": SAGEConv(4, 4, "mean")}) for _ in range(2)]
    whole = layers[1](g, layers[0](g, x))
    loader = DataLoader(g, {"f": [0, 1], "u": [2]}, MultiLayerFullNeighborSampler(2), batch_size=2)
    for given, output, blocks in loader:
        h = {name: x[name][ids] for name, ids in given.items()}
        for layer, block in zip(layers, blocks, strict=True):
            h = {**{n: h[n][: block.num_dst_nodes(n)] * 0 for n in h}, **layer(block, h)}
        for name, ids in output.items():
            torch.testing.assert_close(h[name], whole[name][ids])
    names = NeighborSampler([2], prefetch_node_feats={"u": ["h"]}, prefetch_edge_feats={"likes": ["w"]})
    g.nodes["u"].data["h"], g.edges["likes"].data["w"] = x["u"], torch.arange(4.0)
    block = names.sample(g, {"f": [0]})[2][0]
    assert block.edges["likes"].data["w"].shape == (2,) and block.srcnodes["u"].data["h"].shape == (2, 4)


def test_shadow() -> None:
    g = random_graph()
    everything, seeds, part = ShaDowKHopSampler([3, 2], prefetch_node_feats=["h"], prefetch_edge_feats=["w"]).sample(
        g, [4, 9]
    )
    assert everything[:2].tolist() == seeds.tolist() == [4, 9]
    inside = set(everything.tolist())
    wanted = [e for e, (u, v) in enumerate(zip(*(end.tolist() for end in g.edges()), strict=True)) if {u, v} <= inside]
    assert sorted(part.edata["_ID"].tolist()) == wanted
    torch.testing.assert_close(part.ndata["h"], g.ndata["h"][everything])
    torch.testing.assert_close(part.edata["w"], g.edata["w"][part.edata["_ID"]])


def test_edge_prediction() -> None:
    g = vgraph.add_reverse_edges(vgraph.graph((torch.arange(20), (torch.arange(20) * 7 + 1) % 20)))
    half, ids = 20, torch.tensor([3, 11, 5])
    sampler = as_edge_prediction_sampler(
        NeighborSampler([-1, -1]), "reverse_id", torch.cat([torch.arange(20) + half, torch.arange(20)]),
        negative_sampler=Uniform(3),
    )  # fmt: skip
    given, pairs, negatives, blocks = sampler.sample(g, ids)
    names = pairs.ndata["_ID"]
    ends = tuple(names[end] for end in pairs.edges())
    assert all(torch.equal(a, b) for a, b in zip(ends, g.find_edges(ids), strict=True))
    assert negatives.num_edges() == 9 and torch.equal(negatives.ndata["_ID"], names)
    assert torch.equal(blocks[-1].dstdata["_ID"], names) and torch.equal(blocks[0].srcdata["_ID"], given)
    hidden = {*ids.tolist(), *(ids + half).tolist()}
    assert not any(hidden & set(block.edata["_ID"].tolist()) for block in blocks)
    mine = as_edge_prediction_sampler(NeighborSampler([-1]), lambda found: found + half)
    assert not {23, 31, 25} & set(mine.sample(g, ids)[2][0].edata["_ID"].tolist())


def test_edge_prediction_with_types() -> None:
    edges: Any = {("u", "likes", "f"): ([0, 1, 2], [0, 0, 1]), ("f", "liked", "u"): ([0, 0, 1], [0, 1, 2])}
    g = vgraph.heterograph(edges)
    sampler = as_edge_prediction_sampler(
        NeighborSampler([-1]), "reverse_types", reverse_etypes={"likes": "liked", "liked": "likes"},
        negative_sampler=Uniform(2),
    )  # fmt: skip
    given, pairs, negatives, blocks = sampler.sample(g, {"likes": torch.tensor([0])})
    assert pairs.num_edges("likes") == 1 and negatives.num_edges("likes") == 2 and negatives.num_edges("liked") == 0
    assert blocks[0].edges["liked"].data["_ID"].tolist() == [] or 0 not in blocks[0].edges["liked"].data["_ID"].tolist()
    assert set(given) == {"u", "f"}


def test_a_function_of_edges_is_told_their_type() -> None:
    g = vgraph.heterograph({("a", "r", "b"): ([0, 1], [0, 0]), ("b", "s", "a"): ([0, 0], [0, 1])})
    told = []
    sampler = as_edge_prediction_sampler(MultiLayerFullNeighborSampler(1), lambda edges: told.append(edges) or edges)
    _, _, (block,) = sampler.sample(g, {"r": torch.tensor([1])})
    assert [list(edges) for edges in told] == [[("a", "r", "b")]]
    assert block.edges["r"].data["_ID"].tolist() == [0]


def test_negative_pairs() -> None:
    g = random_graph()
    src, dst = global_uniform_negative_sampling(g, 50)
    assert len(src) == 50 and not bool(g.has_edges_between(src, dst).any()) and not bool((src == dst).any())
    assert len(set(zip(src.tolist(), dst.tolist(), strict=True))) == 50
    full = vgraph.graph((torch.arange(4).repeat(4), torch.arange(4).repeat_interleave(4)))
    assert len(global_uniform_negative_sampling(full, 3)[0]) == 0
    src, dst = Uniform(4)(g, torch.arange(200))
    assert torch.equal(src, g.edges()[0].repeat_interleave(4)) and set(dst.tolist()) == set(range(30))
    with pytest.raises(GraphError, match="edges without a type"):
        Uniform(1)(vgraph.heterograph({("a", "r", "b"): ([0], [0]), ("a", "s", "b"): ([0], [0])}), [0])


def test_graphs_are_batched() -> None:
    graphs = [vgraph.rand_graph(3 + i, 5) for i in range(5)]
    samples = [{"g": g, "y": float(i), "pair": (g, torch.ones(2))} for i, g in enumerate(graphs)]
    made = list(GraphDataLoader(samples, batch_size=2, drop_last=True))
    assert [m["g"].batch_size for m in made] == [2, 2] and made[1]["y"].tolist() == [2.0, 3.0]
    assert made[0]["pair"][0].num_edges() == 10 and made[0]["pair"][1].shape == (2, 2)
    assert next(iter(GraphDataLoader(graphs, batch_size=3))).batch_size == 3
    assert next(iter(GraphDataLoader([(3, 4.0)], batch_size=None))) == [3, 4.0]
    with pytest.raises(FunctionError, match="use_ddp is set, and this process is in no group"):
        GraphDataLoader(samples, use_ddp=True)
    with pytest.raises(FunctionError, match="use_ddp is set beside a sampler"):
        GraphDataLoader(samples, use_ddp=True, sampler=[0])
    with pytest.raises(FunctionError, match="set_epoch is for use_ddp=True"):
        GraphDataLoader(samples).set_epoch(1)


def test_features_on_disk(tmp_path: Path) -> None:
    g, rows = random_graph(), np.random.default_rng(0).random((30, 6)).astype(np.float32)
    np.save(tmp_path / "feat.npy", rows)
    g.ndata["feat"] = open_features(tmp_path / "feat.npy")
    given, _, blocks = NeighborSampler([2], prefetch_node_feats=["feat"]).sample(g, [1, 2])
    torch.testing.assert_close(blocks[0].srcdata["feat"], torch.from_numpy(rows)[given])
    (tmp_path / "cut.npy").write_bytes((tmp_path / "feat.npy").read_bytes()[:200])
    for name, fact in (("none.npy", "cannot read the data file"), ("cut.npy", "no array can be mapped")):
        with pytest.raises(DataError, match=fact):
            open_features(tmp_path / name)


DRAWS: dict[str, Callable[[vgraph.Graph], object]] = {
    "blocks": lambda g: list(DataLoader(g, [0, 1, 2], NeighborSampler([2]), batch_size=2, shuffle=True)),
    "pairs": lambda g: as_edge_prediction_sampler(
        NeighborSampler([2]), "reverse_id", list(range(g.num_edges())), negative_sampler=Uniform(2)
    ).sample(g, [0, 1]),
    "pairs of none": lambda g: GlobalUniform(2)(g, [0, 1]),
    "labor": lambda g: sample_labors(g, [0, 1], 2, random_seed=3),
    "parts": lambda g: [SAINTSampler(*budget).sample(g, None) for budget in (("node", 3), ("walk", (3, 2)))],
    "heaviest": lambda g: select_topk(g, 1, "w"),
    "types": lambda g: sample_etype_neighbors(g, [0, 1], [0, 5, g.num_edges()], [1, 1]),
    "walks": lambda g: RandomWalkNeighborSampler(g, 2, 0.5, 3, 2)([0, 1]),
    "random edges": lambda g: vgraph.rand_graph(5, 5),
}


def _devices(made: object) -> set[str]:
    """Where all tensors of a nest, and all ends and features of its graphs, lie."""
    if isinstance(made, Tensor):
        return {made.device.type}
    if isinstance(made, vgraph.Graph):
        rows = [*made.srcdata.values(), *made.edata.values()] if len(made.etypes) == 1 else []
        return {made.device.type}.union(*map(_devices, [*(made.edges(etype=e) for e in made.canonical_etypes), rows]))
    if isinstance(made, (list, tuple, dict)):
        return set[str]().union(*map(_devices, made.values() if isinstance(made, dict) else made))
    return set()


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_drawn_lies_with_the_graph(name: str) -> None:
    g = random_graph()
    g.edata["w"] = torch.rand(g.num_edges())
    vgraph.seed(0)
    with torch.device("meta"):
        made = DRAWS[name](g)
    assert _devices(made) == {"cpu"}


def test_refusals(caplog: pytest.LogCaptureFixture) -> None:
    g = random_graph()
    with pytest.raises(FunctionError, match="blocks compute what edges end at"):
        NeighborSampler([1], edge_dir="out")
    with pytest.raises(FunctionError, match="both prob and mask"):
        NeighborSampler([1], prob="w", mask="w")
    with pytest.raises(DTypeError, match=r"the mask 'w' has dtype torch\.float32"):
        NeighborSampler([1], mask="w").sample(g, [3])
    with pytest.raises(GraphError, match="the fanout is True"):
        NeighborSampler([True]).sample(g, [3])
    with pytest.raises(GraphError, match="no node to walk from"):
        SAINTSampler("walk", (2, 2)).sample(vgraph.graph(([], [])), None)
    with pytest.raises(GraphError, match="a node is given twice as a seed"):
        NeighborSampler([1]).sample(g, [3, 3])
    with pytest.raises(FunctionError, match="int has no method sample"):
        DataLoader(g, [0], 5)
    with pytest.raises(ArgumentError, match="batch_size=0"):
        DataLoader(g, [0], NeighborSampler([1]), batch_size=0)
    with pytest.raises(FunctionError, match="DataLoader has no argument 'colour'"):
        DataLoader(g, [0], NeighborSampler([1]), colour=1)
    with pytest.raises(FunctionError, match="exclude is 'all'"):
        as_edge_prediction_sampler(NeighborSampler([1]), "all")
    for name in ("reverse_id", "reverse_types"):
        with pytest.raises(FunctionError, match=f'exclude is "{name}" without'):
            as_edge_prediction_sampler(NeighborSampler([1]), name)
    with pytest.raises(FunctionError, match="Sampler has no method sample"):
        Sampler().sample(g, [0])
    with pytest.raises(FunctionError, match="BlockSampler has no method sample_blocks"):
        BlockSampler().sample(g, [0])
    with pytest.raises(GraphError, match="edges without a type in a graph of 2 types"):
        as_edge_prediction_sampler(NeighborSampler([1])).sample(
            vgraph.heterograph({("a", "r", "b"): ([0], [0]), ("a", "s", "b"): ([0], [0])}), [0]
        )
    with caplog.at_level(logging.INFO, logger="vgraph"):
        DataLoader(g, [0], NeighborSampler([1]), pin_memory=True, use_ddp=False)
    assert "pin_memory has no effect" in caplog.text and "use_ddp" not in caplog.text
    assert edges_of(g)


def ids_of(loader: DataLoader) -> list[int]:
    return [number for _, outputs, _ in loader for number in outputs.tolist()]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_processes_share_the_ids(shuffle: bool, drop_last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    g, options = random_graph(), {"batch_size": 3, "shuffle": shuffle, "drop_last": drop_last, "use_ddp": True}
    loaders = []
    for rank in range(4):
        monkeypatch.setattr(shares, "rank_in_group", lambda rank=rank: (rank, 4))
        loaders.append(DataLoader(g, torch.arange(30), NeighborSampler([1]), ddp_seed=5, **options))
    first, second = ([ids_of(loader) for loader in loaders] for _ in range(2))
    assert {len(loader) for loader in loaders} == {2 if drop_last else 3}
    assert {len(own) for own in first} == {6 if drop_last else 8}
    together = list(chain(*first))
    assert len(set(together)) == (24 if drop_last else 30) and (first != second) is shuffle
    for loader in loaders:
        loader.set_epoch(0)
    assert [ids_of(loader) for loader in loaders] == first


def test_processes_share_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for rank in range(2):
        monkeypatch.setattr(shares, "rank_in_group", lambda rank=rank: (rank, 2))
        loader = GraphDataLoader(range(10), use_ddp=True, shuffle=True, batch_size=2)
        seen.append([torch.cat(list(loader)).tolist() for _ in range(2)])
    assert sorted(seen[0][1] + seen[1][1]) == list(range(10)) and seen[0][0] == seen[0][1]


def test_threads_are_bound_to_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[tuple[bool, set[int]]] = []
    here = threading.get_ident()
    monkeypatch.setattr(affinity.os, "sched_getaffinity", lambda _: {0, 2, 4, 6}, raising=False)
    monkeypatch.setattr(
        affinity.os,
        "sched_setaffinity",
        lambda _, c: bound.append((threading.get_ident() == here, set(c))),
        raising=False,
    )
    loader = DataLoader(random_graph(), torch.arange(30), NeighborSampler([1]), batch_size=3, num_workers=2)
    threads = torch.get_num_threads()
    with loader.enable_cpu_affinity():
        assert torch.get_num_threads() == 2 and len(list(loader)) == 10
    assert torch.get_num_threads() == threads
    assert [cores for is_here, cores in bound if is_here] == [{4, 6}, {0, 2, 4, 6}]
    assert {core for is_here, cores in bound if not is_here for core in cores} <= {0, 2} and len(bound) > 2
    assert affinity.divided(1, [6], None) == ([6], [0, 2, 4]) and affinity.divided(1, None, [0]) == ([2], [0])
    for workers, cores, words in ((0, None, "no workers"), (1, [1, 2], "2 cores for 1"), (4, None, "do not fit on 4")):
        with pytest.raises(FunctionError, match=words):
            affinity.divided(workers, cores, None)
    monkeypatch.delattr(affinity.os, "sched_setaffinity")
    with pytest.raises(FunctionError, match="binds no thread"):
        affinity.divided(1, None, None)


def test_masks_of_edges_and_of_nodes_by_type_mean_where_they_are_true() -> None:
    g = vgraph.graph(([0, 1, 2, 3], [3, 3, 3, 0]))
    mask = torch.tensor([False, False, True, True])
    assert vgraph.sampling.sample_neighbors(g, [3, 0], -1, exclude_edges=mask).edata["_ID"].tolist() == [0, 1]
    assert LaborSampler([-1]).sample_blocks(g, [3, 0], mask)[2][0].edata["_ID"].tolist() == [0, 1]
    sampler = as_edge_prediction_sampler(MultiLayerFullNeighborSampler(1), "self", negative_sampler=Uniform(2))
    _, _, negatives, (block,) = sampler.sample(g, mask)
    assert block.edata["_ID"].tolist() == [0, 1]
    assert negatives.ndata["_ID"][negatives.edges()[0]].tolist() == [2, 2, 3, 3]
    assert len(GlobalUniform(1)(g, mask)[0]) == 2
    both = vgraph.heterograph({("a", "r", "b"): ([0, 1, 2], [0, 1, 2]), ("b", "s", "a"): ([0], [0])})
    ids = {"a": torch.tensor([False, False, True]), "b": torch.tensor([2, 1])}
    loader = DataLoader(both, ids, MultiLayerFullNeighborSampler(1), batch_size=2)
    assert [{key: some.tolist() for key, some in seeds.items()} for _, seeds, _ in loader] == [
        {"a": [2], "b": [2]},
        {"b": [1]},
    ]


def test_a_mask_of_another_graph_is_refused() -> None:
    g = vgraph.graph(([0, 1, 2, 3], [3, 3, 3, 0]), num_nodes=6)
    sampler = NeighborSampler([1])
    for count in (3, 5, 7):
        with pytest.raises(GraphError, match=rf"a mask has shape \({count},\) where there are 6 nodes and 4 edges"):
            DataLoader(g, torch.ones(count, dtype=torch.bool), sampler)
    both = vgraph.heterograph({("a", "r", "b"): ([0, 1, 2], [0, 1, 2]), ("b", "s", "a"): ([0], [0])})
    for name, there in (("a", "3 nodes of type 'a'"), ("r", "3 edges of type 'r'"), (("b", "s", "a"), "1 edges")):
        with pytest.raises(GraphError, match=rf"a mask has shape \(2,\) where there are {there}"):
            DataLoader(both, {name: [True, False]}, sampler)
    assert len(DataLoader(g, torch.ones(4, dtype=torch.bool), as_edge_prediction_sampler(sampler))) == 4


def test_edges_without_a_type_are_refused_where_there_are_several() -> None:
    g = vgraph.heterograph({("a", "r", "b"): ([0], [0]), ("a", "s", "b"): ([0], [0])})
    with pytest.raises(GraphError, match="edges without a type in a graph of 2 types"):
        vgraph.sampling.sample_neighbors(g, {"b": [0]}, -1, exclude_edges=[0])
    sampler = as_edge_prediction_sampler(NeighborSampler([1]), negative_sampler=lambda g, ids: ([0], [0]))
    with pytest.raises(FunctionError, match="negative_sampler gives pairs without a type"):
        sampler.sample(g, {"r": [0]})
    one, short = {"r": [0]}, {"r": [0], "s": []}
    for table, fact in ((one, "has nothing for edges of type 's'"), (short, "has 0 ids for 1 edges of type 's'")):
        with pytest.raises(FunctionError, match=f"reverse_eids {fact}"):
            as_edge_prediction_sampler(NeighborSampler([1]), "reverse_id", table).sample(g, {"s": [0]})
    with pytest.raises(GraphError, match=r"edge ids\[0\] is 7"):
        Uniform(1)(g, {"r": [7]})


def test_a_saint_sampler_draws_from_the_graph_that_it_is_given() -> None:
    sampler = SAINTSampler("node", 200)
    g = vgraph.graph(([0, 1], [1, 0]))
    assert sampler.sample(g, [0]).num_nodes() == 2
    g.add_nodes(8)
    assert sampler.sample(g, [0]).num_nodes() == 10
    assert sampler.sample(vgraph.graph(([0], [0])), [0]).num_nodes() == 1
    with pytest.raises(GraphError, match="the graph has no edge to draw"):
        SAINTSampler("edge", 5).sample(vgraph.graph(([], []), num_nodes=3), [0])


def test_a_saint_sampler_draws_by_degrees() -> None:
    g = vgraph.graph(([0, 0, 0, 1, 2], [1, 2, 3, 2, 3]))  # chances 3, 1, 1 and 1
    sampler = SAINTSampler("node", 1)
    drawn = torch.cat([sampler.sample(g, [0]).ndata["_ID"] for _ in range(1200)])
    torch.testing.assert_close(drawn.bincount() / 1200, torch.tensor([3.0, 1, 1, 1]) / 6, atol=0.05, rtol=0)


def test_a_model_without_layers_needs_its_seeds_alone() -> None:
    given, seeds, blocks = MultiLayerFullNeighborSampler(0).sample(random_graph(), [3, 1])
    assert given.tolist() == seeds.tolist() == [3, 1] and blocks == []


def test_weights_without_columns_are_refused() -> None:
    g = random_graph()
    g.edata["none"] = torch.zeros(g.num_edges(), 0)
    with pytest.raises(FeatureError, match="'none' has shape"):
        NeighborSampler([1], prob="none").sample(g, [1])


@pytest.mark.parametrize("kind", [NeighborSampler, ShaDowKHopSampler, LaborSampler])
@pytest.mark.parametrize("fanouts", [5, {"follows": 5}, "55"], ids=str)
def test_one_fanout_is_no_list_of_some(kind: Any, fanouts: object) -> None:
    with pytest.raises(FunctionError, match="fanouts are"):
        kind(fanouts)


@pytest.mark.parametrize(
    ("mode", "budget"), [("walk", 5), ("walk", (5, 2, 1)), ("node", (5, 2)), ("edge", -1), ("node", 2.5)]
)
def test_a_budget_is_what_its_mode_takes(mode: str, budget: Any) -> None:
    with pytest.raises(FunctionError, match="the budget is"):
        SAINTSampler(mode, budget)
