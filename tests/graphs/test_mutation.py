"""Nodes and edges that come and go: features follow, plans stay right, scopes restore."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import vgraph
import vgraph.function as fn
from vgraph.errors import ArgumentError, DTypeError, FeatureError, GraphError
from vgraph.ir.topology import Topology


def example() -> vgraph.Graph:
    g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
    g.ndata["h"], g.edata["w"] = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 3.0])
    return g


def sums(g: vgraph.Graph) -> list[float]:
    g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
    return g.ndata["s"].tolist()


def test_features_follow() -> None:
    g = example()
    view = g.ndata
    g.add_nodes(2, {"h": torch.tensor([4.0, 5.0]), "new": torch.ones(2, 2)})
    assert view["h"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert g.ndata["new"].sum(1).tolist() == [0.0, 0.0, 0.0, 2.0, 2.0]
    g.add_edges([3, 4], [0, 0], {"w": torch.tensor([8.0, 9.0])})
    g.add_edges(1, [3, 4])
    assert g.edata["w"].tolist() == [1.0, 2.0, 3.0, 8.0, 9.0, 0.0, 0.0]
    assert sums(g) == [12.0, 1.0, 2.0, 2.0, 2.0]
    g.remove_edges([0, 3], store_ids=True)
    assert (g.edata["w"].tolist(), g.edata["_ID"].tolist()) == ([2.0, 3.0, 9.0, 0.0, 0.0], [1, 2, 4, 5, 6])
    g.remove_nodes([1, 3])
    assert [end.tolist() for end in g.edges()] == [[1, 2], [0, 0]]
    assert g.ndata["h"].tolist() == [1.0, 3.0, 5.0]
    assert sums(g) == [8.0, 0.0, 0.0]


def test_an_empty_graph_grows() -> None:
    g = vgraph.Graph()
    g.add_nodes(3)
    g.add_edges([0, 1], [1, 2])
    g.add_edges(5, 6)  # nodes that do not exist yet are added
    assert (g.num_nodes(), g.num_edges()) == (7, 3)


def test_initializers() -> None:
    g = example()
    g.set_n_initializer(lambda shape, dtype, device, ids: torch.full(shape, float(ids.start), dtype=dtype))
    g.set_e_initializer(lambda shape, dtype, device, ids: torch.ones(shape, dtype=dtype), field="w")
    g.add_nodes(2)
    g.add_edges(3, 4)
    assert (g.ndata["h"].tolist(), g.edata["w"].tolist()) == ([1.0, 2.0, 3.0, 3.0, 3.0], [1.0, 2.0, 3.0, 1.0])


def test_typed_nodes_and_edges() -> None:
    g = vgraph.heterograph({("u", "f", "u"): ([0, 1], [1, 2]), ("u", "p", "g"): ([0, 2], [1, 0])})
    g.add_nodes(1, ntype="g")
    g.add_edges([4], [2], etype="p")
    assert (g.num_nodes("u"), g.num_nodes("g"), g.num_edges("p")) == (5, 3, 3)
    g.remove_nodes([0, 1], ntype="u")
    assert [end.tolist() for end in g.edges(etype="p")] == [[0, 2], [0, 2]]
    assert g.num_edges("f") == 0
    g.remove_edges([0], etype="p")
    assert g.num_edges("p") == 1


def test_functions_leave_the_graph_alone() -> None:
    g = example()
    assert vgraph.add_nodes(g, 1).num_nodes() == 4
    assert vgraph.add_edges(g, [0], [0]).num_edges() == 4
    assert vgraph.remove_nodes(g, [0]).num_nodes() == 2
    assert vgraph.remove_edges(g, [0]).num_edges() == 2
    assert (g.num_nodes(), g.num_edges(), g.edata["w"].tolist()) == (3, 3, [1.0, 2.0, 3.0])


def test_a_scope_restores_the_edges() -> None:
    g = example()
    with g.local_scope():
        g.add_edges([0, 7], [2, 0])
        g.remove_nodes([1])
        assert g.num_nodes() == 7
    assert (g.num_nodes(), g.num_edges(), g.edata["w"].tolist()) == (3, 3, [1.0, 2.0, 3.0])
    assert sums(g) == [3.0, 1.0, 2.0]


def test_a_local_copy_does_not_change_its_origin() -> None:
    g = example()
    other = g.local_var()
    other.add_edges([0], [0])
    assert (g.num_edges(), other.num_edges(), len(g.edata["w"])) == (3, 4, 3)


def test_what_autograd_saved_stays() -> None:
    g = example()
    g.ndata["h"] = h = torch.ones(3, requires_grad=True)
    g.ndata["p"] = g.ndata["h"] ** 2
    g.add_nodes(1)
    g.ndata["p"].sum().backward()
    assert h.grad is not None
    assert h.grad.tolist() == [2.0, 2.0, 2.0]


def test_a_batch_of_changed_graphs() -> None:
    g = vgraph.batch([example(), example()])
    g.add_edges([0, 4], [0, 4])
    assert (g.batch_num_nodes().tolist(), g.batch_num_edges().tolist()) == ([3, 3], [4, 4])
    g.remove_nodes([0, 1, 5])
    assert (g.batch_num_nodes().tolist(), g.batch_num_edges().tolist()) == ([1, 2], [0, 2])
    g.add_nodes(1)
    assert g.batch_size == 1
    g.set_batch_num_nodes([1, 3])
    g.set_batch_num_edges([0, 2])
    assert [part.num_edges() for part in vgraph.unbatch(vgraph.remove_edges(g, [0]))] == [0, 1]


@pytest.mark.parametrize(
    ("change", "error", "fact"),
    [
        (lambda g: g.add_nodes(-1), ArgumentError, "num=-1"),
        (lambda g: g.add_nodes(1, {"h": torch.ones(2)}), FeatureError, "'h' has 2 rows where 1 are"),
        (lambda g: g.add_nodes(1, {"h": torch.ones(1, 2)}), FeatureError, r"are float32 \(1, 2\); the feature is"),
        (lambda g: g.add_edges([0, 1], [0, 1, 2]), GraphError, "there are 2 ids in u and 3 in v"),
        (lambda g: g.add_edges([0, -1], [0, 1]), GraphError, r"u\[1\] is -1"),
        (lambda g: g.add_edges([0.5], [1]), DTypeError, "begins with 0.5"),
        (lambda g: g.add_edges([9], [1], {"w": torch.ones(3)}), FeatureError, "'w' has 3 rows where 1 are"),
        (lambda g: g.remove_edges([3]), GraphError, "is 3, where there are 3 edges"),
        (lambda g: g.remove_nodes([-1]), GraphError, "is -1, which is negative"),
        (lambda g: g.set_batch_num_nodes([1, 1]), GraphError, r"is \(1, 1\) for 3 nodes"),
        (lambda g: g.set_batch_num_edges([1, 2]), GraphError, r"is \[1, 2\]; \[3\] edges end"),
    ],
)
def test_refusals_change_nothing(change: Callable[[vgraph.Graph], Any], error: type[Exception], fact: str) -> None:
    g = example()
    with pytest.raises(error, match=fact):
        change(g)
    assert (g.num_nodes(), g.num_edges(), list(g.ndata), list(g.edata)) == (3, 3, ["h"], ["w"])
    assert sums(g) == [3.0, 1.0, 2.0]


def test_an_initializer_that_fails_changes_nothing() -> None:
    def fail(*_: object) -> torch.Tensor:
        raise ValueError("no rows")

    g = example()
    g.set_n_initializer(fail)
    with pytest.raises(ValueError, match="no rows"):
        g.add_edges([0], [5])
    assert (g.num_nodes(), g.num_edges(), len(g.edata["w"])) == (3, 3, 3)
    assert sums(g) == [3.0, 1.0, 2.0]


SLICES: dict[str, Callable[[vgraph.Graph], vgraph.Graph]] = {
    "in brackets": lambda g: g["f"],
    "by function": lambda g: vgraph.edge_type_subgraph(g, ["f"]),
}


@pytest.mark.parametrize("name", SLICES)
def test_a_graph_of_some_types_and_its_whole_change_apart(name: str) -> None:
    for changes_whole in (False, True):
        g = vgraph.heterograph({("u", "f", "u"): ([0, 1, 2], [1, 2, 2]), ("u", "p", "g"): ([0, 2], [1, 0])})
        g.nodes["u"].data["h"], g.edges["f"].data["w"] = torch.arange(3.0), torch.ones(3)
        part = SLICES[name](g)
        part.ndata["k"] = torch.ones(3)
        assert "k" in g.nodes["u"].data  # features are of both
        changed, other = (g, part) if changes_whole else (part, g)
        changed.add_nodes(2, ntype="u")
        changed.remove_nodes([0], ntype="u")
        changed.remove_edges([0], etype="f")
        assert (changed.num_nodes("u"), changed.num_edges("f")) == (4, 1)
        assert (other.num_nodes("u"), other.num_edges("f"), len(other.edges["f"].data["w"])) == (3, 3, 3)
        other.apply_edges(fn.copy_u("h", "m"), etype="f")
        assert other.edges["f"].data["m"].tolist() == [0.0, 1.0, 2.0]


def test_what_the_cpu_knows_of_a_graph_elsewhere_changes_with_it() -> None:
    ends = torch.tensor([0, 1]), torch.tensor([1, 2])
    for change, degrees in (
        (lambda g: g.add_edges([2], [0]), [1, 1, 1]),
        (lambda g: g.add_nodes(1), [0, 1, 1, 0]),
        (lambda g: g.set_batch_num_nodes([1, 2]), [0, 1, 1]),
    ):
        g = vgraph.Graph(Topology(*ends, 3, 3, host=Topology(*ends, 3, 3)))
        change(g)
        assert g.in_degrees().tolist() == degrees and g.topology.host is None


def test_ids_of_edges_are_kept_and_those_of_nodes_left_alone() -> None:
    """A subgraph's nodes still say which nodes of the whole they are."""
    whole = vgraph.graph(([0, 1, 3], [1, 3, 0]))
    for remove in (vgraph.remove_edges, lambda g, ids, store_ids: g.remove_edges(ids, store_ids=store_ids) or g):
        part = remove(vgraph.node_subgraph(whole, [3, 1, 0]), [0], store_ids=True)
        assert part.ndata["_ID"].tolist() == [3, 1, 0]
        assert part.edata["_ID"].tolist() == [1, 2]
