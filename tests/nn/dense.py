"""What the tests of layers share: graphs with parallel edges, and layers written one vertex at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

import vgraph


def random_graph(num_vertices: int = 9, num_edges: int = 30, loops: bool = True) -> vgraph.Graph:
    """Parallel edges, and vertices that receive nothing unless ``loops`` are added."""
    src = torch.randint(num_vertices, (num_edges,))
    dst = torch.randint(max(1, num_vertices // 2), (num_edges,))
    g = vgraph.graph((src, dst), num_nodes=num_vertices)
    return vgraph.add_self_loop(g) if loops else g


def by_vertex(g: vgraph.Graph, row: Callable[[int, Tensor, Tensor], Tensor]) -> Tensor:
    """``row(vertex, its in-edges' ids, their sources)`` for every vertex, stacked."""
    src, dst = g.edges()
    rows: list[Tensor] = []
    for vertex in range(g.num_nodes()):
        ids = (dst == vertex).nonzero().squeeze(1)
        rows.append(row(vertex, ids, src[ids]))
    return torch.stack(rows)


def adjacency(g: vgraph.Graph, weight: Tensor | None = None) -> Tensor:
    """Rows receive, columns send; parallel edges add up."""
    src, dst = g.edges()
    weight = torch.ones(len(src), dtype=torch.float64) if weight is None else weight
    return torch.zeros(g.num_nodes(), g.num_nodes(), dtype=torch.float64).index_put((dst, src), weight, True)


def inputs(count: int, *shape: int) -> Tensor:
    return torch.randn(count, *shape, dtype=torch.float64, requires_grad=True)


def assert_same(found: Tensor, wanted: Tensor, given: Iterable[Tensor], tolerance: float = 1e-10) -> None:
    """The same rows and the same gradients of everything given."""
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
    given = list(given)
    cotangent = torch.randn_like(wanted)
    grads = [torch.autograd.grad(out, given, cotangent, allow_unused=True) for out in (found, wanted)]
    for left, right, tensor in zip(*grads, given, strict=True):
        left, right = (torch.zeros_like(tensor) if grad is None else grad for grad in (left, right))
        torch.testing.assert_close(left, right, rtol=tolerance, atol=tolerance)


def shapes(layer: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in layer.state_dict().items()}


def randomized(layer: Any) -> Any:
    """The layer in fp64 with no parameter left at zero, so that each shows in the result."""
    layer = layer.double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer
