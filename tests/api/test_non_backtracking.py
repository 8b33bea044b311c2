"""Messages from edge to edge that leave out the reverse edge, against those on the line graph."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import vgraph
from vgraph.errors import FeatureError, FunctionError, GraphError

# reverses, edges without one, a self-loop, and an edge that stands there twice on one side and once on the other
ODD = vgraph.graph(([0, 1, 1, 2, 2, 3, 3, 1, 4], [1, 0, 2, 1, 3, 3, 0, 2, 1]), num_nodes=6)


def on_lines(g: vgraph.Graph, messages: Tensor, op: str) -> Tensor:
    before, after = vgraph.line_graph(g, backtracking=False).edges()
    matrix = messages.new_zeros(g.num_edges(), g.num_edges()).index_put(
        (after, before), torch.ones(()).to(messages), True
    )
    counts = matrix.sum(1, keepdim=True).clamp(min=1) if op == "mean" else 1
    return (matrix / counts) @ messages


@pytest.mark.parametrize("op", ["sum", "mean"])
def test_it_is_the_line_graphs_to_the_second_derivative(op: str) -> None:
    x = torch.randn(ODD.num_edges(), 3, dtype=torch.float64, requires_grad=True)

    def derivatives(found: Tensor) -> tuple[Tensor, ...]:
        (grad,) = torch.autograd.grad((found**3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((grad**2).sum(), x)
        return found, grad, second

    wanted, found = derivatives(on_lines(ODD, x, op)), derivatives(vgraph.non_backtracking(ODD, x, op))
    torch.testing.assert_close(found, wanted)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=14), st.sampled_from(["sum", "mean"]))
def test_on_any_graph(edges: list[tuple[int, int]], op: str) -> None:
    src, dst = (torch.tensor([edge[side] for edge in edges], dtype=torch.int64) for side in (0, 1))
    g, x = vgraph.graph((src, dst), num_nodes=5), torch.randn(len(edges), dtype=torch.float64)
    torch.testing.assert_close(vgraph.non_backtracking(g, x, op), on_lines(g, x, op))


def test_nothing_left_is_zero_and_not_a_rounding_error() -> None:
    star = vgraph.to_bidirected(vgraph.graph(([0, 0, 0], [1, 2, 3])))
    found = vgraph.non_backtracking(star, torch.rand(6) * 1e6)
    assert (found[star.edges()[0] > 0] == 0).all()


def test_no_more_is_kept_than_the_edges() -> None:
    hub = vgraph.to_bidirected(vgraph.graph((torch.zeros(20000, dtype=torch.int64), torch.arange(1, 20001))))
    x = torch.ones(hub.num_edges())  # its line graph would have 400 million edges
    assert vgraph.non_backtracking(hub, x).max() == 19999


def test_what_does_not_fit_is_told() -> None:
    with pytest.raises(FeatureError, match="there are \\(2,\\) rows for 9 places"):
        vgraph.non_backtracking(ODD, torch.ones(2))
    with pytest.raises(FunctionError, match="there is no op 'max' of messages that leave one out"):
        vgraph.non_backtracking(ODD, torch.ones(9), "max")
    block = vgraph.to_block(ODD)
    with pytest.raises(GraphError, match="non_backtracking needs a graph with one type of nodes and edges"):
        vgraph.non_backtracking(block, torch.ones(9))
