"""``vgraph train --model file.py:Class``: a user's own module, made with what the data say of their sizes.

Takes: a name, sizes, a batch. Gives: a module, outputs that fit. Runs once per seed (the check: at every step).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn import functional as F

import vgraph
from vgraph.cli.models import load_callable
from vgraph.cli.pairs import PairModel
from vgraph.errors import FunctionError

NAMED = "name a class of modules: file.py:Class, or package.module:Class"


class _Own(nn.Module):
    """A user's module; ``sizes``: what its constructor may ask for, by name."""

    def __init__(self, text: str, sizes: Mapping[str, float]) -> None:
        super().__init__()
        self.text, self.num_classes = text, int(sizes.get("num_classes", 0))
        self.own = _make(text, sizes)

    def logits(self, found: object, count: int, row: str) -> Tensor:
        """The logits; FunctionError: they are not a row for each ``row``, of which there are ``count``."""
        wanted = (count, self.num_classes)
        return fitting(self.text, found, "logits", wanted, f"return a row of num_classes numbers for each {row}")


class OwnNodeModel(_Own):
    """Called with a graph and its nodes' features."""

    def forward(self, graph: vgraph.Graph, feat: Tensor) -> Tensor:
        return self.logits(self.own(graph, feat.to_dense()), graph.num_nodes(), "node")


class OwnTreeModel(_Own):
    """Called with a batch of trees."""

    def forward(self, trees: vgraph.Graph) -> Tensor:
        return self.logits(self.own(trees), trees.batch_size, "tree")


class OwnPairModel(PairModel):
    """Called with two batches of trees; it learns by squared errors."""

    def __init__(self, text: str, sizes: Mapping[str, float]) -> None:
        super().__init__()
        self.text, self.own = text, _make(text, sizes)

    def forward(self, left: vgraph.Graph, right: vgraph.Graph) -> Tensor:
        wanted = (left.batch_size,)
        return fitting(self.text, self.own(left, right), "numbers", wanted, "return one number for each pair")

    def loss(self, found: Tensor, similarity: Tensor) -> Tensor:
        return F.mse_loss(found, similarity)

    def similarity(self, found: Tensor) -> Tensor:
        return found


def fitting(text: str, found: object, what: str, wanted: tuple[int, ...], cure: str) -> Tensor:
    """What a module gave; FunctionError: it is no tensor of that shape."""
    if not isinstance(found, Tensor) or tuple(found.shape) != wanted:
        shown = tuple(found.shape) if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise FunctionError(f"{text} gives {shown} where {what} of shape {wanted} are needed", cure=cure)
    return found


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
