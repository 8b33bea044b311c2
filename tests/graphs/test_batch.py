"""Batches: round trips, derivatives, what every refusal says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import vgraph
from vgraph.errors import FeatureError, FunctionError, GraphError
from vgraph.ir.topology import Topology


def tree(num_nodes: int, *features: str) -> vgraph.Graph:
    parents = [(child - 1) // 2 for child in range(1, num_nodes)]
    g = vgraph.graph((list(range(1, num_nodes)), parents), num_nodes=num_nodes)
    for name in features:
        g.ndata[name] = torch.randn(num_nodes, 3)
    return g


@st.composite
def graphs(draw: st.DrawFn) -> vgraph.Graph:
    num_nodes = draw(st.integers(0, 5))
    ids = st.integers(0, max(num_nodes - 1, 0))
    edges = draw(st.lists(st.tuples(ids, ids), max_size=6)) if num_nodes else []
    g = vgraph.graph(([u for u, _ in edges], [v for _, v in edges]), num_nodes=num_nodes)
    g.ndata["h"] = torch.randn(num_nodes, 2)
    g.edata["w"] = torch.arange(len(edges))
    g.gdata["q"] = torch.randn(1, 2)
    return g


def assert_same(left: vgraph.Graph, right: vgraph.Graph) -> None:
    assert left.num_nodes() == right.num_nodes()
    for one, other in zip(left.coo(), right.coo(), strict=True):
        assert torch.equal(one, other)
    for one, other in (
        (left.ndata, right.ndata),
        (left.edata, right.edata),
        (left.gdata, right.gdata),
    ):
        assert list(one) == list(other)
        assert all(torch.equal(one[name], other[name]) for name in one)


def forget_parts(g: vgraph.Graph) -> vgraph.Graph:
    t = g.topology
    plain = Topology(t.src, t.dst, t.num_src, t.num_dst, t.graph_sizes)
    return vgraph.Graph(plain, g.ndata, g.edata, g.gdata)


# ---------------------------------------------------------------- what comes of it


@given(st.lists(graphs(), min_size=1, max_size=6), st.booleans(), st.booleans())
def test_round_trip(members: list[vgraph.Graph], is_small: bool, knows_parts: bool) -> None:
    members = [g.int() for g in members] if is_small else members
    joined = vgraph.batch(members)
    assert joined.idtype == members[0].idtype
    assert joined.batch_size == len(members)
    assert joined.batch_num_nodes().tolist() == [g.num_nodes() for g in members]
    assert joined.batch_num_edges().tolist() == [g.num_edges() for g in members]
    parts = vgraph.unbatch(joined if knows_parts else forget_parts(joined))
    for part, member in zip(parts, members, strict=True):
        assert_same(part, member)
        assert (part.topology is member.topology) == knows_parts
        assert part.batch_size == 1


@given(st.lists(graphs(), min_size=1, max_size=3), st.lists(graphs(), min_size=1, max_size=3))
def test_batches_of_batches_are_flat(left: list[vgraph.Graph], right: list[vgraph.Graph]) -> None:
    nested = vgraph.batch([vgraph.batch(left), vgraph.batch(right)])
    flat = vgraph.batch([*left, *right])
    assert_same(nested, flat)
    assert nested.topology.graph_sizes == flat.topology.graph_sizes
    assert nested.topology.parts == flat.topology.parts
    mixed = vgraph.batch([forget_parts(vgraph.batch(left)), *right])
    assert mixed.batch_size == len(left) + len(right)
    for part, member in zip(vgraph.unbatch(mixed), [*left, *right], strict=True):
        assert_same(part, member)


def test_offsets() -> None:
    g = vgraph.batch([tree(3), tree(1), tree(2)])
    assert (g.edges()[0].tolist(), g.edges()[1].tolist()) == ([1, 2, 5], [0, 0, 4])
    assert g.batch_num_edges().tolist() == [2, 0, 1]
    assert g.gdata.num_rows == 3
    assert g.topology.graph_ids.tolist() == [0, 0, 0, 1, 2, 2]


def test_a_batch_of_one_has_tensors_of_its_own() -> None:
    g = tree(3)
    assert vgraph.batch([g]).edges()[0].data_ptr() != g.edges()[0].data_ptr()
    vgraph.batch([tree(2), g])
    assert g.edges()[0].tolist() == [1, 2]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_graphs_seen_before_are_batched_alike(dtype: torch.dtype) -> None:
    members = [tree(n).astype(dtype) for n in (3, 1, 5)]
    first = vgraph.batch(members)
    again = vgraph.batch([members[2], tree(4).astype(dtype), *members[:2]])  # one is new
    third = vgraph.batch([members[2], *members[:2]])
    assert [ids.tolist() for ids in first.edges()] == [[1, 2, 5, 6, 7, 8], [0, 0, 4, 4, 5, 5]]
    assert again.edges()[0].tolist() == [1, 2, 3, 4, 6, 7, 8, 10, 11]
    assert [ids.tolist() for ids in third.edges()] == [[1, 2, 3, 4, 6, 7], [0, 0, 1, 1, 5, 5]]
    assert {ids.dtype for g in (first, again, third) for ids in g.edges()} == {dtype}
    members[2].add_edges(0, 4)
    assert vgraph.batch([members[2], members[0]]).edges()[0].tolist() == [1, 2, 3, 4, 0, 6, 7]


def test_one_graph_is_unbatched_as_itself() -> None:
    g = tree(3, "h")
    (part,) = vgraph.unbatch(g)
    part.ndata["x"] = torch.ones(3)
    assert part.topology is g.topology
    assert list(g.ndata) == ["h"]


def test_a_generator_of_graphs() -> None:
    assert vgraph.batch(tree(n) for n in (1, 2)).num_nodes() == 3


def test_graphs_without_rows_need_no_features() -> None:
    g, empty = tree(2, "h"), vgraph.graph(([], []))
    g.edata["w"] = torch.ones(1)
    for order in ([g, tree(1, "h"), empty], [empty, tree(1, "h"), g]):
        joined = vgraph.batch(order)
        assert joined.ndata["h"].shape == (3, 3)
        assert joined.edata["w"].shape == (1,)
        assert joined.batch_size == 3
    nothing = vgraph.batch([empty, empty])
    assert (nothing.num_nodes(), nothing.batch_size) == (0, 2)
    assert [part.num_nodes() for part in vgraph.unbatch(nothing)] == [0, 0]


def test_unbatch_of_edges_that_are_not_in_order() -> None:
    members = [tree(3), tree(2)]
    for g in members:
        g.edata["w"] = torch.zeros(g.num_edges())
    parts = vgraph.unbatch(vgraph.add_self_loop(vgraph.batch(members)))
    for part, member in zip(parts, members, strict=True):
        assert_same(part, vgraph.add_self_loop(member))


def test_unbatch_of_the_reverse() -> None:
    members = [tree(3, "h"), tree(4, "h")]
    for part, member in zip(vgraph.unbatch(vgraph.batch(members).reverse()), members, strict=True):
        assert_same(part, member.reverse())


def test_the_reverse_of_a_batch_of_two_types() -> None:
    g = vgraph.heterograph({("a", "to", "b"): ([0, 1, 2, 2], [0, 2, 3, 4])})
    g.set_batch_num_nodes({"a": [2, 1], "b": [3, 2]})
    turned = vgraph.reverse(g)
    assert turned.batch_num_edges().tolist() == [2, 2]
    ends = [[end.tolist() for end in part.edges()] for part in vgraph.unbatch(turned)]
    assert ends == [[[0, 2], [0, 1]], [[0, 1], [0, 0]]]


def test_unbatch_after_a_change_of_idtype() -> None:
    parts = vgraph.unbatch(vgraph.batch([tree(3), tree(4)]).int())
    assert [part.idtype for part in parts] == [torch.int32, torch.int32]
    assert_same(parts[1], tree(4).int())


# ---------------------------------------------------------------- derivatives


def test_gradcheck_through_batch_and_unbatch() -> None:
    a, b = (torch.randn(n, 2, dtype=torch.float64, requires_grad=True) for n in (3, 4))
    w = torch.randn(2, dtype=torch.float64, requires_grad=True)

    def run(a: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        left, right = tree(3), tree(4)
        left.ndata["h"], right.ndata["h"] = a, b
        left.gdata["q"], right.gdata["q"] = w[:1], w[1:]
        joined = vgraph.batch([left, right])
        joined.ndata["h"] = joined.ndata["h"] * joined.gdata["q"][joined.topology.graph_ids, None]
        return joined.ndata["h"].sin(), *(part.ndata["h"] ** 2 for part in vgraph.unbatch(joined))

    assert torch.autograd.gradcheck(run, (a, b, w))
    assert torch.autograd.gradgradcheck(run, (a, b, w))


# ---------------------------------------------------------------- what is refused


def with_feature(name: str, value: Tensor) -> vgraph.Graph:
    g = tree(2)
    getattr(g, f"{name[0]}data")[name] = value
    return g


@pytest.mark.parametrize(
    ("members", "error", "fact"),
    [
        ([], GraphError, "there are no graphs to batch"),
        ([tree(2), "tree"], FunctionError, "item 1 of the graphs is a str, not a graph"),
        (
            [tree(2), tree(2), tree(2).int()],
            GraphError,
            "graph 2 has torch.int32 ids on cpu, graph 0",
        ),
        ([tree(2), tree(2).to("meta")], GraphError, "graph 1 has torch.int64 ids on meta, graph 0"),
        (
            [tree(2, "n"), tree(2, "n"), tree(2)],
            FeatureError,
            "graph 2 has no node feature 'n', which graph 0 has",
        ),
        (
            [tree(2), tree(2, "n")],
            FeatureError,
            "graph 0 has no node feature 'n', which graph 1 has",
        ),
        (
            [tree(2, "a"), tree(2, "b")],
            FeatureError,
            "graph 1 has no node feature 'a', which graph 0 has",
        ),
        (
            [with_feature("e", torch.ones(1)), tree(1), tree(2)],
            FeatureError,
            "graph 2 has no edge feature 'e', which graph 0 has",
        ),
        (
            [tree(2), with_feature("g", torch.ones(1))],
            FeatureError,
            "graph 0 has no graph feature 'g', which graph 1 has",
        ),
        (
            [tree(2, "n"), with_feature("n", torch.ones(2, 4))],
            FeatureError,
            "node feature 'n' of graph 1 is float32 (2, 4); of graph 0 it is float32 (2, 3)",
        ),
        (
            [with_feature("e", torch.ones(1)), with_feature("e", torch.ones(1).double())],
            FeatureError,
            "edge feature 'e' of graph 1 is float64 (1,); of graph 0 it is float32 (1,)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(members: Any, error: type[Exception], fact: str) -> None:
    with pytest.raises(error) as caught:
        vgraph.batch(members)
    assert fact in str(caught.value)
    assert "cure: " in str(caught.value)
    assert Path(__file__).name in str(caught.value)


def test_too_many_nodes_for_int32() -> None:
    half = vgraph.graph(([0], [1]), num_nodes=2**30, idtype=torch.int32)
    with pytest.raises(GraphError, match=r"2147483648 nodes cannot be numbered(.|\n)*long"):
        vgraph.batch([half, half])


def test_an_edge_between_two_graphs() -> None:
    ends = torch.tensor([0, 1]), torch.tensor([1, 2])
    g = vgraph.Graph(Topology(*ends, 3, 3, graph_sizes=(2, 1)))
    with pytest.raises(GraphError, match=r"edge 1 \(1 -> 2\) joins two graphs"):
        vgraph.unbatch(g)
