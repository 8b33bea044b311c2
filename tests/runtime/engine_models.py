"""Vertex functions and graphs on which every way of running must give the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
from vgraph.capture import capture
from vgraph.nn import ChildSumTreeLSTM, NaryTreeLSTM

WIDTH = 5


class GRU(vgraph.VertexFunction):
    """A gated unit whose previous state is the mean of the children's."""

    def __init__(self) -> None:
        super().__init__()
        self.W, self.U = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, v: vgraph.Vertex) -> None:
        before = v.gather()["h"].mean()
        own, past = self.W(v.pull("x")).chunk(3, -1), self.U(before).chunk(3, -1)
        update, reset = torch.sigmoid(own[0] + past[0]), torch.sigmoid(own[1] + past[1])
        h = (1 - update) * torch.tanh(own[2] + reset * past[2]) + update * before
        v.scatter(h=h)
        v.push(h=h)


class Attentive(vgraph.VertexFunction):
    """Children weighed by a softmax, an output that no parent sees, and a state that no one pushes."""

    def __init__(self) -> None:
        super().__init__()
        self.W, self.U, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, v: vgraph.Vertex) -> None:
        child = v.gather()
        weight = self.score(child["h"]).softmax()
        h = torch.tanh(self.W(v.pull("x")) + (weight * self.U(child["h"])).sum())
        v.scatter(h=h)
        v.push(y=self.out(h))


class Gates(vgraph.VertexFunction):
    """A child-sum Tree-LSTM with a layer of its own for every gate."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.own = nn.Linear(WIDTH, WIDTH)

    def forward(self, v: vgraph.Vertex) -> None:
        child, x = v.gather(), self.own(v.pull("x"))
        i, o, u = (layer(child["h"].sum()) + x for layer in self.layers[:3])
        c = torch.sigmoid(i) * torch.tanh(u) + (torch.sigmoid(self.layers[3](child["h"])) * child["c"]).sum()
        h = torch.sigmoid(o) * torch.tanh(c)
        v.scatter(h=h, c=c)
        v.push(h=h)


class TreeFC(vgraph.VertexFunction):
    """One layer over two children side by side; leaves take their feature."""

    def __init__(self) -> None:
        super().__init__(states={"h": WIDTH})
        self.W = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, v: vgraph.Vertex) -> None:
        both = torch.cat([v.gather(k, default=0.0)["h"] for k in range(2)], -1)
        h = torch.tanh(self.W(both)) + v.pull("x")
        v.scatter(h=h)
        v.push(h=h)


MODELS: dict[str, Callable[[], vgraph.VertexFunction]] = {
    "gru": GRU,
    "attentive": Attentive,
    "tree-fc": TreeFC,
    "child-sum": lambda: ChildSumTreeLSTM(WIDTH, WIDTH),
    "n-ary": lambda: NaryTreeLSTM(WIDTH, WIDTH),
}


def random_dag(num_vertices: int, num_edges: int) -> vgraph.Graph:
    """Edges from smaller ids to larger ones."""
    dst = torch.randint(1, num_vertices, (num_edges,))
    src = (torch.rand(num_edges) * dst).long()
    return vgraph.graph((src, dst), num_nodes=num_vertices)


def binary_tree(num_leaves: int) -> vgraph.Graph:
    """Neighbours joined at random."""
    open_, src, dst, total = list(range(num_leaves)), list[int](), list[int](), num_leaves
    while len(open_) > 1:
        at = int(torch.randint(0, len(open_) - 1, ()))
        src += open_[at : at + 2]
        dst += [total, total]
        open_[at : at + 2] = [total]
        total += 1
    return vgraph.graph((src, dst), num_nodes=total)


def chain(length: int) -> vgraph.Graph:
    return vgraph.graph((range(length - 1), range(1, length)), num_nodes=length)


GRAPHS: dict[str, Callable[[], vgraph.Graph]] = {
    "dag": lambda: random_dag(40, 70),
    "trees": lambda: vgraph.batch([binary_tree(n) for n in (1, 2, 7, 4, 30)]),
    "chains": lambda: vgraph.batch([chain(n) for n in (3, 9, 1, 5)]),
    "star": lambda: vgraph.graph((range(300), [300] * 300)),
    "points": lambda: vgraph.graph(([], []), num_nodes=4),
}


def features(graph: vgraph.Graph, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(graph.num_nodes(), WIDTH, dtype=dtype, requires_grad=True)


def outcome(model: vgraph.VertexFunction, graph: vgraph.Graph, rows: Tensor, at: Tensor | None = None) -> list[Tensor]:
    """Outputs and all gradients, of a loss with different weights everywhere; ``at``: where the rows stand."""
    outputs = list(model(graph, x=rows if at is None else vgraph.at(rows, at)).values())
    draw = torch.Generator().manual_seed(1)
    weights = [torch.randn(o.shape, generator=draw, dtype=o.dtype) for o in outputs]
    loss = sum((o * w).sum() for o, w in zip(outputs, weights, strict=True))
    wanted = [rows, *model.parameters()]
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    grads = [torch.zeros_like(t) if g is None else g for t, g in zip(wanted, found, strict=True)]
    return [*(o.detach() for o in outputs), *grads]


PLAIN = {"VGRAPH_KERNELS": "0", "VGRAPH_LEAVES": "0"}


def outcome_with(monkeypatch: pytest.MonkeyPatch, switches: dict[str, str], *given: Any) -> list[Tensor]:
    """The outcome under other settings; with ``PLAIN``: torch's operators, all frontiers alike."""
    with monkeypatch.context() as patch:
        for name, value in switches.items():
            patch.setenv(name, value)
        capture.forget()
        found = outcome(*given)
    capture.forget()
    return found
