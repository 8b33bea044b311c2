"""What PyG's layers derive from an edge_index is made once, found again while nothing has changed, and let go."""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from vgraph.capture.errors import CaptureError
from vgraph.compat.pyg import accelerated, by_relation, masked, propagate, topologies
from vgraph.ir.topology import Topology

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG's import uses what torch has deprecated
        import torch_geometric.nn as pyg
        from torch_geometric import utils
        from torch_geometric.nn.conv.gcn_conv import gcn_norm
except ImportError:
    pytest.skip("torch_geometric is not installed", allow_module_level=True)

N, E, F, D = 30, 100, 4, 3


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Topology]:
    """The topologies that are made."""
    found: list[Topology] = []

    def make(*args: object, **named: object) -> Topology:
        found.append(Topology(*args, **named))
        return found[-1]

    monkeypatch.setattr(topologies, "Topology", make)
    return found


def given() -> tuple[Tensor, Tensor]:
    return torch.randn(N, F), torch.randint(0, N, (2, E))


class ByHand(pyg.MessagePassing):
    """As PyG's tutorial writes a GCN; ``writes``: it writes to what it has derived."""

    writes = False

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index, _ = utils.add_self_loops(edge_index, num_nodes=x.size(0))
        if self.writes:
            edge_index[0, 0] = 0
        return self.propagate(edge_index, x=x)


def calls(kind: str) -> Callable[[pyg.MessagePassing, Tensor, Tensor], Tensor]:
    return {
        "attributes": lambda layer, x, ids: layer(x, ids, torch.ones(ids.shape[1], D, requires_grad=True)),
        "weights": lambda layer, x, ids: layer(x, ids, torch.ones(ids.shape[1], requires_grad=True)),
    }.get(kind, lambda layer, x, ids: layer(x, ids))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: pyg.GCNConv(F, F), ""),
        (lambda: pyg.GCNConv(F, F), "weights"),
        (lambda: pyg.GATConv(F, F), ""),
        (lambda: pyg.GATv2Conv(F, F, edge_dim=D), "attributes"),
        (lambda: pyg.ChebConv(F, F, 2), ""),
        (lambda: pyg.GCN(F, F, 2), ""),
        (ByHand, ""),
    ],
)
def test_one_topology_for_all_calls(make: Callable[[], pyg.MessagePassing], kind: str, made: list[Topology]) -> None:
    (x, ids), theirs, call = given(), make(), calls(kind)
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    for _ in range(3):
        torch.testing.assert_close(call(ours, x, ids), call(theirs, x, ids))
    assert len(made) == 1


def test_what_was_derived_before_serves_inference_mode() -> None:
    """A program gets a copy, which counts no versions there."""
    (x, ids), layer = given(), pyg.GCNConv(F, F, normalize=False)

    def program() -> Tensor:
        return layer(x, *gcn_norm(ids, num_nodes=N))

    wanted = program()
    with accelerated():
        for _ in range(2):
            torch.testing.assert_close(program(), wanted)
            with torch.inference_mode():
                torch.testing.assert_close(program(), wanted)


@pytest.mark.parametrize("make", [lambda: pyg.GCNConv(F, F), lambda: pyg.GATConv(F, F), ByHand])
def test_what_is_written_to_is_derived_anew(make: Callable[[], pyg.MessagePassing]) -> None:
    (x, ids), theirs = given(), make()
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    ours(x, ids)
    ids[0, :5] = (ids[0, :5] + 1) % N
    torch.testing.assert_close(ours(x, ids), theirs(x, ids))
    ids.data = torch.randint(0, N, (2, E))
    torch.testing.assert_close(ours(x, ids), theirs(x, ids))


def test_other_nodes_numbers_and_rows_are_other_calls() -> None:
    ids, more = given()[1], torch.randn(N + 5, F)
    theirs = pyg.GCNConv(F, F)
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    weights = [torch.rand(E), torch.rand(E)]
    for improved in (False, True):
        ours.improved = theirs.improved = improved
        for x in (more[:N], more):
            for weight in (None, *weights, *weights):
                torch.testing.assert_close(ours(x, ids, weight), theirs(x, ids, weight))
    weights[0].mul_(2)
    torch.testing.assert_close(ours(more, ids, weights[0]), theirs(more, ids, weights[0]))


@pytest.mark.parametrize("fill", [1.0, 2, "mean", "max", torch.tensor(3.0)])
def test_fill_values(fill: object) -> None:
    (x, ids), attributes = given(), torch.rand(E, D)
    theirs = pyg.GATConv(F, F, edge_dim=D)
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    ours(x, ids, attributes)
    ours.fill_value = theirs.fill_value = fill
    for _ in range(2):
        torch.testing.assert_close(ours(x, ids, attributes), theirs(x, ids, attributes))


def test_rows_that_need_gradients_have_them() -> None:
    (x, ids), weight = given(), torch.rand(E)
    theirs = pyg.GCNConv(F, F)
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    ours(x, ids, weight)
    weight.requires_grad_()
    with torch.no_grad():
        ours(x, ids, weight)
    for _ in range(2):
        grads = [torch.autograd.grad(layer(x, ids, weight).sum(), weight) for layer in (ours, theirs)]
        torch.testing.assert_close(*grads)


def test_what_is_handed_out_is_the_programs_own() -> None:
    (x, ids), theirs = given(), pyg.GATConv(F, F)
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    wanted = theirs(x, ids)
    handed = [ours(x, ids, return_attention_weights=True)[1][0] for _ in range(2)]
    handed[0].zero_()
    torch.testing.assert_close(handed[1], theirs(x, ids, return_attention_weights=True)[1][0])
    torch.testing.assert_close(ours(x, ids), wanted)


def test_a_layer_may_write_to_what_it_derives(made: list[Topology]) -> None:
    (x, ids), theirs = given(), ByHand()
    other, ours = vgraph.accelerate(ByHand()), vgraph.accelerate(ByHand())
    ours.writes = True
    for _ in range(2):
        ours(x, ids)
        torch.testing.assert_close(other(x, ids), theirs(x, ids))
    assert len(made) == 3  # of every tensor that was written to, and one


def test_what_somebody_writes_to_is_not_found_again() -> None:
    (x, ids), theirs = given(), pyg.GCNConv(F, F, cached=True)
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    ours(x, ids)
    for kept in ours._cached_edge_index:
        kept.zero_()
    ours.cached, ours._cached_edge_index = False, None
    torch.testing.assert_close(ours(x, ids), theirs(x, ids))


def test_functions_of_a_program(made: list[Topology]) -> None:
    (x, ids), layer = given(), pyg.SAGEConv(F, F)
    assert gcn_norm(ids)[0] is not gcn_norm(ids)[0]
    with accelerated():
        first, second = (utils.to_undirected(ids) for _ in range(2))
        assert first is not second
        torch.testing.assert_close(layer(x, first), layer(x, second))
        first.zero_()
        assert bool(second.any())
        assert gcn_norm(ids, add_self_loops=False)[0] is ids
    assert len(made) == 1


@pytest.mark.parametrize("count", [0, 2])
def test_rows_in_a_list(count: int) -> None:
    """As the transform ToUndirected hands them over: none where a graph has no features of edges."""
    (_, ids), rows = given(), [torch.randn(E, D) for _ in range(count)]
    wanted = utils.to_undirected(ids, rows)
    with accelerated():
        for _ in range(2):
            torch.testing.assert_close(utils.to_undirected(ids, rows), wanted)


@pytest.mark.parametrize("aggr", ["mean", "max"])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_relations_have_a_topology_each(mode: Callable[[], Any], aggr: str, made: list[Topology]) -> None:
    (x, ids), theirs, kinds = given(), pyg.RGCNConv(F, F, 3, aggr=aggr), torch.arange(E) % 3
    ours = vgraph.accelerate(copy.deepcopy(theirs))

    def check(topologies: int) -> None:
        made.clear()
        for _ in range(2):
            with mode():
                torch.testing.assert_close(ours(x, ids, kinds), theirs(x, ids, kinds))
        assert len(made) == topologies

    check(3)
    kinds[:10] = 2
    check(3)
    ids[0, :10] = 0
    check(3)
    ours(x, ids, kinds).sum().backward()


def test_masks_that_share_edges_do_not_pile_up() -> None:
    ids, layer = given()[1], vgraph.accelerate(pyg.RGCNConv(F, F, 2, aggr="max"))
    for _ in range(5):
        layer(torch.randn(N, F), ids, torch.randint(0, 2, (E,)))
    kept = masked._picks[ids].all
    assert sum(one.edges.shape[1] for one in kept) <= E


def test_relations_of_ids_that_count_no_writes() -> None:
    theirs, x = pyg.RGCNConv(F, F, 3), torch.randn(N, F)
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    with torch.inference_mode():
        ids, kinds = given()[1], torch.arange(E) % 3
        for _ in range(2):
            torch.testing.assert_close(ours(x, ids, kinds), theirs(x, ids, kinds))
            ids[0] = ids[0].flip(0)
    with torch.no_grad():
        torch.testing.assert_close(ours(x, ids, kinds), theirs(x, ids, kinds))


def test_ids_of_relations_are_held_once(made: list[Topology], monkeypatch: pytest.MonkeyPatch) -> None:
    """In few bits where edges are many, and where the topologies read them."""
    monkeypatch.setattr(topologies, "MANY", 1)
    (x, ids), layer, kinds = given(), vgraph.accelerate(pyg.RGCNConv(F, F, 3)), torch.arange(E) % 3
    layer(x, ids, kinds).sum().backward()
    held = by_relation._picked[ids].edges
    assert {one.dtype for one in held} == {torch.int32}
    places = {one.untyped_storage().data_ptr() for one in held}
    assert len(made) == 3
    assert {end.untyped_storage().data_ptr() for one in made for end in (one.src, one.dst)} == places


def test_relations_that_are_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise CaptureError("a test says so")

    monkeypatch.setattr(topologies, "MANY", 1)
    monkeypatch.setattr(propagate, "_captured", refuse)
    (x, ids), theirs, kinds = given(), pyg.RGCNConv(F, F, 3), torch.arange(E) % 2  # a relation has no edges
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    torch.testing.assert_close(ours(x, ids, kinds), theirs(x, ids, kinds))


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:Converting sparse")
@pytest.mark.parametrize("layout", ["to_sparse_coo", "to_sparse_csr"])
def test_sparse_matrices_are_left_alone(layout: str) -> None:
    (x, ids), layer = given(), pyg.GCNConv(F, F)
    adjacency = getattr(torch.zeros(N, N).index_put((ids[1], ids[0]), torch.ones(()), accumulate=True), layout)()
    wanted = layer(x, adjacency)
    with accelerated():
        torch.testing.assert_close(layer(x, adjacency), wanted)


def test_inference_does_not_spoil_training() -> None:
    (x, ids), layer = given(), vgraph.accelerate(pyg.GCNConv(F, F))
    with torch.inference_mode():
        layer(x, ids)
    layer(x, ids, torch.ones(E)).sum().backward()
    layer(x, ids).sum().backward()
    assert layer.lin.weight.grad is not None


@pytest.mark.parametrize("make", [lambda: pyg.GCNConv(F, F), lambda: pyg.GATConv(F, F, edge_dim=D)])
def test_all_is_let_go(make: Callable[[], pyg.MessagePassing], made: list[Topology]) -> None:
    (x, ids), layer = given(), vgraph.accelerate(make())
    rows = torch.rand(E, D) if isinstance(layer, pyg.GATConv) else torch.rand(E)
    layer(x, ids, rows)
    known = [weakref.ref(made.pop()), weakref.ref(rows)]
    del ids, rows
    assert [one() for one in known] == [None, None]
