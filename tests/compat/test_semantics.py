"""Each rule of DGL that programs lean on, on every kind of graph.

Kinds: ids of 64 and 32 bits, two types of nodes, parallel edges and self-loops, a graph after nodes and edges came
and went, one without edges, one without anything.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn

SRC, DST = [3, 0, 1, 3, 4, 0], [1, 2, 2, 1, 0, 1]  # node 3 has no in-edge, 4 neither; 3 -> 1 twice


@dataclass(frozen=True)
class Case:
    graph: vgraph.Graph
    src: list[int]
    dst: list[int]
    num_src: int
    num_dst: int

    def senders(self) -> Tensor:
        """Every source's row is its number, from 1."""
        return torch.arange(1.0, self.num_src + 1).unsqueeze(1)

    def in_edges(self, v: int) -> list[int]:
        return [e for e, d in enumerate(self.dst) if d == v]

    @property
    def lonely(self) -> list[int]:
        return [v for v in range(self.num_dst) if v not in self.dst]


def plain(idtype: torch.dtype) -> Case:
    g = vgraph.graph((torch.tensor(SRC, dtype=idtype), torch.tensor(DST, dtype=idtype)), num_nodes=5)
    return Case(g, SRC, DST, 5, 5)


def bipartite(idtype: torch.dtype) -> Case:
    ends = (torch.tensor(SRC, dtype=idtype), torch.tensor(DST, dtype=idtype))
    return Case(vgraph.heterograph({("a", "r", "b"): ends}, {"a": 5, "b": 4}), SRC, DST, 5, 4)


def multigraph(idtype: torch.dtype) -> Case:
    src, dst = [1, 1, 0, 2, 1, 2, 2], [0, 0, 0, 2, 0, 2, 1]
    g = vgraph.graph((torch.tensor(src, dtype=idtype), torch.tensor(dst, dtype=idtype)), num_nodes=4)
    return Case(g, src, dst, 4, 4)


def mutated(idtype: torch.dtype) -> Case:
    g = vgraph.graph((torch.tensor([0, 5, 1], dtype=idtype), torch.tensor([1, 2, 0], dtype=idtype)), num_nodes=6)
    g.add_nodes(1)
    g.add_edges([3, 2, 6], [1, 1, 4])
    g.remove_edges([0])  # 5->2 1->0 3->1 2->1 6->4
    g.remove_nodes([5])  # 1->0 3->1 2->1 5->4, of 6
    return Case(g, [1, 3, 2, 5], [0, 1, 1, 4], 6, 6)


def no_edges(idtype: torch.dtype) -> Case:
    none = torch.tensor([], dtype=idtype)
    return Case(vgraph.graph((none, none), num_nodes=3), [], [], 3, 3)


def nothing(idtype: torch.dtype) -> Case:
    none = torch.tensor([], dtype=idtype)
    return Case(vgraph.graph((none, none)), [], [], 0, 0)


KINDS: dict[str, Callable[[torch.dtype], Case]] = {
    f.__name__: f for f in (plain, bipartite, multigraph, mutated, no_edges, nothing)
}


@pytest.fixture(params=[torch.int64, torch.int32], ids=["int64", "int32"])
def idtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture(params=KINDS)
def case(request: pytest.FixtureRequest, idtype: torch.dtype) -> Case:
    made = KINDS[request.param](idtype)
    made.graph.srcdata["h"] = made.senders()
    return made


def update(g: vgraph.Graph, *functions: Any) -> None:
    """update_all, which warns where there is no edge."""
    if g.num_edges():
        g.update_all(*functions)
        return
    with pytest.warns(UserWarning, match="without edges"):
        g.update_all(*functions)


def test_ids_are_of_the_dtype_given_and_edges_keep_their_order(case: Case, idtype: torch.dtype) -> None:
    g = case.graph
    src, dst = g.edges()
    assert (src.tolist(), dst.tolist()) == (case.src, case.dst)
    assert g.idtype == src.dtype == dst.dtype == idtype and g.edges("eid").dtype == idtype
    assert g.edges("eid").tolist() == list(range(len(case.src)))
    for v in range(case.num_dst):
        assert g.in_edges(v, form="eid").tolist() == case.in_edges(v) and g.in_degrees(v) == len(case.in_edges(v))
    if case.src:
        assert g.find_edges(torch.tensor([0], dtype=idtype))[0].dtype == idtype


def test_a_mailbox_is_ordered_by_edge_id(case: Case) -> None:
    g, seen = case.graph, dict[int, list[float]]()
    g.edata["number"] = torch.arange(g.num_edges(), dtype=torch.float32)

    def reduce(nodes: Any) -> dict[str, Tensor]:
        for v, row in zip(nodes.nodes().tolist(), nodes.mailbox["m"].tolist(), strict=True):
            seen[v] = row
        return {"first": nodes.mailbox["m"][:, 0], "last": nodes.mailbox["m"][:, -1]}

    update(g, fn.copy_e("number", "m"), reduce)
    assert seen == {v: [float(e) for e in case.in_edges(v)] for v in range(case.num_dst) if case.in_edges(v)}
    for v in seen:
        assert [g.dstdata[name][v].item() for name in ("first", "last")] == [seen[v][0], seen[v][-1]]


def test_a_reduce_function_is_not_called_without_in_edges_but_apply_is(case: Case) -> None:
    g, called = case.graph, list[int]()

    def reduce(nodes: Any) -> dict[str, Tensor]:
        called.extend(nodes.nodes().tolist())
        return {"s": nodes.mailbox["m"].sum(1) + 100}

    def apply(nodes: Any) -> dict[str, Tensor]:
        assert nodes.batch_size() == case.num_dst
        return {"t": nodes.data["s"] + 1 if "s" in nodes.data else torch.ones(nodes.batch_size(), 1)}

    update(g, fn.copy_u("h", "m"), reduce, apply)
    assert sorted(called) == sorted(set(case.dst))
    for v in case.lonely:
        assert g.dstdata["t"][v].item() == 1
        assert not g.num_edges() or g.dstdata["s"][v].item() == 0
    for v in set(case.dst):
        wanted = sum(case.src[e] + 1 for e in case.in_edges(v)) + 100
        assert (g.dstdata["s"][v].item(), g.dstdata["t"][v].item()) == (wanted, wanted + 1)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
def test_reductions_give_zero_to_who_hears_nothing(case: Case, name: str) -> None:
    g = case.graph
    g.srcdata["h"] = -case.senders()  # below zero: an extremum of nothing is not the smallest number
    update(g, fn.copy_u("h", "m"), getattr(fn, name)("m", "out"))
    assert g.dstdata["out"].shape == (case.num_dst, *g.srcdata["h"].shape[1:])  # also without any edge
    for v in range(case.num_dst):
        sent = torch.tensor([-float(case.src[e] + 1) for e in case.in_edges(v)])
        wanted = getattr(torch, name)(sent).item() if len(sent) else 0
        assert g.dstdata["out"][v].item() == pytest.approx(wanted)


def test_pull_touches_what_it_is_given_in_any_order(case: Case, idtype: torch.dtype) -> None:
    g = case.graph
    g.dstdata["s"] = torch.full((case.num_dst, 1), -7.0)
    asked = list(range(case.num_dst))[::-2]
    g.pull(torch.tensor(asked, dtype=idtype), fn.copy_u("h", "m"), fn.sum("m", "s"))
    for v in range(case.num_dst):
        wanted = sum(case.src[e] + 1 for e in case.in_edges(v)) if v in asked else -7
        assert g.dstdata["s"][v].item() == wanted


def test_push_and_send_and_recv_touch_only_where_their_edges_end(case: Case, idtype: torch.dtype) -> None:
    g = case.graph
    pushers, some = [1, 2][: case.num_src], list(range(0, len(case.src), 2))
    pushed = [e for e, u in enumerate(case.src) if u in pushers]
    for edges, call, ids in ((pushed, g.push, pushers), (some, g.send_and_recv, some)):
        g.dstdata["s"] = torch.full((case.num_dst, 1), -7.0)
        call(torch.tensor(ids, dtype=idtype), fn.copy_u("h", "m"), fn.sum("m", "s"))
        for v in range(case.num_dst):
            sent = [case.src[e] + 1 for e in edges if case.dst[e] == v]
            assert g.dstdata["s"][v].item() == (sum(sent) if sent else -7)


def test_send_and_recv_apart(case: Case) -> None:
    g = case.graph
    g.dstdata["s"] = torch.full((case.num_dst, 1), -7.0)
    if not case.src:
        return
    g.send(None, fn.copy_u("h", "m"))
    g.recv(None, fn.sum("m", "s"))
    for v in range(case.num_dst):
        sent = [case.src[e] + 1 for e in case.in_edges(v)]
        assert g.dstdata["s"][v].item() == (sum(sent) if sent else -7)


def test_writing_a_feature_changes_no_tensor_that_autograd_has_saved(case: Case) -> None:
    g = case.graph
    x = case.senders().requires_grad_()
    g.srcdata["h"] = x * 2
    held = g.srcdata["h"]
    update(g, lambda edges: {"m": edges.src["h"].square()}, fn.sum("m", "s"))
    g.srcdata["h"] = torch.zeros(case.num_src, 1)
    if case.num_src and not case.graph.is_block and len(g.ntypes) == 1:
        g.nodes[[0]].data["h"] = torch.full((1, 1), 9.0)  # a part of a feature makes a new tensor, too
    assert torch.equal(held, x * 2)
    if g.num_edges():
        (slope,) = torch.autograd.grad(g.dstdata["s"].sum(), x)
        degree = torch.tensor([[float(case.src.count(u))] for u in range(case.num_src)])
        torch.testing.assert_close(slope, degree * 8 * x)


def test_frames_follow_mutation_and_new_rows_come_from_the_initializer(case: Case) -> None:
    g, ntype = case.graph, case.graph.ntypes[0]
    g.edata["w"] = torch.ones(g.num_edges(), 2)
    g.set_n_initializer(lambda shape, dtype, device, ids: torch.full(shape, 5.0, dtype=dtype), ntype=ntype)
    g.add_nodes(2, ntype=ntype)
    assert g.num_nodes(ntype) == case.num_src + 2
    assert g.nodes[ntype].data["h"].flatten().tolist() == [*range(1, case.num_src + 1), 5, 5]
    if case.num_dst:
        g.add_edges([case.num_src], [0])
        assert g.num_edges() == len(case.src) + 1 and g.edata["w"][-1].tolist() == [0, 0]
        assert g.edges()[0].tolist() == [*case.src, case.num_src] and g.idtype == g.edges()[0].dtype
        update(g, fn.copy_u("h", "m"), fn.sum("m", "s"))
        assert g.dstdata["s"][0].item() == sum(case.src[e] + 1 for e in case.in_edges(0)) + 5
        g.remove_edges([len(case.src)])
    g.remove_nodes([case.num_src, case.num_src + 1], ntype=ntype)
    assert [end.tolist() for end in g.edges()] == [case.src, case.dst]
    assert g.nodes[ntype].data["h"].flatten().tolist() == [*range(1, case.num_src + 1)]


def test_a_scope_shields_the_graph_from_what_happens_in_it(case: Case) -> None:
    g, ntype = case.graph, case.graph.ntypes[0]
    before = g.srcdata["h"]
    with g.local_scope():
        g.srcdata["h"] = torch.zeros(case.num_src, 3)
        g.srcdata["x"] = torch.zeros(case.num_src)
        g.add_nodes(3, ntype=ntype)
        if case.num_dst:
            g.add_edges([case.num_src], [0])
    assert g.num_nodes(ntype) == case.num_src and [end.tolist() for end in g.edges()] == [case.src, case.dst]
    assert g.srcdata["h"] is before and "x" not in g.srcdata
    update(g, fn.copy_u("h", "m"), fn.sum("m", "s"))
    other = g.local_var()
    other.srcdata["h"] = torch.zeros(case.num_src, 1)
    assert g.srcdata["h"] is before


def test_old_and_new_names_count_alike(case: Case) -> None:
    g = case.graph
    assert g.number_of_nodes() == g.num_nodes() and g.number_of_edges() == g.num_edges() == len(case.src)
    assert g.number_of_src_nodes() == g.num_src_nodes() and g.number_of_dst_nodes() == g.num_dst_nodes()
    assert torch.equal(g.in_degrees(), g.in_degrees(vgraph.ALL))


def test_the_error_of_programs_is_ours() -> None:
    assert vgraph.DGLError is vgraph.VGraphError
    with pytest.raises(vgraph.DGLError):
        vgraph.graph(([0], [1])).ndata["x"] = torch.ones(3)


def test_a_warning_says_that_only_apply_runs(idtype: torch.dtype) -> None:
    g = no_edges(idtype).graph
    g.ndata["h"] = torch.ones(3, 1)
    with pytest.warns(UserWarning, match="only the apply function runs"):
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"), lambda nodes: {"t": nodes.data["h"] + 1})
    assert g.ndata["t"].flatten().tolist() == [2, 2, 2] and "s" not in g.ndata
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        g.pull([0], fn.copy_u("h", "m"), fn.sum("m", "s"))
