"""What a call that cannot be meant says, and that nothing is changed by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import vgraph
import vgraph.function as fn
from vgraph import sampling
from vgraph.errors import (
    ArgumentError,
    DeviceError,
    DTypeError,
    FeatureError,
    FunctionError,
    GraphError,
    NameLookupError,
    VGraphError,
)

SUM = (fn.copy_u("h", "m"), fn.sum("m", "x"))


def plain() -> vgraph.Graph:
    g = vgraph.graph(([0, 1, 2], [2, 2, 0]))
    g.ndata["h"], g.edata["w"] = torch.ones(3, 2), torch.ones(3, 1)
    return g


def typed() -> vgraph.Graph:
    g = vgraph.heterograph({("a", "r", "b"): ([0, 1], [1, 0]), ("b", "s", "a"): ([0], [1])})
    g.nodes["a"].data["h"], g.nodes["b"].data["h"] = torch.ones(2, 2), torch.ones(2, 2)
    return g


def after_send(change: Callable[[vgraph.Graph], None]) -> Callable[[vgraph.Graph], None]:
    def run(g: vgraph.Graph) -> None:
        g.send(None, SUM[0])
        change(g)

    return run


TYPES = r"there is: .*'r'.*'s'"
WRONG: list[tuple[Callable[[], vgraph.Graph], Callable[[vgraph.Graph], Any], type[VGraphError], str]] = [
    # types that are not there name those that are
    (typed, lambda g: g.nodes["z"], NameLookupError, "'z'.*a.*b"),
    (typed, lambda g: g.num_nodes("z"), NameLookupError, "'z'.*a.*b"),
    (typed, lambda g: g.edges["z"], NameLookupError, TYPES),
    (typed, lambda g: g.num_edges("z"), NameLookupError, TYPES),
    (typed, lambda g: g["z"], NameLookupError, TYPES),
    (typed, lambda g: g["a", :, "z"], NameLookupError, r"\('a', :, 'z'\) means 0 of the edge types"),
    (typed, lambda g: g.in_degrees(), GraphError, "2 edge types.*\n.*\n  cure: name one of them with etype="),
    (typed, lambda g: g.update_all(SUM[0], fn.mean("m", "x")), GraphError, "2 edge types"),
    (typed, lambda g: g.update_all(*SUM, etype="z"), NameLookupError, TYPES),
    (typed, lambda g: g.pull([0], *SUM, etype="z"), NameLookupError, TYPES),
    (typed, lambda g: g.push([0], *SUM, etype="z"), NameLookupError, TYPES),
    (typed, lambda g: g.send_and_recv([0], *SUM, etype="z"), NameLookupError, TYPES),
    (typed, lambda g: g.send([0], SUM[0], etype="z"), NameLookupError, TYPES),
    (typed, lambda g: g.recv([0], SUM[1], etype="z"), NameLookupError, TYPES),
    (typed, lambda g: g.apply_edges(SUM[0], etype="z"), NameLookupError, TYPES),
    (typed, lambda g: g.apply_nodes(lambda nodes: {}, ntype="z"), NameLookupError, "'z'.*a.*b"),
    (typed, lambda g: g.multi_update_all({"z": SUM}, "sum"), NameLookupError, TYPES),
    (typed, lambda g: g.multi_update_all([SUM], "sum"), FunctionError, "by edge type are a list"),  # type: ignore[arg-type]
    (typed, lambda g: vgraph.node_subgraph(g, {"z": [0]}), NameLookupError, "'z'.*a.*b"),
    (typed, lambda g: vgraph.sum_nodes(g, "h", ntype="z"), NameLookupError, "'z'.*a.*b"),
    (typed, lambda g: vgraph.metapath_reachable_graph(g, ["z"]), NameLookupError, TYPES),
    (typed, lambda g: sampling.NeighborSampler([1]).sample(g, {"z": [0]}), NameLookupError, "'z'.*cure: one of a, b"),
    # ids of the wrong type or out of range
    (plain, lambda g: g.pull([9], *SUM), GraphError, "node ids must be whole numbers from 0 to 2"),
    (plain, lambda g: g.push([0.5], *SUM), GraphError, "node ids must be whole numbers"),
    (plain, lambda g: g.send_and_recv("x", *SUM), DTypeError, "edge ids are a str"),
    (plain, lambda g: g.send([7], SUM[0]), GraphError, "edge ids must be whole numbers from 0 to 2"),
    (plain, lambda g: g.recv(object(), SUM[1]), DTypeError, "node ids are a object"),
    (plain, lambda g: g.apply_edges(SUM[0], edges=[-1]), GraphError, "edge ids must be"),
    (plain, lambda g: g.nodes[9].data["h"], GraphError, "9"),
    (plain, lambda g: g.remove_edges([3]), GraphError, "3"),
    (plain, lambda g: g.remove_nodes([0.5]), DTypeError, "whole numbers|float"),
    (plain, lambda g: g.add_edges([-1], [0]), GraphError, r"u\[0\] is -1"),
    (plain, lambda g: g.add_nodes(-1), ArgumentError, "num=-1"),
    (plain, lambda g: g.subgraph(torch.tensor([True])), VGraphError, "bool|mask|entries"),
    (plain, lambda g: vgraph.khop_in_subgraph(g, 0, -1), ArgumentError, "k=-1"),
    (plain, lambda g: vgraph.khop_out_subgraph(g, 0, -2), ArgumentError, "k=-2"),
    (plain, lambda g: vgraph.topk_nodes(g, "h", 0), ArgumentError, "k=0"),
    (plain, lambda g: vgraph.topk_nodes(g, "h", 1.5), ArgumentError, "k=1.5"),
    (plain, lambda g: vgraph.slice_batch(g, "0"), ArgumentError, "gid='0'"),
    (plain, lambda g: vgraph.save_graphs("none.bin", None), FunctionError, r"save_graphs\(g_list=None\)"),
    (plain, lambda g: vgraph.from_pandas(None), FeatureError, "the table is a NoneType"),
    (plain, lambda g: vgraph.topk_edges(g, "w", 1, sortby=1), FeatureError, "sortby is 1 for 1 columns of 'w'"),
    (plain, lambda g: sampling.NeighborSampler(["x"]).sample(g, [0]), GraphError, "the fanout is 'x'"),
    (plain, lambda g: sampling.NeighborSampler([1.5]).sample(g, [0]), GraphError, "the fanout is 1.5"),
    (plain, lambda g: sampling.select_topk(g, -2, "w"), GraphError, "k is -2"),
    (plain, lambda g: sampling.select_topk(g, "3", "w"), GraphError, "k is '3'"),
    (plain, lambda g: sampling.NeighborSampler([torch.tensor([1, 2])]), GraphError, "the fanout is tensor"),
    (plain, lambda g: sampling.Uniform(-1), ArgumentError, "k=-1"),
    (plain, lambda g: sampling.GlobalUniform(-2), ArgumentError, "k=-2"),
    (plain, lambda g: g.num_nodes(3), NameLookupError, "no node type 3; types have names"),
    (plain, lambda g: g.num_nodes(["a"]), NameLookupError, "no node type"),
    (plain, lambda g: g.add_nodes(1, 3), FeatureError, "features of new rows are a int"),
    (plain, lambda g: g.add_edges([0], [1], torch.ones(1)), FeatureError, "features of new rows are a Tensor"),
    (plain, lambda g: g.inc("in", ctx="no such"), DeviceError, "'no such' is no device"),
    (plain, lambda g: g.adj_external(ctx=2.5), DeviceError, "2.5 is no device"),
    (plain, lambda g: g.to(2**70), DeviceError, "is no device"),
    (plain, lambda g: g.set_batch_num_edges([0.5]), DTypeError, "batch_num_edges, which begins with 0.5"),
    (plain, lambda g: g.pull(torch.ones(2) * 1j, *SUM), GraphError, "node ids must be whole numbers"),
    (plain, lambda g: vgraph.at(torch.tensor(1.0), torch.tensor([0])), FeatureError, r"rows of shape \(\)"),
    # features of another length
    (plain, lambda g: g.ndata.update(x=torch.ones(5)), FeatureError, "5"),
    (plain, lambda g: g.nodes[[0]].data.update(h=torch.ones(2, 2)), FeatureError, "2"),
    (plain, lambda g: g.add_edges([0], [1], {"w": torch.ones(2, 1)}), FeatureError, "2"),
    (typed, lambda g: g.ndata.update(x={"a": torch.ones(5)}), FeatureError, "5"),
    (plain, lambda g: vgraph.broadcast_nodes(g, torch.ones(5, 2)), FeatureError, "5"),
    # messages that lie on the edges
    (plain, after_send(lambda g: g.add_edges([0], [1])), GraphError, "messages that were sent lie on the edges"),
    (plain, after_send(lambda g: g.remove_edges([0])), GraphError, "cure: call recv before"),
    (plain, after_send(lambda g: g.remove_nodes([0])), GraphError, "messages that were sent"),
    (plain, after_send(lambda g: g.add_nodes(1)), GraphError, "messages that were sent"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "call", "kind", "message"), WRONG, ids=range(len(WRONG)))
def test_it_says_what_is_wrong_and_changes_nothing(
    make: Callable[[], vgraph.Graph], call: Callable[[vgraph.Graph], Any], kind: type[VGraphError], message: str
) -> None:
    g = make()
    with pytest.raises(kind, match=f"(?s){message}") as raised:
        call(g)
    assert raised.value.line is None or "test_wrong_calls.py" in raised.value.line
    same = make()
    assert g.canonical_etypes == same.canonical_etypes
    for t in g.ntypes:
        assert g.num_nodes(t) == same.num_nodes(t)
        assert {n: x.tolist() for n, x in g.nodes[t].data.items()} == {
            n: x.tolist() for n, x in same.nodes[t].data.items()
        }
    for t in g.canonical_etypes:
        assert [end.tolist() for end in g.edges(etype=t)] == [end.tolist() for end in same.edges(etype=t)]
        assert list(g.edges[t].data) == list(same.edges[t].data)


def test_received_messages_are_gone_and_no_hindrance() -> None:
    g = plain()
    g.send(None, SUM[0])
    g.recv(None, SUM[1])
    g.remove_edges([0])
    g.messages.clear()
    g.send([0], SUM[0])
    g.messages.clear()
    g.add_nodes(1)
    assert g.num_nodes() == 4


def test_an_initializer_set_in_a_scope_ends_with_it() -> None:
    g = plain()
    with g.local_scope():
        g.set_n_initializer(lambda shape, dtype, device, ids: torch.full(shape, 7.0))
        g.add_nodes(1)
        assert g.ndata["h"][3].tolist() == [7, 7]
    g.add_nodes(1)
    assert g.ndata["h"][3].tolist() == [0, 0]
