"""How every side steps: a model with Adam, a function with its gradient, an operator alone.

A Step gives the tensors by which sides are compared; what is made of them is not timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Step = Callable[[], list[Tensor]]


def training(
    run: Callable[[], Tensor], parameters: Iterable[Tensor], labels: Tensor, mask: Tensor | None = None
) -> Step:
    """Forward, cross entropy, backward and Adam; the loss."""
    optimizer = torch.optim.Adam(list(parameters), lr=0.01)

    def step() -> list[Tensor]:
        rows = run()
        loss = F.cross_entropy(rows, labels) if mask is None else F.cross_entropy(rows[mask], labels[mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return [loss.detach()]

    return step


def with_gradient(run: Callable[[], Tensor], inputs: Iterable[Tensor]) -> Step:
    """Forward and backward of the sum of squares; the result and all gradients."""
    inputs = list(inputs)

    def step() -> list[Tensor]:
        for tensor in inputs:
            tensor.grad = None
        out = run()
        out.square().sum().backward()
        return [out.detach(), *(tensor.grad for tensor in inputs if tensor.grad is not None)]

    return step


def alone(run: Callable[[], Tensor]) -> Step:
    """Forward without gradient; the result."""

    def step() -> list[Tensor]:
        with torch.no_grad():
            return [run()]

    return step


def parameter(value: Tensor) -> nn.Parameter:
    return nn.Parameter(value.clone())
