"""The optimizer's update, recorded as it runs in every step but the first.

Takes: parameters, gradients, an optimizer's factory. Gives: updated values and history. Runs once per model.
Source: Tofu section 5.1 (a weight, its gradient and its history belong together).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vgraph.capture.errors import CaptureError
from vgraph.capture.record.op_tables import Kwargs, writes_in_place
from vgraph.capture.step.tracer import StepTracer
from vgraph.errors import FunctionError, ModelError

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
class Start:
    """What a group of an optimizer starts with: its learning rate, and what every element of fresh state is."""

    rate: float
    history: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Update:
    """What the step changes beside the loss and the gradients."""

    updated: tuple[str, ...] = ()  # names of parameters
    history: tuple[Kept, ...] = ()
    rate: float = 0.0  # what the learning rate is until another is given


def record_update(
    tracer: StepTracer,
    parameters: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor],
    make: Optimizer,
    starts: Sequence[Start],
    max_norm: float | None = None,
) -> Update:
    """Records one step of the optimizer; the learning rate and the step count are inputs.

    Groups with rates of their own keep their ratio to the first that is not zero. ``starts``: one a group.
    ``max_norm``: gradients are scaled before, so that their norm over all parameters is at most that.
    """
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
    base = next((start.rate for start in starts if start.rate), 0.0)
    for group, start in zip(optimizer.param_groups, starts, strict=True):
        group["lr"] = lr if start.rate == base else lr * (start.rate / base)
    for name, gradient in gradients.items():
        parameters[name].grad = gradient
    with _TensorNumbers(), torch.no_grad(), refusing(optimizer):
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_([parameters[n] for n in gradients], max_norm, foreach=False)
        optimizer.step()
    after = {(names[id(p)], key): t for p, state in optimizer.state.items() for key, t in state.items()}
    fresh = {names[id(p)]: s.history for g, s in zip(optimizer.param_groups, starts, strict=True) for p in g["params"]}
    history = tuple(
        Kept(name, key, tensor, after[name, key], fresh[name].get(key, 0.0)) for (name, key), tensor in before.items()
    )
    return Update(tuple(gradients), history, base)


def _warm(make: Optimizer, parameters: Mapping[str, Tensor], gradients: Mapping[str, Tensor]) -> torch.optim.Optimizer:
    """An optimizer that has made its state, as it is from the second step on."""
    try:
        optimizer = make(list(parameters.values()))
    except Exception as error:  # which it was not when the groups' starts were found
        raise ModelError(
            f"optimizer= looks at the numbers of a tensor, and none is there while a step is recorded: {error}",
            cure="give the optimizer numbers, or tensors that the factory itself makes: lr=0.1",
        ) from error
    given = {id(p) for p in parameters.values()}
    if not all(id(p) in given for group in optimizer.param_groups for p in group["params"]):
        raise FunctionError(
            "optimizer= gives one of other parameters than it is called with",
            cure="use its argument: optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)",
        )
    for group in optimizer.param_groups:
        group.update({key: False for key in ("foreach", "fused") if key in group})
    for name in gradients:
        parameters[name].grad = torch.empty_like(parameters[name])
    with _TensorNumbers(), refusing(optimizer):
        optimizer.step()
    for name in gradients:
        parameters[name].grad = None
    return optimizer


def starts_of(make: Optimizer, parameters: Sequence[Tensor]) -> list[Start]:
    """What each group of an optimizer of these parameters starts with; they need no numbers."""
    starts: list[Start] = []
    for group in make(parameters).param_groups:
        options = {key: option for key, option in group.items() if key != "params"}
        history = _initial_history(make, group["params"][0].dim(), options) if group["params"] else {}
        starts.append(Start(float(group["lr"]), history))
    return starts


def _initial_history(make: Optimizer, num_dims: int, options: Mapping[str, object]) -> dict[str, float]:
    """What fresh state of a group holds: a step on one number with its options, in which nothing is written to.

    A count of steps that stays zero may then be divided by; the state has been made before.
    """
    optimizer, zero = _of_one_number(make, num_dims, options)
    with _NoWrites(), refusing(optimizer), suppress(ArithmeticError):
        optimizer.step()
    state = optimizer.state[zero]
    found = {k: float(t) for k, t in state.items() if isinstance(t, Tensor) and t.numel() == 1}
    _refuse_another_first_step(optimizer, zero, *_of_one_number(make, num_dims, options))
    return found


def _of_one_number(
    make: Optimizer, num_dims: int, options: Mapping[str, object]
) -> tuple[torch.optim.Optimizer, Tensor]:
    """A fresh optimizer with a group's options, and its one parameter: a zero with a gradient of zero."""
    zero = torch.nn.Parameter(torch.zeros((1,) * num_dims, dtype=torch.float64))
    optimizer = make([zero])
    for own in optimizer.param_groups:
        own.update(options)
    zero.grad = torch.zeros_like(zero)
    return optimizer, zero


def _refuse_another_first_step(
    begun: torch.optim.Optimizer, one: Tensor, fresh: torch.optim.Optimizer, other: Tensor
) -> None:
    """Raises where a step from state that was made by zeros is not that of a fresh optimizer."""
    found = [_after_a_step(optimizer, x) for optimizer, x in ((begun, one), (fresh, other))]
    if not all(torch.allclose(a, b, equal_nan=True) for a, b in zip(*found, strict=True)):
        raise ModelError(
            f"the first step of {type(fresh).__name__} is another than its later ones, of which a plan is made",
            cure="leave dampening= out of SGD; of another optimizer leave optimizer= out and step the shards: "
            "torch.optim.Adam(worker.parameters()).step()",
        )


def _after_a_step(optimizer: torch.optim.Optimizer, one: Tensor) -> list[Tensor]:
    """A parameter of one number, and what is kept beside it."""
    assert one.grad is not None
    with torch.random.fork_rng(devices=[]), torch.no_grad(), refusing(optimizer):
        torch.manual_seed(0)
        one.fill_(1.0)
        one.grad.fill_(0.5)
        optimizer.step()
    return [one.detach(), *(t.double() for t in optimizer.state[one].values() if isinstance(t, Tensor))]


@contextmanager
def refusing(optimizer: torch.optim.Optimizer) -> Generator[None]:
    """What an optimizer's step stumbles over while it is recorded is an error with a cure."""
    try:
        yield
    except Exception as error:
        reason = error.reason if isinstance(error, CaptureError) else f"{type(error).__name__}: {error}"
        if type(error).__name__ == "DataDependentOutputException":  # of fake tensors
            reason = "it looks at the data of a tensor"
        raise ModelError(
            f"the update of {type(optimizer).__name__} cannot be part of the step: {reason.splitlines()[0]}",
            cure="leave optimizer= out and step the shards: torch.optim.Adam(worker.parameters()).step()",
        ) from error


class _NoWrites(TorchFunctionMode):
    """Writes in place give back what would have been written to, as it is."""

    def __torch_function__(
        self, func: Callable[..., object], types: object, args: tuple[object, ...] = (), kwargs: Kwargs | None = None
    ) -> object:
        return args[0] if writes_in_place(func) else func(*args, **(kwargs or {}))


class _TensorNumbers(TorchFunctionMode):
    """Numbers that an optimizer reads out of tensors (a count of steps, a rate) stay tensors."""

    def __torch_function__(
        self, func: Callable[..., object], types: object, args: tuple[Any, ...] = (), kwargs: Kwargs | None = None
    ) -> object:
        named = kwargs or {}
        if func is Tensor.item:
            return args[0].double()  # as precise as the number would be
        scale = named.get("value", named.get("alpha"))
        if isinstance(scale, Tensor):
            return _scaled(getattr(func, "__name__", ""), args, scale)
        return func(*args, **named)


def _scaled(name: str, args: tuple[Tensor, ...], scale: Tensor) -> Tensor:
    """``add_``, ``sub_``, ``addcmul_``, ``addcdiv_`` whose factor is a tensor."""
    x, first, *rest = args
    other = first if not rest else first * rest[0] if "addcmul" in name else first / rest[0]
    term = other * scale * -1 if name.startswith("sub") else other * scale
    return x.add_(term) if name.endswith("_") else x + term
