"""Random op graphs: models whose forward is products, sums, functions, turns and reductions of matrices, by a seed."""

from __future__ import annotations

import random

import torch
from torch import Tensor, nn

from vgraph.capture.step.capture_step import capture_step
from vgraph.ir.step import TrainingStep

_SIZES = (24, 48, 96, 192, 20)  # 20 is divided by some numbers of workers only
_FUNCTIONS = {"tanh": torch.tanh, "relu": torch.relu, "double": lambda x: 2 * x}


class Drawn(nn.Module):
    """``length`` instructions over the values made so far; values that nobody reads are part of the loss."""

    def __init__(self, rng: random.Random, length: int) -> None:
        super().__init__()
        self.shapes = [(rng.choice(_SIZES), rng.choice(_SIZES))]
        self.lines: list[tuple[str, tuple[int, ...], str]] = []
        self.weights = nn.ParameterList()
        self.unread: set[int] = {0}
        while len(self.lines) < length:
            self._draw(rng)

    def _draw(self, rng: random.Random) -> None:
        kind = rng.choice(("weight", "weight", "function", "add", "mul", "product", "turn", "sum"))
        kind = kind if self.lines else "weight"  # the loss depends on one
        one = rng.randrange(len(self.shapes))
        rows, columns = self.shapes[one]
        others = [i for i, shape in enumerate(self.shapes) if shape == (rows, columns) and i != one]
        inner = [i for i, shape in enumerate(self.shapes) if shape[0] == columns and i != one]
        if kind == "weight":
            made = rng.choice(_SIZES)
            self.weights.append(nn.Parameter(torch.empty(columns, made)))
            self._add("weight", (one,), str(len(self.weights) - 1), (rows, made))
        elif kind == "function":
            self._add("function", (one,), rng.choice(list(_FUNCTIONS)), (rows, columns))
        elif kind in ("add", "mul") and others:
            self._add(kind, (one, rng.choice(others)), "", (rows, columns))
        elif kind == "product" and inner:
            other = rng.choice(inner)
            self._add("product", (one, other), "", (rows, self.shapes[other][1]))
        elif kind == "turn":
            self._add("turn", (one,), "", (columns, rows))
        elif kind == "sum":
            self._add("sum", (one,), "", (rows, columns))

    def _add(self, kind: str, read: tuple[int, ...], detail: str, shape: tuple[int, int]) -> None:
        self.lines.append((kind, read, detail))
        self.unread -= set(read)
        self.unread.add(len(self.shapes))
        self.shapes.append(shape)

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for kind, read, detail in self.lines:
            values.append(self._line(kind, [values[i] for i in read], detail))
        return torch.stack([values[i].square().sum() for i in sorted(self.unread)]).sum()

    def _line(self, kind: str, read: list[Tensor], detail: str) -> Tensor:
        if kind == "weight":
            return read[0] @ self.weights[int(detail)]
        if kind == "function":
            return _FUNCTIONS[detail](read[0])
        if kind == "add":
            return read[0] + read[1]
        if kind == "mul":
            return read[0] * read[1]
        if kind == "product":
            return read[0] @ read[1]
        return read[0].t() if kind == "turn" else read[0] - read[0].sum(1, keepdim=True)


def random_step(seed: int) -> TrainingStep:
    """Forward and backward of a model of 4 to 10 instructions, on the meta device."""
    rng = random.Random(seed)
    with torch.device("meta"):
        model = Drawn(rng, rng.randint(4, 10))
        return capture_step(model, (torch.zeros(model.shapes[0]),))
