"""The optimizer's update, recorded as it runs in every step but the first.

Takes: parameters, gradients, an optimizer's factory. Gives: updated values and history; tempo: once a model.
Source: Tofu section 5.1 (a weight, its gradient and its history belong together).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vgraph.api.step_tracer import StepTracer

Optimizer = Callable[[Sequence[Tensor]], torch.optim.Optimizer]


@dataclass(frozen=True, eq=False)
class Kept:
    """A tensor of the optimizer's state, before and after the step."""

    parameter: str
    key: str
    before: Tensor
    after: Tensor
    initial: float


@dataclass(frozen=True, eq=False)
class Update:
    """What the step changes beside the loss and the gradients."""

    updated: tuple[str, ...] = ()  # names of parameters
    history: tuple[Kept, ...] = ()
    learning_rate: Tensor | None = None


def record_update(
    tracer: StepTracer,
    parameters: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor],
    make: Optimizer,
    initial: Mapping[str, float],
) -> Update:
    """Records one step of the optimizer; the learning rate and the step count are inputs."""
    names = {id(p): name for name, p in parameters.items()}
    with tracer.paused():
        optimizer = _warm(make, parameters, gradients)
        lr = torch.empty((), dtype=torch.float64)  # a number's precision; without dims it promotes nothing
    before = {
        (names[id(p)], key): tensor
        for p, state in optimizer.state.items()
        for key, tensor in state.items()
        if isinstance(tensor, Tensor)
    }
    for (name, key), tensor in before.items():
        tracer.add_input(f"history:{name}:{key}", tensor)
    tracer.add_input("$lr", lr)
    for group in optimizer.param_groups:
        group["lr"] = lr
    for name, gradient in gradients.items():
        parameters[name].grad = gradient
    with _TensorNumbers(), torch.no_grad():
        optimizer.step()
    after: Any = {(names[id(p)], key): t for p, state in optimizer.state.items() for key, t in state.items()}
    history = tuple(
        Kept(name, key, tensor, after[name, key], initial.get(key, 0.0)) for (name, key), tensor in before.items()
    )
    return Update(tuple(gradients), history, lr)


def _warm(make: Optimizer, parameters: Mapping[str, Tensor], gradients: Mapping[str, Tensor]) -> torch.optim.Optimizer:
    """An optimizer that has made its state, as it is from the second step on."""
    optimizer = make(list(parameters.values()))
    for group in optimizer.param_groups:
        group.update({key: False for key in ("foreach", "fused") if key in group})
    for name in gradients:
        parameters[name].grad = torch.empty_like(parameters[name])
    with _TensorNumbers():
        optimizer.step()
    for name in gradients:
        parameters[name].grad = None
    return optimizer


def initial_history(make: Optimizer) -> dict[str, float]:
    """What a fresh optimizer's state holds: one step on a zero without gradient, the count taken back."""
    zero = torch.nn.Parameter(torch.zeros(()))
    optimizer = make([zero])
    zero.grad = torch.zeros(())
    optimizer.step()
    state = optimizer.state[zero]
    return {k: float(t) - (k == "step") for k, t in state.items() if isinstance(t, Tensor) and t.numel() == 1}


class _TensorNumbers(TorchFunctionMode):
    """Numbers that an optimizer reads out of tensors (a count of steps, a rate) stay tensors."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if func is Tensor.item:
            return args[0].double()  # as precise as the number would be
        scale = named.get("value", named.get("alpha"))
        name = getattr(func, "__name__", "")
        if isinstance(scale, Tensor):
            return _scaled(name, args, scale)
        return func(*args, **named)


def _scaled(name: str, args: tuple[Any, ...], scale: Tensor) -> Tensor:
    """``add_``, ``sub_``, ``addcmul_``, ``addcdiv_`` whose factor is a tensor."""
    x, first, *rest = args
    other = first if not rest else first * rest[0] if "addcmul" in name else first / rest[0]
    sign = -1 if name.startswith("sub") else 1
    term = (other * scale) * sign if sign < 0 else other * scale
    return x.add_(term) if name.endswith("_") else x + term
