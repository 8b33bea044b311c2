"""Graphs that checks run on, and results that compare; imports ``dgl`` and torch alone, as a program does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dgl
import torch

CHECKS: dict[str, Callable[[], Any]] = {}


def check(*names: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """The function gives something that prints alike, whichever library it ran with."""

    def add(function: Callable[[], Any]) -> Callable[[], Any]:
        for name in names:
            assert name not in CHECKS, name
            CHECKS[name] = function
        return function

    return add


def plain(value: Any) -> Any:
    """Tensors as lists, so that results can be compared."""
    if isinstance(value, torch.Tensor):
        value = value.to_dense() if value.layout != torch.strided else value
        return [str(value.dtype), (value.detach().double() * 1e4).round().div(1e4).tolist()]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in sorted(value.items(), key=str)}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def simple() -> Any:
    """Five edges, one of them twice, one a self-loop; node 4 has none."""
    g = dgl.graph(([0, 1, 1, 0, 3], [2, 2, 0, 2, 3]), num_nodes=5)
    g.ndata["h"] = torch.arange(10.0).view(5, 2)
    g.edata["w"] = torch.arange(1.0, 6.0).view(5, 1)
    return g


def typed() -> Any:
    g = dgl.heterograph({("u", "f", "u"): ([0, 1, 2], [1, 2, 0]), ("u", "p", "g"): ([0, 2, 2], [1, 0, 1])})
    g.nodes["u"].data["h"] = torch.arange(6.0).view(3, 2)
    return g


def pair() -> Any:
    other = dgl.graph(([0, 1], [1, 2]))
    other.ndata["h"], other.edata["w"] = torch.ones(3, 2), torch.ones(2, 1)
    return dgl.batch([simple(), other])


def applied(g: Any, message: Any, reduce: Any) -> Any:
    g.update_all(message, reduce)
    return g.ndata["out"]
