"""Messages, softmax and slices over several types of edges at once are those of the graph without types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn

U, G = 4, 3
KINDS = {
    ("u", "f", "u"): ([0, 1, 2, 2], [1, 2, 0, 1]),
    ("u", "p", "g"): ([0, 2, 2], [1, 0, 1]),
    ("g", "x", "u"): ([0, 1, 1], [1, 1, 2]),
    ("u", "none", "g"): ([], []),
}


def typed() -> vgraph.Graph:
    g = vgraph.heterograph(KINDS, {"u": U, "g": G})
    for name in g.ntypes:
        g.nodes[name].data["h"] = torch.randn(g.num_nodes(name), 2, requires_grad=True)
    for etype in g.canonical_etypes:
        g.edges[etype].data["w"] = torch.randn(g.num_edges(etype), 2)
    return g


@pytest.mark.parametrize("reduce", [fn.sum, fn.max, fn.min])
@pytest.mark.parametrize("message", [fn.copy_u("h", "m"), fn.u_mul_e("h", "w", "m"), fn.copy_e("w", "m")])
def test_built_ins_run_along_all_types(message: Any, reduce: Callable[[str, str], Any]) -> None:
    g = typed()
    g.update_all(message, reduce("m", "y"), lambda nodes: {"z": nodes.data["y"] + 1})
    whole = vgraph.to_homogeneous(g, ["h"], ["w"])
    whole.update_all(message, reduce("m", "y"))
    found = torch.cat([g.nodes[name].data["y"] for name in g.ntypes])
    torch.testing.assert_close(found, whole.ndata["y"])
    torch.testing.assert_close(torch.cat([g.nodes[name].data["z"] for name in g.ntypes]), found + 1)
    if found.requires_grad:
        rows = [g.nodes[name].data["h"] for name in g.ntypes]
        torch.testing.assert_close(
            torch.autograd.grad(found.square().sum(), rows),
            torch.autograd.grad(whole.ndata["y"].square().sum(), rows),
        )


@pytest.mark.parametrize("reduce", [fn.max, fn.min])
def test_whole_numbers_have_a_largest_and_a_least_along_all_types(reduce: Callable[[str, str], Any]) -> None:
    g = typed()
    for name in g.ntypes:
        g.nodes[name].data["n"] = torch.randint(-5, 5, (g.num_nodes(name),))
    g.update_all(fn.copy_u("n", "m"), reduce("m", "y"))
    whole = vgraph.to_homogeneous(g, ["n"])
    whole.update_all(fn.copy_u("n", "m"), reduce("m", "y"))
    assert torch.equal(torch.cat([g.nodes[name].data["y"] for name in g.ntypes]), whole.ndata["y"])


def test_apply_edges_of_all_types() -> None:
    g = typed()
    g.apply_edges(fn.u_add_v("h", "h", "s"))
    for etype in g.canonical_etypes:
        src, dst = g.edges(etype=etype)
        wanted = g.nodes[etype[0]].data["h"][src] + g.nodes[etype[2]].data["h"][dst]
        torch.testing.assert_close(g.edges[etype].data["s"], wanted)


def test_a_failure_sets_nothing() -> None:
    g = typed()
    del g.edges["f"].data["w"]
    with pytest.raises(vgraph.errors.NameLookupError):
        g.apply_edges(fn.copy_e("w", "s"))
    assert all("s" not in g.edges[etype].data for etype in g.canonical_etypes)


@pytest.mark.parametrize("norm_by", ["dst", "src"])
@pytest.mark.parametrize("function", [vgraph.ops.edge_softmax, vgraph.nn.edge_softmax])
def test_softmax_over_all_types(function: Callable[..., Any], norm_by: str) -> None:
    g = typed()
    rows: dict[Any, Tensor] = {etype: g.edges[etype].data["w"] for etype in g.canonical_etypes}
    found = function(g, rows, norm_by=norm_by)
    whole = vgraph.to_homogeneous(g, edata=["w"])
    wanted = vgraph.ops.edge_softmax(whole, whole.edata["w"], norm_by=norm_by)
    assert list(found) == list(rows)
    torch.testing.assert_close(torch.cat(list(found.values())), wanted)


def test_slices_of_several_types() -> None:
    g = typed()
    one = g["u", :, "g"]
    assert one.canonical_etypes == [("u", "none+p", "g")]
    assert [end.tolist() for end in one.edges()] == [[0, 2, 2], [1, 0, 1]]
    assert one.edata["_ID"].tolist() == [0, 1, 2]
    assert one.edata["_TYPE"].tolist() == [g.get_etype_id("p")] * 3
    assert torch.equal(one.edata["w"], g.edges["p"].data["w"])
    assert one.nodes["u"].data["h"] is g.nodes["u"].data["h"]
    every = g[:, :, :]
    assert (every.ntypes, every.num_nodes()) == (["g+u"], U + G)
    assert torch.equal(every.ndata["h"], torch.cat([g.nodes[name].data["h"] for name in g.ntypes]))
    whole = vgraph.to_homogeneous(g)
    assert sorted(zip(*(end.tolist() for end in every.edges()), strict=True)) == sorted(
        zip(*(end.tolist() for end in whole.edges()), strict=True)
    )


def test_functions_are_told_types() -> None:
    g, told = typed(), set[object]()

    def message(edges: vgraph.EdgeBatch) -> dict[str, Tensor]:
        told.add(edges.canonical_etype)
        return {"m": edges.src["h"]}

    def reduce(nodes: vgraph.NodeBatch) -> dict[str, Tensor]:
        told.add(nodes.ntype)
        return {"y": nodes.mailbox["m"].sum(1)}

    for etype in ("p", "f"):
        g.update_all(message, reduce, etype=etype)
        g.apply_edges(message, etype=etype)
    assert told == {("u", "p", "g"), "g", ("u", "f", "u"), "u"}
    told.clear()
    g.apply_nodes(lambda nodes: {"k": nodes.data["h"] * len(nodes.ntype)}, ntype="g")
    assert torch.equal(g.nodes["g"].data["k"], g.nodes["g"].data["h"])


def test_a_function_that_passes_messages_itself_is_told_its_own_type() -> None:
    g, told = typed(), list[object]()

    def message(edges: vgraph.EdgeBatch) -> dict[str, Tensor]:
        with g.local_scope():
            g.update_all(fn.copy_u("h", "m"), fn.sum("m", "y"), etype="x")
        told.append(edges.canonical_etype)
        return {"m": edges.src["h"]}

    g.update_all(message, fn.sum("m", "y"), etype="p")
    assert told[-1] == ("u", "p", "g")


def seven(shape: Any, dtype: Any, device: Any, ids: slice) -> Tensor:
    return torch.full(shape, 7, dtype=dtype, device=device)


def test_initializers_fill_where_a_function_is_not_called() -> None:
    g = vgraph.graph(([0], [1]), num_nodes=3)
    g.ndata["h"] = torch.ones(3)
    g.set_n_initializer(seven)
    reduce: Any = lambda nodes: {"y": nodes.mailbox["m"].sum(1)}  # noqa: E731
    g.update_all(fn.copy_u("h", "m"), reduce, lambda nodes: {"z": nodes.data["y"] * 2})
    assert (g.ndata["y"].tolist(), g.ndata["z"].tolist()) == ([7, 1, 7], [14, 2, 14])
    del g.ndata["y"]
    g.pull([0, 1], fn.copy_u("h", "m"), reduce)
    assert g.ndata["y"].tolist() == [7, 1, 7]
    g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
    assert g.ndata["s"].tolist() == [0, 1, 0]  # the sum of nothing
