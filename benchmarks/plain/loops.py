"""Vertex functions of examples/ as loops over vertices, in the order of the graph, an operator at a time.

Each takes a cell of an example with its parameters, and is called as that is: ``loop(g, **features)``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

import vgraph

Ends = tuple[list[int], Tensor]  # the vertices at the other ends of a vertex's edges, and the ids of these


class Loop(nn.Module):
    """What it has in common with the cell: its call, its parameters, its direction."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.cell = cell

    def visit(self, g: vgraph.Graph) -> Iterator[tuple[int, Ends]]:
        """Each vertex behind those that it reads, with these and the edges to them."""
        return iter(_order(g, self.cell.direction == "reverse"))


@lru_cache(maxsize=64)
def _order(g: vgraph.Graph, is_reverse: bool) -> list[tuple[int, Ends]]:
    """The graphs of examples/ number their vertices along the edges, or against them."""
    src, dst = (ids.tolist() for ids in (g.edges() if not is_reverse else g.edges()[::-1]))
    read: list[tuple[list[int], list[int]]] = [([], []) for _ in range(g.num_nodes())]
    for edge, (a, b) in enumerate(zip(src, dst, strict=True)):
        read[b][0].append(a)
        read[b][1].append(edge)
    order = range(g.num_nodes()) if all(map(operator.lt, src, dst)) else reversed(range(g.num_nodes()))
    return [(v, (read[v][0], torch.tensor(read[v][1], dtype=torch.int64))) for v in order]


def _stacked(rows: dict[int, Tensor]) -> Tensor:
    return torch.stack([rows[v] for v in range(len(rows))])


class Arcs(Loop):
    """Of examples/lattice.py."""

    def forward(self, g: vgraph.Graph, token: Tensor) -> dict[str, Tensor]:
        size = self.cell.U.in_features
        h: dict[int, Tensor] = {}
        c: dict[int, Tensor] = {}
        for v, (others, edges) in self.visit(g):
            if not others:
                h[v] = c[v] = torch.zeros(size)
                continue
            before = torch.stack([h[u] for u in others])
            i, f, o, u, score = (self.cell.W(token[edges]) + self.cell.U(before)).chunk(5, -1)
            arcs = torch.sigmoid(f) * torch.stack([c[u] for u in others]) + torch.sigmoid(i) * torch.tanh(u)
            weight = torch.softmax(score, 0)
            c[v] = (weight * arcs).sum(0)
            h[v] = (weight * torch.sigmoid(o) * torch.tanh(arcs)).sum(0)
        return {"h": _stacked(h)}


class ChildSum(Loop):
    """Of vgraph.nn.ChildSumTreeLSTM, which examples/sick.py has."""

    def forward(self, g: vgraph.Graph, x: Tensor) -> dict[str, Tensor]:
        h: dict[int, Tensor] = {}
        c: dict[int, Tensor] = {}
        for v, (children, _) in self.visit(g):
            iou, kept = self.cell.W_iou(x[v]), torch.zeros(())
            if children:
                below = torch.stack([h[u] for u in children])
                iou = iou + self.cell.U_iou(below.sum(0))
                f = torch.sigmoid(self.cell.W_f(x[v]) + self.cell.U_f(below))
                kept = (f * torch.stack([c[u] for u in children])).sum(0)
            i, o, u = iou.chunk(3, -1)
            c[v] = torch.sigmoid(i) * torch.tanh(u) + kept
            h[v] = torch.sigmoid(o) * torch.tanh(c[v])
        return {"h": _stacked(h)}


class Inward(Loop):
    """Of examples/junction_trees.py."""

    def forward(self, g: vgraph.Graph) -> dict[str, Tensor]:
        table, shares = g.ndata["table"], g.ndata["shares"]
        message: dict[int, Tensor] = {}
        heard: dict[int, Tensor] = {}
        for v, (others, _) in self.visit(g):
            heard[v] = self.cell.read(table[v])
            if others:
                heard[v] = heard[v] + torch.stack([message[u] for u in others]).sum(0)
            message[v] = self.cell.say(torch.cat([heard[v], shares[v]]))
        return {"message": _stacked(message), "heard": _stacked(heard)}


class Outward(Loop):
    """Of examples/junction_trees.py."""

    def forward(self, g: vgraph.Graph, message: Tensor, heard: Tensor) -> dict[str, Tensor]:
        known: dict[int, Tensor] = {}
        for v, (parents, _) in self.visit(g):
            known[v] = heard[v]
            if parents:
                others = known[parents[0]] - message[v]
                known[v] = known[v] + self.cell.say(torch.cat([others, g.ndata["shares"][v]]))
        return {"known": _stacked(known)}


class AlongWires(Loop):
    """Of examples/dag_vae.py."""

    def forward(self, g: vgraph.Graph, x: Tensor) -> dict[str, Tensor]:
        h: dict[int, Tensor] = {}
        nothing = torch.zeros(self.cell.unit.hidden_size)
        for v, (others, _) in self.visit(g):
            read = nothing
            if others:
                rows = torch.stack([h[u] for u in others])
                read = (torch.sigmoid(self.cell.gate(rows)) * self.cell.value(rows)).sum(0)
            h[v] = self.cell.unit(x[v], read)
        return {"h": _stacked(h)}


class Gates(Loop):
    """Of examples/circuits.py: ``cell`` is the function of gates, ``inputs`` that of inputs."""

    def __init__(self, cell: Any, inputs: Any) -> None:
        super().__init__(cell)
        self.inputs = inputs

    def forward(self, g: vgraph.Graph) -> dict[str, Tensor]:
        h: dict[int, Tensor] = {}
        for v, (others, edges) in self.visit(g):
            if not others:
                h[v] = torch.tanh(self.inputs.embedding(g.ndata["prior"][v]))
                continue
            wire, inverted = torch.stack([h[u] for u in others]), g.edata["inverted"][edges]
            seen = torch.tanh(torch.where(inverted, self.cell.turned(wire), self.cell.straight(wire)))
            h[v] = torch.tanh(self.cell.join(seen.prod(0)) + self.cell.out(seen.sum(0)))
        return {"h": _stacked(h)}
