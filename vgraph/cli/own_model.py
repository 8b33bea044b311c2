"""``vgraph train --model file.py:Class``: a user's own module, made with what the data say of their sizes.

Takes: a name, sizes, a batch. Gives: a module, logits that fit. Runs once per seed (the check: at every step).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from torch import Tensor, nn

import vgraph
from vgraph.cli.models import load_callable
from vgraph.errors import FunctionError

NAMED = "name a class of modules: file.py:Class, or package.module:Class"


class _Own(nn.Module):
    """A user's module; ``sizes``: what its constructor may ask for, by name."""

    def __init__(self, text: str, sizes: Mapping[str, float]) -> None:
        super().__init__()
        self.text, self.num_classes = text, int(sizes["num_classes"])
        self.own = _make(text, sizes)

    def fitting(self, logits: object, count: int, row: str) -> Tensor:
        """The logits; FunctionError: they are not a row for each ``row``, of which there are ``count``."""
        wanted = (count, self.num_classes)
        if not isinstance(logits, Tensor) or tuple(logits.shape) != wanted:
            shown = tuple(logits.shape) if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
            fact = f"{self.text} gives {shown} where logits of shape {wanted} are needed"
            raise FunctionError(fact, cure=f"return a row of num_classes numbers for each {row}")
        return logits


class OwnNodeModel(_Own):
    """Called with a graph and its nodes' features."""

    def forward(self, graph: vgraph.Graph, feat: Tensor) -> Tensor:
        return self.fitting(self.own(graph, feat.to_dense()), graph.num_nodes(), "node")


class OwnTreeModel(_Own):
    """Called with a batch of trees."""

    def forward(self, trees: vgraph.Graph) -> Tensor:
        return self.fitting(self.own(trees), trees.batch_size, "tree")


def _make(text: str, sizes: Mapping[str, float]) -> nn.Module:
    kind = load_callable(text, "class", NAMED)
    asked = inspect.signature(kind).parameters.values()
    plain = [p for p in asked if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    strange = [p.name for p in plain if p.default is p.empty and p.name not in sizes]
    if strange:
        fact = f"{text} asks for {strange[0]!r}, which the data do not say"
        raise FunctionError(fact, cure=f"give it a default; known are {', '.join(sizes)}")
    made = kind(**{p.name: sizes[p.name] for p in plain if p.name in sizes})
    if not isinstance(made, nn.Module):
        raise FunctionError(f"{text} gives a {type(made).__name__}", cure="return a torch.nn.Module")
    if not any(parameter.requires_grad for parameter in made.parameters()):
        raise FunctionError(f"{text} has no parameters to train", cure="make them in its constructor")
    return made
