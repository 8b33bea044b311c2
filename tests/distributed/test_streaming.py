"""LDG and Fennel: parts of equal shares, few edges between them, the same compiled and in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vgraph
from vgraph.distributed.partition import streaming
from vgraph.distributed.partition.constraints import read_balance, weights_of
from vgraph.distributed.partition.metis import metis_parts
from vgraph.distributed.partition.streaming import streamed_parts
from vgraph.distributed.partition.whole_graph import whole_graph


def community_graph(nodes: int, edges: int, communities: int, seed: int = 0) -> vgraph.Graph:
    """Three edges of four stay within a community; ids are in no order."""
    draw = np.random.default_rng(seed)
    home, place = draw.integers(0, communities, nodes), draw.permutation(nodes)
    order = np.argsort(home, kind="stable")
    begin = np.searchsorted(home[order], np.arange(communities + 1))
    src = draw.integers(0, nodes, edges)
    size = np.diff(begin)[home[src]]
    near = order[begin[home[src]] + (draw.random(edges) * size).astype(np.int64)]
    dst = np.where(draw.random(edges) < 0.75, near, draw.integers(0, nodes, edges))
    return vgraph.graph((torch.from_numpy(place[src]), torch.from_numpy(place[dst])), num_nodes=nodes)


def cut(g: vgraph.Graph, parts: Any) -> float:
    src, dst = (end.numpy() for end in g.edges())
    return float((parts[src] != parts[dst]).mean())


@pytest.mark.parametrize("method", ["ldg", "fennel"])
@pytest.mark.parametrize("num_parts", [4, 16])
def test_cut(method: str, num_parts: int) -> None:
    g = community_graph(4000, 60_000, 16)
    whole = whole_graph(g)
    balance = read_balance(whole, None)
    found = cut(g, streamed_parts(whole, num_parts, method, balance))
    best = cut(g, metis_parts(whole, num_parts, balance, 0))
    assert found <= 0.6 * (1 - 1 / num_parts), "hash cuts all but one of num_parts"
    assert found <= 1.5 * best


@settings(max_examples=30)
@given(st.integers(0, 1000), st.sampled_from(["ldg", "fennel"]), st.integers(1, 9), st.integers(1, 3))
def test_compiled_as_in_python(seed: int, method: str, num_parts: int, passes: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    users, items = 70, 3 + seed % 100
    ends: Any = [torch.randint(n, (300,), generator=draw) for n in (users, users, users, items)]
    g = vgraph.heterograph(
        {("user", "follows", "user"): (ends[0], ends[1]), ("user", "likes", "item"): (ends[2].int().long(), ends[3])},
        {"user": users, "item": items},
    )
    g.nodes["user"].data["train_mask"] = torch.rand(users, generator=draw) < 0.4
    g.nodes["item"].data["label"] = torch.randint(-1, 3, (items,), generator=draw)
    whole = whole_graph(g)
    balance = read_balance(whole, ["edges", "train", "label"] if seed % 2 else ["types"])
    first = streamed_parts(whole, num_parts, method, balance, seed, passes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "_compiled", lambda: None)
        second = streamed_parts(whole, num_parts, method, balance, seed, passes)
    assert streaming._compiled() is not None
    assert first.tolist() == second.tolist()
    assert first.min() >= 0 and first.max() < num_parts


@pytest.mark.parametrize("method", ["ldg", "fennel"])
def test_no_part_is_overfull(method: str) -> None:
    g = community_graph(3000, 20_000, 5)
    g.ndata["train_mask"] = torch.rand(3000) < 0.1
    whole = whole_graph(g)
    balance = read_balance(whole, "train,edges")
    parts = streamed_parts(whole, 8, method, balance)
    for column in weights_of(whole, balance).T:
        loads = np.bincount(parts, column, 8)
        assert loads.max() <= 1.1 * loads.mean()


def test_neighbours_come_far_from_one_another() -> None:
    for blocks in (1, 2, 3, 10, 64, 1001):
        stride = streaming._stride(blocks, 5)
        assert sorted(i * stride % blocks for i in range(blocks)) == list(range(blocks))
