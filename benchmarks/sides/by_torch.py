"""By hand in torch: index_select, index_add and scatter_reduce, as an expert writes it without a library."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from sides.steps import Step, alone, parameter, training, with_gradient
from sides.workloads import Data

Run = Callable[..., Tensor]


class ByHand:
    def __init__(self, data: Data) -> None:
        self.data, self.src, self.dst = data, data.src, data.dst
        self.degree = torch.bincount(data.dst, minlength=data.num_nodes).clamp(min=1).float()[:, None]

    def add(self, m: Tensor) -> Tensor:
        return m.new_zeros(self.data.num_nodes, *m.shape[1:]).index_add(0, self.dst, m)

    def softmax_sum(self, scores: Tensor, rows: Tensor) -> Tensor:
        """scores (edges, heads, 1) normalised where edges end; rows (edges, heads, width)."""
        at = self.dst.view(-1, *(1,) * (scores.dim() - 1)).expand_as(scores)
        peak = scores.new_full((self.data.num_nodes, *scores.shape[1:]), -torch.inf)
        peak = peak.scatter_reduce(0, at, scores.detach(), "amax")
        part = torch.exp(scores - peak[self.dst])
        return self.add(part * rows) / self.add(part).clamp(min=1e-30)

    # ------------------------------------------------------------ layers of models
    def gcn(self, x: Tensor, p: dict[str, Tensor], sizes: tuple[int, int, int]) -> Tensor:
        rows = x @ p["W"].T
        return self.add(rows[self.src] * self.data.norm[:, None])

    def gat(self, x: Tensor, p: dict[str, Tensor], sizes: tuple[int, int, int]) -> Tensor:
        rows = (x @ p["W"].T).view(-1, sizes[2], sizes[1])
        left, right = ((rows * p[name]).sum(-1, keepdim=True) for name in ("al", "ar"))
        return self.softmax_sum(F.leaky_relu(left[self.src] + right[self.dst], 0.2), rows[self.src]).flatten(1)

    def gatv2(self, x: Tensor, p: dict[str, Tensor], sizes: tuple[int, int, int]) -> Tensor:
        sent, received = ((x @ p[name].T).view(-1, sizes[2], sizes[1]) for name in ("Ws", "Wd"))
        rows = sent[self.src]
        scores = (F.leaky_relu(rows + received[self.dst], 0.2) * p["at"]).sum(-1, keepdim=True)
        return self.softmax_sum(scores, rows).flatten(1)

    def dot(self, x: Tensor, p: dict[str, Tensor], sizes: tuple[int, int, int]) -> Tensor:
        q, k, v = ((x @ p[name].T).view(-1, sizes[2], sizes[1]) for name in "QKV")
        scores = (k[self.src] * q[self.dst]).sum(-1, keepdim=True) * sizes[1] ** -0.5
        return self.softmax_sum(scores, v[self.src]).flatten(1)

    # ------------------------------------------------------------ functions of edges
    def gated(self, h: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return self.add(torch.sigmoid(a[self.src] + b[self.dst]) * h[self.src])

    def linear_message(self, h: Tensor, a: Tensor, b: Tensor) -> Tensor:
        width = h.shape[1]
        weight = self.data.matrix(20, width, width)
        return self.add(torch.relu(h @ weight)[self.src] * self.data.edge_weight) / self.degree

    def softmax_reduce(self, h: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return self.softmax_sum((a[self.src] * b[self.dst]).sum(-1, keepdim=True), h[self.src])

    def std_reduce(self, h: Tensor, a: Tensor, b: Tensor) -> Tensor:
        m = h[self.src] - b[self.dst]
        spread = self.add(m * m) / self.degree - (self.add(m) / self.degree) ** 2
        return torch.sqrt(torch.relu(spread) + 1e-6) * (self.has_edge)

    @property
    def has_edge(self) -> Tensor:
        return (torch.bincount(self.dst, minlength=self.data.num_nodes) > 0).float()[:, None]


def model(data: Data, layer: Run) -> Step:
    layers = [{name: parameter(value) for name, value in one.items()} for one in data.layers()]
    activation = torch.relu if data.workload.kind == "gcn" else F.elu

    def run() -> Tensor:
        rows = data.x
        for i, (values, sizes) in enumerate(zip(layers, data.layer_sizes(), strict=True)):
            rows = layer(activation(rows) if i else rows, values, sizes)
        return rows

    return training(run, [p for one in layers for p in one.values()], data.y)


def edge_mlp(data: Data) -> Step:
    by, inputs = ByHand(data), mlp_inputs(data)
    h, e, first, second = inputs

    def run() -> Tensor:
        rows = torch.cat([h[by.src], h[by.dst], e], 1)
        return by.add(torch.relu(rows @ first) @ second)

    return with_gradient(run, inputs)


def mlp_inputs(data: Data) -> list[Tensor]:
    """Vertices' rows, edges' rows, both matrices of the message; all with gradient but the edges'."""
    width, edge_width = data.workload.width, data.workload.options["edge_width"]
    matrices = data.matrix(21, 2 * width + edge_width, width), data.matrix(22, width, width)
    h = data.draw(10, data.num_nodes, width)
    return [h.requires_grad_(), data.edge_feat, *(m.requires_grad_() for m in matrices)]


def build(data: Data) -> Step:
    kind, by = data.workload.kind, ByHand(data)
    if kind == "aggregate":
        x = data.draw(1, data.num_nodes, data.workload.width)
        return alone(lambda: by.add(x[by.src]))
    if kind == "edge_mlp":
        return edge_mlp(data)
    if kind in ("gcn", "gat", "gatv2", "dot"):
        return model(data, getattr(by, kind))
    inputs = data.vertex_inputs()
    return with_gradient(lambda: getattr(by, kind)(*inputs.values()), inputs.values())
