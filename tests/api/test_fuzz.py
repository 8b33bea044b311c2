"""Random message and reduce functions on random graphs, captured and by DGL's own batches.

``python tests/api/test_fuzz.py N`` runs N seeds (the first argument; the second: where to begin).
"""

from __future__ import annotations

import random
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.api.agreement import assert_agrees, random_frames
from vgraph.ir.topology import Topology

HEADS, WIDTH = 2, 3
NUM_CASES = 150
Step = Callable[[Any], Tensor]
POINTWISE: list[Callable[[Tensor], Tensor]] = [
    torch.tanh, torch.sigmoid, torch.relu, torch.exp, lambda x: x * 0.5, lambda x: x + 1,
    lambda x: x.abs() + 0.1, lambda x: (x * x + 1).sqrt(), lambda x: x.clamp(-1, 1), F.gelu,
    lambda x: torch.log1p(x.abs()), lambda x: -x, lambda x: 1 / (1 + x * x),
    lambda x: torch.where(x > 0, x, 0.2 * x), lambda x: x.softmax(-1), lambda x: x - x.mean(-1, True),
    lambda x: F.layer_norm(x, x.shape[-1:]), lambda x: x.cumsum(-1), lambda x: x.flip(-1),
    lambda x: F.leaky_relu(x, 0.1), lambda x: x.detach() + x, lambda x: x.contiguous().clone(),
]  # fmt: skip
BINARY: list[Callable[[Tensor, Tensor], Tensor]] = [
    torch.add, torch.sub, torch.mul, lambda a, b: a / (b * b + 1), torch.maximum, torch.minimum,
    lambda a, b: torch.where(a > b, a, b * 0.5), lambda a, b: a * torch.sigmoid(b),
]  # fmt: skip
REDUCERS: list[Callable[[Tensor], Tensor]] = [
    lambda m: m.sum(1), lambda m: m.mean(1), lambda m: m.max(1).values, lambda m: m.min(1)[0],
    lambda m: m.amax(1), lambda m: m.amin(dim=1), lambda m: (m * 0.5).prod(1),
    lambda m: m.logsumexp(1), lambda m: m.var(1, unbiased=False),
    lambda m: (m * m + 1).sum(1).sqrt(), lambda m: torch.sum(m, dim=1, keepdim=True).squeeze(1),
    lambda m: m.movedim(1, -1).sum(-1), lambda m: m.movedim(1, 3).amax(3),
    lambda m: m.flatten(2).sum(1).view(-1, *m.shape[2:]),
    lambda m: m.softmax(1).mul(m).sum(1), lambda m: (m - m.mean(1, keepdim=True)).pow(2).mean(1),
    lambda m: m[:, 0], lambda m: m[:, -1] / m.shape[1], lambda m: m.sort(1).values[:, 0],
    lambda m: m.sum(1) if m.shape[1] > 1 else m.mean(1),
]  # fmt: skip
SHAPES = [(HEADS, WIDTH), (HEADS, 1), (1, WIDTH)]


class Maker:
    """Random expressions: every step is drawn once and then does the same at every call."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.parameters = [
            torch.randn(WIDTH, WIDTH, dtype=torch.float64, requires_grad=True),
            torch.randn(WIDTH, dtype=torch.float64, requires_grad=True),
            torch.randn(HEADS, 1, dtype=torch.float64, requires_grad=True),
        ]

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
        return self._with_parameter(self.expression(leaves, depth - 1))

    def _unary(self, inner: Step) -> Step:
        function = self.draw.choice(POINTWISE)
        return lambda given: function(inner(given))

    def _with_parameter(self, inner: Step) -> Step:
        matrix, bias, head = self.parameters
        kind = self.draw.randrange(4)
        if kind == 0:
            return lambda given: _wide(inner(given)) @ matrix
        if kind == 1:
            return lambda given: F.linear(_wide(inner(given)), matrix, bias)
        if kind == 2:
            return lambda given: inner(given) * bias
        return lambda given: inner(given) + head

    def message(self) -> Callable[[Any], dict[str, Tensor]]:
        leaves: list[Step] = [
            lambda e: e.src["h"], lambda e: e.dst["h"], lambda e: e.data["w"], lambda e: e.src["s"],
            lambda e: e.dst["s"], lambda e: (e.src["h"] * e.dst["h"]).sum(-1, keepdim=True),
        ]  # fmt: skip
        first, second = (self.expression(leaves, self.draw.randrange(1, 4)) for _ in range(2))
        return lambda edges: {"m": _wide(first(edges)), "n": _wide(second(edges))}

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
        function = self.draw.choice(REDUCERS)
        return lambda v: function(_wide(inner(v)))


def _wide(x: Tensor) -> Tensor:
    """(rows, heads, width), whatever was broadcast before."""
    return x + torch.zeros(HEADS, WIDTH, dtype=x.dtype)


def random_topology(draw: random.Random) -> Topology:
    count, edges = draw.randrange(1, 7), draw.randrange(1, 13)
    ends = [[draw.randrange(count) for _ in range(edges)] for _ in range(2)]
    return Topology(torch.tensor(ends[0]), torch.tensor(ends[1]), count, count)


def check_seed(seed: int) -> None:
    torch.manual_seed(seed)
    maker = Maker(seed)
    topology = random_topology(maker.draw)
    shapes = {"node:h": (HEADS, WIDTH), "node:s": (HEADS, 1), "edge:w": maker.draw.choice(SHAPES)}
    frames = random_frames(topology, shapes)
    message, reduce = maker.message(), maker.reduce()
    _own_code(message, f"message_{seed}")
    _own_code(reduce, f"reduce_{seed}")
    assert_agrees(topology, frames, message, reduce, maker.parameters, 1e-8)


def _own_code(function: Any, name: str) -> None:
    """What is captured is known by its code, and all seeds share the same few lambdas."""
    function.__code__ = function.__code__.replace(co_name=name)


@pytest.mark.parametrize("start", range(0, NUM_CASES, 10))
def test_random_functions(start: int) -> None:
    for seed in range(start, start + 10):
        check_seed(seed)


def main(count: int, start: int) -> None:
    failed: list[int] = []
    for seed in range(start, start + count):
        try:
            check_seed(seed)
        except Exception:
            failed.append(seed)
            traceback.print_exc(limit=-6)
    print(f"{count - len(failed)} of {count} agree; failed: {failed}")


if __name__ == "__main__":
    main(*(int(word) for word in (*sys.argv[1:], "100", "0")[:2]))
