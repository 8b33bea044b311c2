"""Random message and reduce functions: expression trees, drawn once and the same at every call."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Step = Callable[[Any], Tensor]
Pair = tuple[Callable[[Any], dict[str, Tensor]], Callable[[Any], dict[str, Tensor]]]

POINTWISE: list[Callable[[Tensor], Tensor]] = [
    torch.tanh, torch.sigmoid, torch.relu, torch.exp, lambda x: x * 0.5, lambda x: x + 1,
    lambda x: x.abs() + 0.1, lambda x: (x * x + 1).sqrt(), lambda x: x.clamp(-1, 1), F.gelu,
    lambda x: torch.log1p(x.abs()), lambda x: -x, lambda x: 1 / (1 + x * x),
    lambda x: torch.where(x > 0, x, 0.2 * x), lambda x: x.softmax(-1), lambda x: x - x.mean(-1, True),
    lambda x: F.layer_norm(x, x.shape[-1:]), lambda x: x.cumsum(-1), lambda x: x.flip(-1),
    lambda x: F.leaky_relu(x, 0.1), lambda x: x.detach() + x, lambda x: x.contiguous().clone(),
    F.silu, F.elu, F.softplus, torch.sin, lambda x: x.sum(-1, keepdim=True), lambda x: x.sum(-2, keepdim=True) * x,
    lambda x: (x * x + 0.5).log(), lambda x: x.mean((-2, -1), keepdim=True), lambda x: x.logical_not().to(x.dtype) + x,
    lambda x: (x * x + 1).rsqrt(), lambda x: x.erf(), lambda x: x**3, lambda x: x.masked_fill(x > 1, 0.5),
    lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2), lambda x: x.clamp_min(0.1).reciprocal(),
]  # fmt: skip
BINARY: list[Callable[[Tensor, Tensor], Tensor]] = [
    torch.add, torch.sub, torch.mul, lambda a, b: a / (b * b + 1), torch.maximum, torch.minimum,
    lambda a, b: torch.where(a > b, a, b * 0.5), lambda a, b: a * torch.sigmoid(b),
    lambda a, b: (a * b).sum(-1, keepdim=True), lambda a, b: torch.rsub(a, b, alpha=2.0),
]  # fmt: skip
SEGMENT_REDUCERS: list[Callable[[Tensor], Tensor]] = [  # of the mailbox's slots, whatever the degree
    lambda m: m.sum(1), lambda m: m.mean(1), lambda m: m.max(1).values, lambda m: m.min(1)[0],
    lambda m: m.amax(1), lambda m: m.amin(dim=1), lambda m: (m * 0.5).prod(1),
    lambda m: m.logsumexp(1), lambda m: m.var(1, unbiased=False),
    lambda m: (m * m + 1).sum(1).sqrt(), lambda m: torch.sum(m, dim=1, keepdim=True).squeeze(1),
    lambda m: m.movedim(1, -1).sum(-1), lambda m: m.movedim(1, 3).amax(3),
    lambda m: m.flatten(2).sum(1).view(-1, *m.shape[2:]),
    lambda m: m.softmax(1).mul(m).sum(1), lambda m: (m - m.mean(1, keepdim=True)).pow(2).mean(1),
    lambda m: (m.sum(-1, keepdim=True).softmax(1) * m).sum(1), lambda m: (m - m.amax(1, keepdim=True)).exp().sum(1),
]  # fmt: skip
REDUCERS = [
    *SEGMENT_REDUCERS,
    lambda m: m[:, 0], lambda m: m[:, -1] / m.shape[1], lambda m: m.sort(1).values[:, 0],
    lambda m: m.sum(1) if m.shape[1] > 1 else m.mean(1),
]  # fmt: skip


class Maker:
    """Random expressions over rows of (heads, width), and the parameters that they read."""

    def __init__(
        self, seed: int, heads: int = 2, width: int = 3, *, segments_only: bool = False,
        dtype: torch.dtype = torch.float64, rounded: torch.dtype = torch.float64,
    ) -> None:  # fmt: skip
        self.draw = random.Random(seed)
        self.heads, self.width = heads, width
        self.reducers = SEGMENT_REDUCERS if segments_only else REDUCERS
        shapes = [(width, width), (width,), (heads, 1), (2 * width, width)]
        made = torch.Generator().manual_seed(seed)
        drawn = [torch.randn(s, dtype=torch.float64, generator=made) for s in shapes]
        self.parameters = [t.to(rounded).to(dtype).requires_grad_() for t in drawn]

    def pair(self, name: str) -> Pair:
        """A message and a reduce function, with code of their own: what is captured is known by its code."""
        message, reduce = self.message(), self.reduce()
        for kind, function in (("message", message), ("reduce", reduce)):
            function.__code__ = function.__code__.replace(co_name=f"{kind}_{name}")
        return message, reduce

    def expression(self, leaves: list[Step], depth: int) -> Step:
        if depth == 0 or self.draw.random() < 0.1:
            return self.draw.choice(leaves)
        kind = self.draw.random()
        if kind < 0.4:
            return self._unary(self.expression(leaves, depth - 1))
        if kind < 0.75:
            a, b = (self.expression(leaves, depth - 1) for _ in range(2))
            combine = self.draw.choice(BINARY)
            return lambda given: combine(a(given), b(given))
        if kind < 0.85:
            return self._joined(*(self.expression(leaves, depth - 1) for _ in range(2)))
        return self._with_parameter(self.expression(leaves, depth - 1))

    def _unary(self, inner: Step) -> Step:
        function = self.draw.choice(POINTWISE)
        return lambda given: function(inner(given))

    def _joined(self, a: Step, b: Step) -> Step:
        """A product with rows laid side by side, which hoisting takes apart; or pieces of them."""
        joint, wide, width = self.parameters[3], self.wide, self.width
        if self.draw.random() < 0.7:
            return lambda given: torch.cat([wide(a(given)), wide(b(given))], -1) @ joint
        return lambda given: torch.cat([wide(a(given)), wide(b(given))], -1).split([width, width], -1)[1]

    def _with_parameter(self, inner: Step) -> Step:
        matrix, bias, head, joint = self.parameters
        kind, wide, width = self.draw.randrange(5), self.wide, self.width
        if kind == 0:
            return lambda given: wide(inner(given)) @ matrix
        if kind == 1:
            return lambda given: F.linear(wide(inner(given)), matrix, bias)
        if kind == 2:
            return lambda given: inner(given) * bias
        if kind == 3:
            return lambda given: F.linear(wide(inner(given)), joint)[..., :width]
        return lambda given: inner(given) + head

    def message(self) -> Callable[[Any], dict[str, Tensor]]:
        leaves: list[Step] = [
            lambda e: e.src["h"], lambda e: e.dst["h"], lambda e: e.data["w"], lambda e: e.src["s"],
            lambda e: e.dst["s"], lambda e: (e.src["h"] * e.dst["h"]).sum(-1, keepdim=True),
        ]  # fmt: skip
        first, second = (self.expression(leaves, self.draw.randrange(1, 4)) for _ in range(2))
        wide = self.wide
        return lambda edges: {"m": wide(first(edges)), "n": wide(second(edges))}

    def reduce(self) -> Callable[[Any], dict[str, Tensor]]:
        slots: list[Step] = [
            lambda v: v.mailbox["m"], lambda v: v.mailbox["n"],
            lambda v: v.mailbox["m"] * v.data["h"].unsqueeze(1),
            lambda v: v.mailbox["n"] - v.data["s"][:, None],
        ]  # fmt: skip
        rows = [self._reduced(self.expression(slots, self.draw.randrange(0, 3))) for _ in range(2)]
        rows.append(lambda v: v.data["h"])
        first, second = (self.expression(rows, self.draw.randrange(0, 3)) for _ in range(2))
        return lambda nodes: {"o": first(nodes), "p": second(nodes)}

    def _reduced(self, inner: Step) -> Step:
        function, wide = self.draw.choice(self.reducers), self.wide
        return lambda v: function(wide(inner(v)))

    def wide(self, x: Tensor) -> Tensor:
        """(rows, heads, width), whatever was broadcast before."""
        return x + torch.zeros(self.heads, self.width, dtype=x.dtype)
