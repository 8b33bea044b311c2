"""RGCNConv accelerated: what PyG gives, without rows that are kept for a backward."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import vgraph
from tests.compat.pyg_cases import pyg
from vgraph.compat.pyg.by_relation import edges_by_relation

N, E, RELATIONS = 40, 300, 3


def _edges() -> tuple[Tensor, Tensor]:
    return torch.randint(0, N, (2, E)), torch.randint(0, RELATIONS, (E,))


def _derivatives(layer: torch.nn.Module, given: list[Tensor], *edges: Tensor) -> list[Tensor]:
    """The result, first derivatives by everything, and second ones."""
    out = layer(given[0] if len(given) == 1 else tuple(given), *edges)
    inputs = [*given, *layer.parameters()]
    first = torch.autograd.grad(out.tanh().sum(), inputs, create_graph=True, materialize_grads=True)
    second = torch.autograd.grad(sum(one.sin().sum() for one in first), inputs, materialize_grads=True)
    return [out, *first, *second]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"aggr": "add"},
        {"aggr": "max"},
        {"num_bases": 2},
        {"num_blocks": 2},
        {"root_weight": False},
        {"bias": False},
        {"root_weight": False, "bias": False},
        {"width": 8},
    ],
    ids=str,
)
@pytest.mark.parametrize("is_bipartite", [False, True])
def test_results_are_pygs(options: dict[str, object], is_bipartite: bool) -> None:
    width, options = options.get("width", 4), {name: one for name, one in options.items() if name != "width"}
    theirs = pyg.RGCNConv(6, width, RELATIONS, **options).double()
    mine, edges = vgraph.accelerate(copy.deepcopy(theirs)), _edges()
    given = [torch.randn(N, 6, dtype=torch.float64, requires_grad=True) for _ in range(1 + is_bipartite)]
    for a, b in zip(_derivatives(mine, given, *edges), _derivatives(theirs, given, *edges), strict=True):
        torch.testing.assert_close(a, b)


def test_nothing_is_kept_of_a_relation() -> None:
    """What autograd saves is the rows that were given and matrices, however many relations there are."""
    layer, edges = vgraph.accelerate(pyg.RGCNConv(64, 64, RELATIONS)), _edges()
    ids = edges[0] * 50
    x = torch.randn(50 * N, 64, requires_grad=True)
    held: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = layer(x, ids, edges[1])
    assert x.nbytes <= sum(held.values()) < 1.5 * x.nbytes
    out.sum().backward()


def test_a_class_of_a_users_runs_as_it_is_written() -> None:
    class Doubled(pyg.RGCNConv):
        def propagate(self, edge_index: Tensor, **given: object) -> Tensor:
            assert torch.equal(given["x"], x)
            return super().propagate(edge_index, **given) * 2

    x, edges = torch.randn(N, 6), _edges()
    theirs = Doubled(6, 4, RELATIONS)
    mine = vgraph.accelerate(copy.deepcopy(theirs))
    torch.testing.assert_close(mine(x, *edges), theirs(x, *edges))


def test_a_hook_sees_rows_as_they_were_given() -> None:
    x, edges = torch.randn(N, 6), _edges()
    layer, seen = vgraph.accelerate(pyg.RGCNConv(6, 4, RELATIONS)), []
    layer.register_propagate_forward_pre_hook(lambda _, given: seen.append(given[-1]["x"]))
    layer(x, *edges)
    assert len(seen) == RELATIONS
    assert all(torch.equal(rows, x) for rows in seen)


@pytest.mark.parametrize("num_types", [E - 1, E + 1])
def test_types_of_other_edges_are_refused_as_by_pyg(num_types: int) -> None:
    layer, (ids, _) = pyg.RGCNConv(6, 4, RELATIONS), _edges()
    for one in (layer, vgraph.accelerate(copy.deepcopy(layer))):
        with pytest.raises(IndexError, match="mask"):
            one(torch.randn(N, 6), ids, torch.zeros(num_types, dtype=torch.int64))


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("wrong", [N, 1 << 32, -N - 1])
def test_ids_out_of_range_are_refused_as_by_pyg(row: int, wrong: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many ids take few bits, too: 1 << 32 would be 0 in them."""
    monkeypatch.setattr("vgraph.compat.pyg.topologies.MANY", 0)
    layer, (ids, types) = pyg.RGCNConv(6, 4, RELATIONS), _edges()
    ids[row, 7] = wrong
    with pytest.raises((IndexError, RuntimeError, ValueError)) as refused:
        layer(torch.randn(N, 6), ids, types)
    with pytest.raises(refused.type):
        vgraph.accelerate(layer)(torch.randn(N, 6), ids, types)


@pytest.mark.parametrize("wrong", [RELATIONS, -1])
def test_types_of_no_relation_are_refused_as_by_pyg(wrong: int) -> None:
    layer, (ids, types) = pyg.RGCNConv(6, 4, RELATIONS), _edges()
    types[7] = wrong
    for one in (layer, vgraph.accelerate(copy.deepcopy(layer))):
        with pytest.raises(RuntimeError, match="out of bounds"):
            one(torch.randn(N, 6), ids, types)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.bool])
def test_edges_that_are_no_ids_are_refused_as_by_pyg(dtype: torch.dtype) -> None:
    layer, (ids, types) = pyg.RGCNConv(6, 4, RELATIONS), _edges()
    with pytest.raises((ValueError, RuntimeError)) as refused:
        layer(torch.randn(N, 6), ids.to(dtype), types)
    with pytest.raises(refused.type):
        vgraph.accelerate(layer)(torch.randn(N, 6), ids.to(dtype), types)


def test_edges_that_change_in_place_are_seen() -> None:
    layer, (ids, types) = pyg.RGCNConv(6, 4, RELATIONS), _edges()
    mine, x = vgraph.accelerate(copy.deepcopy(layer)), torch.randn(N, 6)
    for change in range(3):
        torch.testing.assert_close(mine(x, ids, types), layer(x, ids, types))
        types[change::2] = change
        ids[0, change * 9 : change * 9 + 9] = 0


class _Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_types_are_compared_only_where_they_may_have_changed() -> None:
    """The same tensor costs nothing, another of the same numbers one comparison, other numbers new edges."""
    ids, types = _edges()
    edges, same, other = edges_by_relation(ids, types, RELATIONS, N), types.clone(), (types + 1) % RELATIONS
    assert edges is not None
    for given, compared in ((types, False), (same, True), (same, False), (types, True)):
        with _Operators() as operators:
            assert edges_by_relation(ids, given, RELATIONS, N) is edges
        assert bool(operators.names) is compared
    assert edges_by_relation(ids, other, RELATIONS, N) is not edges


def test_types_that_count_no_versions_are_always_compared() -> None:
    ids, _ = _edges()
    with torch.inference_mode():
        types = torch.zeros(E, dtype=torch.int64)
        for relation in range(RELATIONS):
            types.fill_(relation)
            edges = edges_by_relation(ids, types, RELATIONS, N)
            assert edges is not None
            assert [own.shape[1] for own in edges] == [E * (relation == one) for one in range(RELATIONS)]
