"""What the staleness campaign compares with: graphs and vertex functions by plain Python and torch, nothing captured.

It has just the names that the campaign's programs use, with the meaning that vgraph's own documentation gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

Rows = dict[str, Tensor]


class _Batch:
    """Edges or nodes as a user's function sees them."""

    def __init__(self, size: int, **columns: Mapping[str, Tensor]) -> None:
        self.size = size
        self.__dict__.update(columns)

    def batch_size(self) -> int:
        return self.size


class Graph:
    """Features of nodes and edges, and functions that run on all of them at once."""

    def __init__(self, edges: tuple[list[int], list[int]]) -> None:
        self.src, self.dst = (torch.tensor(ids) for ids in edges)
        self.count = int(max(self.src.max(), self.dst.max())) + 1
        self.ndata: Rows = {}
        self.edata: Rows = {}

    def _of_edges(self) -> Any:
        ends = ({name: rows[ids] for name, rows in self.ndata.items()} for ids in (self.src, self.dst))
        src, dst = ends
        return _Batch(len(self.src), src=src, dst=dst, data=dict(self.edata))

    def apply_edges(self, function: Callable[[Any], Rows]) -> None:
        self.edata.update(function(self._of_edges()))

    def apply_nodes(self, function: Callable[[Any], Rows]) -> None:
        self.ndata.update(function(_Batch(self.count, data=dict(self.ndata))))

    def pull(self, nodes: list[int], message: Any, reduce: Any) -> None:
        """To nodes that are given; others keep what they have."""
        before = dict(self.ndata)
        self.update_all(message, reduce)
        for name, rows in self.ndata.items():
            if rows is not before.get(name):
                old = before.get(name, torch.zeros_like(rows))
                old = old.to(torch.promote_types(old.dtype, rows.dtype))
                self.ndata[name] = old.index_copy(0, torch.tensor(nodes), rows[nodes].to(old.dtype))

    def update_all(self, message: Any, reduce: Any, apply: Any = None) -> None:
        """All nodes that have in-edges have two of them here, so that reduce functions run once."""
        sent = message(self._of_edges())
        ends, order = self.dst.sort(stable=True)
        nodes = ends.view(-1, 2)[:, 0]
        mailbox = {name: rows[order].view(-1, 2, *rows.shape[1:]) for name, rows in sent.items()}
        data = {name: rows[nodes] for name, rows in self.ndata.items()}
        given = reduce(_Batch(len(nodes), data=data, mailbox=mailbox))
        for name, rows in given.items():
            given[name] = rows.new_zeros((self.count, *rows.shape[1:])).index_copy(0, nodes, rows)
        if apply is not None:
            given.update(apply(_Batch(self.count, data={**self.ndata, **given})))
        self.ndata.update(given)


class _Slots:
    """What a vertex's children scattered."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def sum(self) -> Tensor:
        return self.rows.sum(0, keepdim=True)


class _Vertex:
    def __init__(self, features: Rows, children: list[Rows], number: int) -> None:
        self.features, self.children, self.number = features, children, number
        self.scattered: Rows = {}
        self.pushed: Rows = {}

    def pull(self, name: str) -> Tensor:
        return self.features[name][self.number : self.number + 1]

    def gather(self) -> Any:
        nothing = self.features["h"].new_zeros(0, 2)
        return {"s": _Slots(torch.cat([nothing, *(child["s"] for child in self.children)]))}

    def scatter(self, **states: Tensor) -> None:
        self.scattered.update(states)

    def push(self, **outputs: Tensor) -> None:
        self.pushed.update(outputs)


def prop_nodes_topo(g: Graph, message: Any, reduce: Any) -> None:
    """``pull`` for one node after another: ids ascend along edges here."""
    for node in sorted(set(g.dst.tolist())):
        g.pull([node], message, reduce)


class VertexFunction(nn.Module):
    """One vertex after another, in an order that puts children first: ids ascend along edges here."""

    def __init__(self, policy: str = "") -> None:
        super().__init__()

    def function_of(self, g: Graph, number: int) -> Any:
        return self

    def __call__(self, g: Graph) -> Rows:
        states: list[Rows] = []
        outputs: list[Rows] = []
        for number in range(g.count):
            children = [states[u] for u, v in zip(g.src.tolist(), g.dst.tolist(), strict=True) if v == number]
            vertex = _Vertex(g.ndata, children, number)
            self.function_of(g, number).forward(vertex)
            states.append(vertex.scattered)
            outputs.append(vertex.pushed)
        return {name: torch.cat([rows[name] for rows in outputs]) for name in outputs[0]}


class ByType(VertexFunction):
    """A function for each type."""

    def __init__(self, functions: dict[int, VertexFunction]) -> None:
        super().__init__()
        self.functions = functions

    def function_of(self, g: Graph, number: int) -> Any:
        return self.functions[int(g.ndata["type"][number])]


def reduce(tensor: Tensor, dims: tuple[int, ...], op: str = "sum", *, of: Any = None, then: Any = None) -> Tensor:
    """Sums over dims, of a function and then of another."""
    total = (tensor if of is None else of(tensor)).sum(dims)
    return total if then is None else then(total)


def graph(edges: tuple[list[int], list[int]]) -> Graph:
    return Graph(edges)


function = SimpleNamespace(
    copy_u=lambda name, out: lambda edges: {out: edges.src[name]},
    sum=lambda name, out: lambda nodes: {out: nodes.mailbox[name].sum(1)},
)
