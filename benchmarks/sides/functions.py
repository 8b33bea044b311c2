"""Python functions of edges and nodes, for every library that has DGL's words.

The same lambdas run under vgraph and under DGL, as a user would write them for either.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sides.by_torch import mlp_inputs
from sides.steps import Step, with_gradient
from sides.workloads import Data

Pair = tuple[Any, Any]


def by_functions(data: Data, g: Any, fn: Any) -> Step:
    """A step of the workload's functions on the library's graph; ``fn`` has its built-ins."""
    return edge_mlp(data, g, fn) if data.workload.kind == "edge_mlp" else function(data, g)


def pair_of(kind: str, data: Data, weight: Tensor | None) -> Pair:
    """Message and reduce function."""
    if kind == "gated":
        return (
            lambda e: {"m": torch.sigmoid(e.src["a"] + e.dst["b"]) * e.src["h"]},
            lambda v: {"o": v.mailbox["m"].sum(1)},
        )
    if kind == "linear_message":
        return (
            lambda e: {"m": torch.relu(e.src["h"] @ weight) * e.data["w"]},
            lambda v: {"o": v.mailbox["m"].mean(1)},
        )
    if kind == "softmax_reduce":
        return (
            lambda e: {"m": e.src["h"], "s": (e.src["a"] * e.dst["b"]).sum(-1, keepdim=True)},
            lambda v: {"o": (torch.softmax(v.mailbox["s"], 1) * v.mailbox["m"]).sum(1)},
        )

    def spread(v: Any) -> dict[str, Tensor]:
        m = v.mailbox["m"]
        return {"o": torch.sqrt(torch.relu((m**2).mean(1) - m.mean(1) ** 2) + 1e-6)}

    return lambda e: {"m": e.src["h"] - e.dst["b"]}, spread


def function(data: Data, g: Any) -> Step:
    inputs = data.vertex_inputs()
    width = data.workload.width
    weight = data.matrix(20, width, width)
    message, reduce = pair_of(data.workload.kind, data, weight)
    g.edata["w"] = data.edge_weight

    def run() -> Tensor:
        for name, value in inputs.items():
            g.ndata[name] = value
        g.update_all(message, reduce)
        return g.ndata["o"]

    return with_gradient(run, inputs.values())


def edge_mlp(data: Data, g: Any, fn: Any) -> Step:
    inputs = mlp_inputs(data)
    h, e, first, second = inputs

    def message(edges: Any) -> dict[str, Tensor]:
        rows = torch.cat([edges.src["h"], edges.dst["h"], edges.data["e"]], 1)
        return {"m": torch.relu(rows @ first) @ second}

    def run() -> Tensor:
        g.ndata["h"], g.edata["e"] = h, e
        g.update_all(message, fn.sum("m", "o"))
        return g.ndata["o"]

    return with_gradient(run, inputs)
