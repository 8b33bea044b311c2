"""What messages of users' own layers ask of torch, keep in the layer and are given: accelerated as PyG runs them."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from vgraph.capture.capture import num_captures, watch_runs
from vgraph.capture.errors import CaptureError
from vgraph.compat.pyg import accelerated

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG's import uses what torch has deprecated
    pyg = pytest.importorskip("torch_geometric.nn")
    import torch_geometric
    from torch_geometric import utils

N, E, F = 12, 40, 4


def edges(count: int = E) -> Tensor:
    return torch.randint(0, N, (2, count))


def rows() -> Tensor:
    return torch.randn(N, F, dtype=torch.float64, requires_grad=True)


def is_captured(call: Callable[[], Any]) -> bool:
    with watch_runs() as runs:
        call()
    return bool(runs) and not any(isinstance(what, CaptureError) for _, what, _ in runs)


class Attention(pyg.MessagePassing):
    """Which leaves its weights in the layer, as many do."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor, index: Tensor, size_i: int) -> Tensor:
        weights = utils.softmax((x_i * x_j).sum(-1), index, num_nodes=size_i)
        self.weights = weights
        return x_j * weights.view(-1, 1)


def test_what_a_message_keeps_is_free_to_change() -> None:
    """It is recorded once, whatever an earlier call has left, and further derivatives find it as it was."""
    theirs, before = Attention(), num_captures()
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    for count in (E, E + 1, E + 2):
        x, ids, found = rows(), edges(count), list[Tensor]()
        for layer in (ours, theirs):
            (first,) = torch.autograd.grad(layer(x, ids).sin().sum(), x, create_graph=True)
            (second,) = torch.autograd.grad(first.sin().sum(), x)
            found.append(torch.cat([first, second]))
        torch.testing.assert_close(*found)
        torch.testing.assert_close(ours.weights, theirs.weights)
    assert num_captures() - before == 1


class Remembers(Attention):
    """Which reads what it has left."""

    def message(self, x_j: Tensor) -> Tensor:
        found = x_j if self.weights is None else x_j + self.weights.detach()
        self.weights = found
        return found


def test_what_a_message_reads_again_is_watched() -> None:
    theirs, ids = Remembers(), edges()
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    for _ in range(4):
        x = rows()
        torch.testing.assert_close(ours(x, ids), theirs(x, ids))


class Counts(pyg.MessagePassing):
    """A layer with lists and dicts, and a module with a number, for its messages to write to."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = {"sizes": [0], "log": [0]}
        self.part = torch.nn.Identity()
        self.part.count = 0

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def found(self) -> tuple[dict[str, list[int]], object]:
        return self.counts, self.part.count


class Logs(Counts):
    def message(self, x_j: Tensor) -> Tensor:
        self.counts["log"].append(7)
        return x_j


class CountsInAList(Counts):
    def message(self, x_j: Tensor) -> Tensor:
        self.counts["sizes"][0] += 1
        return x_j


class CountsInADict(Counts):
    def message(self, x_j: Tensor) -> Tensor:
        self.counts["more"] = [*self.counts.get("more", []), 1]
        return x_j


class CountsInAModule(Counts):
    def message(self, x_j: Tensor) -> Tensor:
        self.part.count += 1
        return x_j


@pytest.mark.parametrize("kind", [Logs, CountsInAList, CountsInADict, CountsInAModule])
def test_what_a_message_counts_within_its_layer_is_of_every_call(kind: type[Counts]) -> None:
    theirs, ids = kind(), edges()
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    for _ in range(3):
        x = rows()
        torch.testing.assert_close(ours(x, ids), theirs(x, ids))
        assert ours.found() == theirs.found()


class Aggregates(Attention):
    def __init__(self, aggregate: Callable[[Tensor, Tensor, int], Tensor]) -> None:
        super().__init__()
        self.by = aggregate

    def message(self, x_j: Tensor) -> Tensor:
        return x_j

    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: int | None = None) -> Tensor:
        assert dim_size is not None
        return self.by(inputs, index, dim_size)


def _zeros(like: Tensor, count: int) -> Tensor:
    return like.new_zeros(count, like.shape[1])


def _sum(rows: Tensor, index: Tensor, count: int) -> Tensor:
    return _zeros(rows, count).index_add(0, index, rows)


def _wide(index: Tensor, like: Tensor) -> Tensor:
    return index.view(-1, 1).expand_as(like)


BY_KEYWORD: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "index_add": lambda m, i, n: torch.index_add(input=_zeros(m, n), dim=0, index=i, source=m, alpha=2),
    "method index_add": lambda m, i, n: _zeros(m, n).index_add(dim=0, index=i, source=m),
    "index_add_": lambda m, i, n: _zeros(m, n).index_add_(dim=0, index=i, source=m),
    "scatter_add": lambda m, i, n: torch.scatter_add(input=_zeros(m, n), dim=0, index=_wide(i, m), src=m),
    "scatter_reduce": lambda m, i, n: torch.scatter_reduce(
        input=_zeros(m, n), dim=0, index=_wide(i, m), src=m, reduce="amax", include_self=False
    ),
    "index_select": lambda m, i, n: _sum(
        m / (1 + torch.index_select(input=_sum(m.square(), i, n), dim=0, index=i)), i, n
    ),
}


@pytest.mark.parametrize("function", BY_KEYWORD)
def test_functions_of_torch_take_their_arguments_by_keyword(function: str) -> None:
    theirs, x, ids = Aggregates(BY_KEYWORD[function]), rows(), edges()
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    assert is_captured(lambda: ours(x, ids))
    torch.testing.assert_close(ours(x, ids), theirs(x, ids))


REFUSED: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {  # by torch: shapes, then dtypes
    "scatter_add": lambda m, i, n: _zeros(m, n).scatter_add(0, i, m),
    "scatter_add_": lambda m, i, n: _zeros(m, n).scatter_add_(0, i, m),
    "index_add": lambda m, i, n: _zeros(m, n).index_add(0, _wide(i, m), m),
    "index_add to float": lambda m, i, n: _zeros(m, n).float().index_add(0, i, m),
    "index_add_ to float": lambda m, i, n: _zeros(m, n).float().index_add_(0, i, m),
    "scatter_add to float": lambda m, i, n: _zeros(m, n).float().scatter_add(0, _wide(i, m), m),
    "scatter_reduce to float": lambda m, i, n: _zeros(m, n).float().scatter_reduce(0, _wide(i, m), m, "amax"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_torch_refuses_to_add_up_is_refused(how: str) -> None:
    """With torch's own error: it was computed."""
    theirs, x, ids = Aggregates(REFUSED[how]), rows(), edges()
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    with pytest.raises((RuntimeError, IndexError)) as wanted:
        theirs(x, ids)
    with pytest.raises(wanted.type) as found:
        ours(x, ids)
    assert str(found.value) == str(wanted.value)


def _zeroed(index: Tensor, *, by_view: bool = False) -> Tensor:
    own = index.clone()
    (own.view(-1, 1) if by_view else own).zero_()
    return own


WRITTEN: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "added up": lambda m, i, n: _sum(m, _zeroed(i), n),
    "a view": lambda m, i, n: _sum(m, _zeroed(i, by_view=True), n),
    "read": lambda m, i, n: _sum(_sum(m, i, n)[_zeroed(i)], i, n),
    "softmax": lambda m, i, n: _sum(utils.softmax(m, _zeroed(i), num_nodes=n), i, n),
    "degree": lambda m, i, n: _sum(m, i, n) + utils.degree(_zeroed(i), n, m.dtype).view(-1, 1),
}


@pytest.mark.parametrize("how", WRITTEN)
def test_ids_that_a_function_writes_to_are_others(how: str) -> None:
    theirs, x, ids = Aggregates(WRITTEN[how]), rows(), edges()
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    torch.testing.assert_close(ours(x, ids), theirs(x, ids))


class Grouped(pyg.MessagePassing):
    """Which adds ids of sources up at ids of its own."""

    def forward(self, x: Tensor, edge_index: Tensor, group: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, group=group)

    def message(self, x_j: Tensor, edge_index_j: Tensor, group: Tensor, size_j: int) -> Tensor:
        return x_j * utils.scatter(edge_index_j, group, 0, size_j)[edge_index_j].view(-1, 1)


def test_ids_that_are_added_up_at_other_ids_are_numbers() -> None:
    theirs, x, ids, group = Grouped(), rows(), edges(), edges()[0]
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    torch.testing.assert_close(ours(x, ids, group), theirs(x, ids, group))


class Scaled(pyg.MessagePassing):
    def forward(self, x: Tensor, edge_index: Tensor, scale: Any) -> Tensor:
        return self.propagate(edge_index, x=x, scale=scale)

    def message(self, x_j: Tensor, scale: Any) -> Tensor:
        return x_j * scale


class Signed(Scaled):
    def message(self, x_j: Tensor, scale: float) -> Tensor:
        return x_j * math.copysign(2.0, scale)


@pytest.mark.parametrize("kind", [Scaled, Signed])
def test_numbers_that_are_equal_and_not_the_same(kind: type[Scaled]) -> None:
    theirs, x, ids = kind(), rows(), edges()
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    for scale in (0.0, -0.0, 1, True, 1.0, 0, math.nan, float("nan"), -math.inf):
        found, wanted = ours(x, ids, scale), theirs(x, ids, scale)
        torch.testing.assert_close(found, wanted, equal_nan=True)
        assert torch.equal(found.signbit(), wanted.signbit())


def test_a_number_that_changes_in_every_call_becomes_an_input() -> None:
    """As a temperature that is annealed does."""
    theirs, x, ids, before = Scaled(), rows(), edges(), num_captures()
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    for step in range(12):
        torch.testing.assert_close(ours(x, ids, 0.1 * step), theirs(x, ids, 0.1 * step))
    assert num_captures() - before < 6


def test_rows_of_loops_filled_with_zeros_of_either_sign() -> None:
    ids, weight = edges(), torch.ones(E)
    for fill in (0.0, -0.0):
        wanted = utils.add_self_loops(ids, weight, fill_value=fill)[1]
        with accelerated():
            found = utils.add_self_loops(ids, weight, fill_value=fill)[1]
        assert torch.equal(found.signbit(), wanted.signbit())


class OfEnds(pyg.MessagePassing):
    """Whose message is a function of the edge_index itself."""

    def __init__(self, weigh: Callable[[Any, Any], Tensor], flow: str) -> None:
        super().__init__(flow=flow)
        self.weigh = weigh

    def forward(self, x: Tensor, edge_index: Any) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_j: Tensor, edge_index: Tensor, size: list[int]) -> Tensor:
        return x_j * self.weigh(edge_index, size).view(-1, 1)


def _by_degrees(ids: Any, size: list[int]) -> Tensor:
    """As in PyG's first tutorial, each end's own."""
    first, second = ids
    degree = utils.degree(first, size[0], torch.float64), utils.degree(second, size[1], torch.float64)
    return (degree[0][first] * degree[1][second]).rsqrt()


OF_ENDS: dict[str, Callable[[Any, Any], Tensor]] = {
    "degrees": _by_degrees,
    "rows": lambda ids, _: (ids[0] - ids[-1, :]) * (ids[1, ...] + 1),
    "parts": lambda ids, _: ids.unbind(0)[1] + ids.select(0, 0),
    "shapes": lambda ids, _: ids[0] * (len(ids) + ids.shape[0] + ids.dim() + ids.ndim + (ids.dtype == torch.int64)),
}
AS_PYG: dict[str, Callable[[Any, Any], Tensor]] = {
    "both at once": lambda ids, _: ids.sum(0),
    "ends of all edges": lambda ids, _: ids[:, torch.arange(ids.shape[1]).flip(0)][0],
    "rows of a slice": lambda ids, _: ids[:1][0],
    "a write": lambda ids, _: ids.clone().fill_(2)[0],
    "other dims": lambda ids, _: torch.stack(ids.unbind(1), 1)[0],
}


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("what", ["degrees", "rows", "parts", "shapes"])
def test_a_message_takes_edge_index_by_name(what: str, flow: str) -> None:
    theirs, x = OfEnds(OF_ENDS[what], flow), rows()
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    for ids in (edges(), edges(7), torch.zeros(2, 3000, dtype=torch.int64)):
        found, wanted = ours(x, ids), theirs(x, ids)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(*(torch.autograd.grad(out.square().sum(), x) for out in (found, wanted)))
    assert is_captured(lambda: ours(x, edges()))


@pytest.mark.parametrize("what", AS_PYG)
def test_what_mixes_both_ends_runs_as_pyg_runs_it(what: str) -> None:
    theirs, x, ids = OfEnds(AS_PYG[what], "source_to_target"), rows(), edges()
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    torch.testing.assert_close(ours(x, ids), theirs(x, ids))
    assert not is_captured(lambda: ours(x, ids))


def test_edge_index_by_name_of_another_kind() -> None:
    """An EdgeIndex is one within the message, too; a sparse matrix is PyG's error."""
    x, ids = rows(), edges()
    sorted_ids = torch_geometric.EdgeIndex(ids, sparse_size=(N, N)).sort_by("col").values
    theirs = OfEnds(lambda ids, _: ids.get_csc()[0][0][ids[1]] + ids.sort_order.count("c"), "source_to_target")
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    torch.testing.assert_close(ours(x, sorted_ids), theirs(x, sorted_ids))
    matrix = torch.sparse_coo_tensor(ids, torch.ones(E), (N, N), check_invariants=True).coalesce()
    with pytest.raises(ValueError, match="Cannot collect 'edge_indices' for sparse matrices"):
        ours(x, matrix)


class OfMatrix(pyg.MessagePassing):
    """Whose message multiplies by the entries of a sparse matrix, as it is given one."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_j: Tensor, adj_t: Any) -> Tensor:
        return x_j if adj_t is None else x_j * adj_t.values().view(-1, 1)


def test_a_message_takes_adj_t_by_name() -> None:
    theirs, x, ids = OfMatrix(), rows(), edges()
    weights = torch.rand(E, dtype=torch.float64)
    matrix = torch.sparse_coo_tensor(ids, weights, (N, N), check_invariants=True).coalesce()
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    torch.testing.assert_close(ours(x, matrix), theirs(x, matrix))
    with pytest.raises(ValueError, match="Cannot collect 'adj_t' for edge indices"):
        ours(x, ids)


class OfSources(pyg.MessagePassing):
    """Which divides by the number of edges that leave each source."""

    def forward(self, x: tuple[Tensor, Tensor], edge_index: Tensor, dtype: torch.dtype) -> Tensor:
        return self.propagate(edge_index, x=x, dtype=dtype)

    def message(self, x_j: Tensor, edge_index_j: Tensor, size_j: int, dtype: torch.dtype) -> Tensor:
        return x_j / utils.degree(edge_index_j, size_j, dtype=dtype)[edge_index_j].view(-1, 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.int32])
def test_degrees_of_sources(dtype: torch.dtype) -> None:
    theirs, x = OfSources(), (torch.randn(N + 5, F).double().requires_grad_(), rows())
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    for ids in (edges(), edges(3), torch.zeros(2, 300, dtype=torch.int64)):  # the most that bfloat16 counts is 256
        counted = dtype if ids.shape[1] < 256 else torch.float64
        found, wanted = ours(x, ids, counted), theirs(x, ids, counted)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(*(torch.autograd.grad(out.square().sum(), x[0]) for out in (found, wanted)))
        assert is_captured(lambda ids=ids, counted=counted: ours(x, ids, counted))
