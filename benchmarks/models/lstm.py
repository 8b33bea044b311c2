"""A stack of LSTM layers, unrolled; the first layer has a recurrent matrix only, as in the Tofu paper."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Cell(nn.Module):
    def __init__(self, inputs: int | None, hidden: int) -> None:
        super().__init__()
        self.recurrent = nn.Linear(hidden, 4 * hidden, bias=False)
        self.input = None if inputs is None else nn.Linear(inputs, 4 * hidden, bias=False)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        h, c = state
        gates = self.recurrent(h) + (x.repeat(1, 4) if self.input is None else self.input(x))
        i, f, g, o = gates.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class StackedLSTM(nn.Module):
    """Inputs and targets: (steps, batch, hidden); the loss is the mean square over all steps."""

    def __init__(self, layers: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.cells = nn.ModuleList(Cell(hidden if i else None, hidden) for i in range(layers))

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        zero = x.new_zeros(x.shape[1], self.hidden)
        states = [(zero, zero) for _ in self.cells]
        loss = x.new_zeros(())
        for step in range(x.shape[0]):
            h = x[step]
            for i, cell in enumerate(self.cells):
                states[i] = cell(h, states[i])
                h = states[i][0]
            loss = loss + (h - targets[step]).square().mean()
        return loss / x.shape[0]
