"""What is recorded again as an operator before was what recording it would give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.models.lstm import StackedLSTM
from benchmarks.models.resnet import WideResNet
from benchmarks.models.transformer import Llama
from vgraph.capture.step.capture_step import capture_step
from vgraph.capture.step.repeated import RepeatingTracer
from vgraph.ir.program import Value, map_leaves
from vgraph.ir.step import TrainingStep


class Odd(nn.Module):
    """Repeats what is alike by its looks alone, or has effects beside its results."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6, 6))
        self.norms = nn.ModuleList([nn.BatchNorm1d(6), nn.BatchNorm1d(6), nn.LayerNorm(6), nn.LayerNorm(6)])
        self.register_buffer("sums", torch.zeros(2, 6))

    def forward(self, x: Tensor) -> Tensor:
        for number in (0.0, -0.0, 0.0):
            x = x @ self.weight + number
            for norm in self.norms:
                x = norm(x)
            x = F.glu(torch.cat([x, x], -1)) + x * x + x * x.detach()
        for row in range(2):
            self.sums[row].add_(x.detach().sum(0))
            y = x.clone()
            y[:, :3].mul_(2)  # through a view
            x = F.relu_(y.unsqueeze(0).squeeze(0)) + F.dropout(y, 0.5)
        first, second = x.chunk(2, -1)
        for half in (first, second, first):
            x = x + F.softmax(half, -1).repeat(1, 2)
            with torch.autocast("cpu", torch.bfloat16):
                x = x + F.layer_norm(half @ half.T @ half, (3,)).repeat(1, 2)
        return F.cross_entropy(x, x.argmax(1)) + F.cross_entropy(x + self.sums.sum(0), x.argmax(1))


LONG = torch.zeros(2, 8, dtype=torch.long)
MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "lstm": lambda: (StackedLSTM(2, 8), (torch.zeros(3, 4, 8), torch.zeros(3, 4, 8))),
    "llama": lambda: (Llama(16, 8, 2, 1, 16, 2), (LONG, LONG)),
    "resnet": lambda: (WideResNet(50, 1, 8, (1, 2, 1, 1)), (torch.zeros(2, 3, 32, 32), LONG[:, 0])),
    "odd": lambda: (Odd(), (torch.ones(4, 6),)),
}


def adam(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.1, weight_decay=0.1)


def printed(step: TrainingStep) -> list[str]:
    """All that a step says of its ops; numbers of pairs count from the first."""
    first = min(note.pair for note in step.notes if note.pair >= 0)
    found: list[str] = []
    for op, note in zip(step.ops, step.notes, strict=True):
        args = map_leaves((op.args, *op.kwargs.items()), lambda leaf: str(leaf) if isinstance(leaf, Value) else leaf)
        results = [(value.id, value.dtype, value.shape) for value in op.results]
        own = replace(note, pair=note.pair - first) if note.pair >= 0 else note
        found.append(f"{op.target} {args} {results} {op.line} {op.returns_sequence} {own}")
    return [*found, str([None if value is None else value.id for value in step.program.outputs])]


@pytest.mark.parametrize("name", MODELS)
def test_records_are_those_of_a_first_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = MODELS[name]()
    torch.ones((), requires_grad=True).neg()  # autograd's first number in a process is paired otherwise
    found: list[list[str]] = []
    for _ in range(2):
        found.append(printed(capture_step(model, inputs, adam)))
        monkeypatch.setattr(RepeatingTracer, "repeated", lambda _self, _func, _args, _kwargs, run: run())
    assert found[0] == found[1]
