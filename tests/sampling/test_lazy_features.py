"""Features of minibatches: gathered when they are read, once, and ahead where that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import vgraph
from vgraph.compat import loading
from vgraph.errors import FeatureError, NameLookupError
from vgraph.sampling import (
    DataLoader,
    LaborSampler,
    NeighborSampler,
    SAINTSampler,
    Sampler,
    ShaDowKHopSampler,
    Uniform,
    as_edge_prediction_sampler,
    sample_neighbors,
)


class Gathers(TorchDispatchMode):
    """How many rows of the features of a graph were taken, by name."""

    def __init__(self, g: vgraph.Graph) -> None:
        super().__init__()
        columns = {**dict(g.ndata), **dict(g.edata)}
        self.names = {column.data_ptr(): name for name, column in columns.items()}
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in (torch.ops.aten.index_select, torch.ops.aten.index):
            self.found += [self.names[args[0].data_ptr()]] if args[0].data_ptr() in self.names else []
        return func(*args, **(kwargs or {}))


def featured() -> vgraph.Graph:
    draws = torch.Generator().manual_seed(3)
    g = vgraph.graph(tuple(torch.randint(0, 40, (2, 200), generator=draws)), num_nodes=40)
    for name in ("x", "y", "z"):
        g.ndata[name] = torch.randn(40, 4, generator=draws)
    g.edata["w"], g.edata["v"] = torch.randn(200, generator=draws), torch.randn(200, 2, generator=draws)
    return g


def first_block(made: Any) -> vgraph.Graph:
    last = made[-1] if isinstance(made, tuple) else made
    return last[0] if isinstance(last, list) else last


SAMPLERS: dict[str, Callable[[vgraph.Graph], Sampler]] = {
    "neighbours": lambda g: NeighborSampler([3, 3]),
    "labor": lambda g: LaborSampler([3, 3]),
    "shadow": lambda g: ShaDowKHopSampler([3]),
    "saint": lambda g: SAINTSampler("node", 9),
    "edges": lambda g: as_edge_prediction_sampler(NeighborSampler([3]), "self", negative_sampler=Uniform(2)),
    "edges of shadow": lambda g: as_edge_prediction_sampler(ShaDowKHopSampler([3])),
}


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_what_nobody_reads_is_not_gathered(name: str) -> None:
    g = featured()
    values = g.ndata["y"].clone()
    with Gathers(g) as gathers:
        for made in DataLoader(g, torch.arange(12), SAMPLERS[name](g), batch_size=6):
            assert gathers.found == []
            block = first_block(made)
            assert {"x", "y", "z"} <= set(block.srcdata) and "v" in block.edata and "float32" in repr(block.srcdata)
            assert block.edge_attr_schemes()["v"].shape == (2,)
            for part in (block, block.local_var()):
                with part.local_scope():
                    assert torch.equal(part.srcdata["y"], values[part.srcdata["_ID"].long()])
            assert gathers.found == ["y"]
            gathers.found.clear()


def test_pairs_have_the_features_of_their_nodes_and_edges() -> None:
    g = featured()
    sampler = as_edge_prediction_sampler(NeighborSampler([2]), negative_sampler=Uniform(1), prefetch_labels=["w"])
    with Gathers(g) as gathers:
        _, pairs, negatives, blocks = sampler.sample(g, torch.tensor([5, 7, 11]))
        assert gathers.found == ["w"]
    assert torch.equal(pairs.ndata["z"], g.ndata["z"][pairs.ndata["_ID"]])
    assert torch.equal(pairs.edata["w"], g.edata["w"][[5, 7, 11]]) and torch.equal(pairs.edata["v"][0], g.edata["v"][5])
    assert list(negatives.ndata) == ["_ID"]
    assert torch.equal(blocks[0].dstdata["x"], pairs.ndata["x"])


def test_a_block_of_a_drawn_graph_gathers_what_is_read() -> None:
    g = featured()
    with Gathers(g) as gathers:
        block = vgraph.to_block(sample_neighbors(g, [1, 2], 3), [1, 2])
        assert gathers.found == []
        rows = block.srcdata["x"]
        assert gathers.found == ["x"] and block.srcdata["x"] is rows
    assert torch.equal(rows, g.ndata["x"][block.srcdata["_ID"]])
    g.ndata["x"] = torch.zeros(40, 4)
    assert torch.equal(block.dstdata["x"], rows[:2])  # as it was when the block was drawn


def test_gradients_reach_a_feature_that_was_first_read_without_them() -> None:
    g = featured()
    g.ndata["x"] = torch.randn(40, 4, requires_grad=True)
    block = NeighborSampler([2]).sample(g, [4, 5])[2][0]
    with torch.no_grad():
        assert not block.srcdata["x"].requires_grad
    with torch.inference_mode():
        assert not block.srcdata["y"].is_inference()
    block.srcdata["x"].sum().backward()
    assert g.ndata["x"].grad[[4, 5]].eq(1).all()
    assert block.to("meta").srcdata["z"].is_meta and torch.equal(block.int().srcdata["z"], block.srcdata["z"])


class Promising(Sampler):
    """Leaves features to the loader, under other names and of other ids, too."""

    def sample(self, g: vgraph.Graph, indices: Tensor) -> Any:
        part = vgraph.graph(([0, 1], [1, 0]))
        part.ndata["_ID"] = indices
        loading.set_node_lazy_features(part, ["x"])
        part.ndata["other"] = loading.LazyFeature("y", indices.flip(0))
        block = NeighborSampler([1]).sample(vgraph.graph(g.edges()), indices)[2][0]
        loading.set_src_lazy_features(block, {"_N": ["x"]})
        loading.set_dst_lazy_features(block, ["y"])
        loading.set_edge_lazy_features(block, {"_E": ["w"]})
        assert "x" in part.ndata and "x" not in part.node_attr_schemes()
        with pytest.raises(FeatureError, match="no loader has filled in"):
            part.ndata["x"]
        return {"part": part, "block": block}, loading.LazyFeature("table", indices)


class Pair(NamedTuple):
    rows: Any
    nodes: Any


def test_named_tuples_of_samplers_keep_their_names() -> None:
    class Named(Sampler):
        def sample(self, g: vgraph.Graph, indices: torch.Tensor) -> Pair:
            return Pair(loading.LazyFeature("table", indices), indices)

    loader = DataLoader(featured(), torch.tensor([8, 3]), Named(), batch_size=2, device="cpu")
    loader.attach_data("table", torch.arange(40) * 2)
    (made,) = loader
    assert type(made) is Pair and made.rows.tolist() == [16, 6] and made.nodes.tolist() == [8, 3]


def test_a_loader_fills_in_what_a_sampler_promises() -> None:
    g, table = featured(), torch.arange(40) * 2
    loader = DataLoader(g, torch.tensor([8, 3, 5, 6]), Promising(), batch_size=2, num_workers=1)
    with pytest.raises(NameLookupError, match=r"attach_data"):
        list(loader)
    loader.attach_data("table", table)
    (made, rows), _ = list(loader)
    part, block = made["part"], made["block"]
    assert rows.tolist() == [16, 6]
    assert torch.equal(part.ndata["x"], g.ndata["x"][[8, 3]]) and torch.equal(part.ndata["other"], g.ndata["y"][[3, 8]])
    assert torch.equal(block.srcdata["x"], g.ndata["x"][block.srcdata["_ID"]])
    assert torch.equal(block.dstdata["y"], g.ndata["y"][[8, 3]])
    assert torch.equal(block.edata["w"], g.edata["w"][block.edata["_ID"]])


def test_what_cannot_be_promised() -> None:
    g = featured()
    bare = vgraph.graph(([0], [1]))
    bare.ndata["x"] = loading.LazyFeature()
    sampler = type("Bare", (Sampler,), {"sample": lambda self, g, ids: bare})
    with pytest.raises(FeatureError, match="has no ids"):
        list(DataLoader(g, [0], sampler()))
    with pytest.raises(NameLookupError, match="there is no node type 'b'"):
        loading.set_node_lazy_features(bare, {"b": ["x"]})
