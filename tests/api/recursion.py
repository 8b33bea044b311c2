"""A graph, a cell and the recursion, vertex by vertex, that vertex functions are compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import torch
from torch import Tensor, nn

import vgraph

# In-degrees 0, 0, 1, 2, 3 and 4; children shared by several parents; vertex 3 twice under 5.
DAG = vgraph.graph(([0, 1, 0, 2, 0, 3, 1, 3, 2, 3], [2, 3, 3, 4, 4, 5, 5, 5, 5, 4]), num_nodes=7)

States = tuple[Tensor, ...]
Cell = Callable[[int, list[States], list[int]], States]


def evaluate(graph: vgraph.Graph, cell: Cell, *, reverse: bool = False) -> States:
    """Calls ``cell(vertex, children's states, edge ids)`` children first; stacks what it gives."""
    src, dst = (ends.tolist() for ends in graph.edges())
    if reverse:
        src, dst = dst, src
    dag = nx.MultiDiGraph()
    dag.add_nodes_from(range(graph.num_nodes()))
    dag.add_edges_from(zip(src, dst, strict=True))
    states: dict[int, States] = {}
    for vertex in nx.topological_sort(dag):
        edges = [e for e, parent in enumerate(dst) if parent == vertex]
        states[vertex] = cell(vertex, [states[src[e]] for e in edges], edges)
    rows = [states[vertex] for vertex in range(graph.num_nodes())]
    return tuple(torch.stack(column) for column in zip(*rows, strict=True))


F64 = torch.float64
WIDTH = 4


class ChildSum(vgraph.VertexFunction):
    """The child-sum Tree-LSTM."""

    def __init__(self, width: int = WIDTH, **options: Any) -> None:
        super().__init__(**options)
        self.W = nn.Linear(width, 3 * width)
        self.U = nn.Linear(width, 3 * width, bias=False)
        self.Wf = nn.Linear(width, width)
        self.Uf = nn.Linear(width, width, bias=False)

    def forward(self, v: vgraph.Vertex) -> None:
        child = v.gather()
        x = v.pull("x")
        i, o, u = (self.W(x) + self.U(child["h"].sum())).chunk(3, -1)
        f = torch.sigmoid(self.Wf(x) + self.Uf(child["h"]))
        c = torch.sigmoid(i) * torch.tanh(u) + (f * child["c"]).sum()
        h = torch.sigmoid(o) * torch.tanh(c)
        v.scatter(h=h, c=c)
        v.push(h=h, c=c)


def recursive_tree_lstm(cell: ChildSum, graph: vgraph.Graph, x: Tensor, *, reverse: bool = False) -> States:
    def step(vertex: int, children: list[States], edges: list[int]) -> States:
        hs = torch.stack([h for h, _ in children]) if children else x.new_zeros((0, x.shape[1]))
        i, o, u = (cell.W(x[vertex]) + cell.U(hs.sum(0))).chunk(3, -1)
        c = torch.sigmoid(i) * torch.tanh(u)
        for h, past in children:
            c = c + torch.sigmoid(cell.Wf(x[vertex]) + cell.Uf(h)) * past
        return torch.sigmoid(o) * torch.tanh(c), c

    return evaluate(graph, step, reverse=reverse)


def features(graph: vgraph.Graph = DAG, width: int = WIDTH) -> Tensor:
    return torch.randn(graph.num_nodes(), width, dtype=F64, requires_grad=True)


def check_equal(model: nn.Module, got: Any, wanted: Any, inputs: tuple[Tensor, ...]) -> None:
    """Outputs and the gradients of everything agree."""
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)
    wrt = (*inputs, *model.parameters())
    weights = [torch.randn_like(t) for t in got]
    sums = [sum((t * w).sum() for t, w in zip(out, weights, strict=True)) for out in (got, wanted)]
    grads = [torch.autograd.grad(s, wrt, allow_unused=True) for s in sums]
    for tensor, one, two in zip(wrt, *grads, strict=True):
        one, two = (torch.zeros_like(tensor) if g is None else g for g in (one, two))
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)
