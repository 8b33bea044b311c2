"""Call form: what a call passes, and what a recording of a model depends on; calls of one form run the same recording.

Takes: a model, what it is called with. Gives: a CallForm, compared by value. Runs once per plan, and at every call.
Source: guards of Dynamo (Ansel et al. 2024), for a model that is recorded whole.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vgraph.api.dense.run import Layout, tensors_of
from vgraph.capture.step.arguments import map_arguments
from vgraph.errors import ModelError

Leaf = tuple[str, object]
_SETTINGS = (bool, int, float, complex, str, tuple, torch.dtype, type(None))
_OF_TORCH = vars(nn.Module()).keys() - {"training"}


@dataclass(frozen=True)
class CallForm:
    """The model's class, what its modules hold beside tensors, its tensors, inputs, ``casts_now``, gradients."""

    kind: type
    settings: tuple[Leaf, ...]
    tensors: Mapping[str, Layout]
    inputs: tuple[Leaf, ...]
    casts: tuple[object, ...]
    has_gradients: bool


def in_order(forward: inspect.Signature, inputs: Sequence[object], named: Mapping[str, object]) -> tuple[object, ...]:
    """What a call passes, by the places of forward's parameters, with the defaults of those that it leaves out between.

    Raises:
        ModelError: forward takes one of them by name alone.
    """
    if not named:
        return tuple(inputs)
    bound = forward.bind(*inputs, **named)
    left_out: list[inspect.Parameter] = []
    for parameter in forward.parameters.values():
        if parameter.name not in bound.arguments:
            left_out.append(parameter)
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            bound.arguments.update({each.name: each.default for each in left_out})
            left_out.clear()
    if bound.kwargs:
        raise ModelError(
            f"{', '.join(bound.kwargs)} can be passed by name alone, and a plan is made of arguments in order",
            cure="let forward take them in order too",
        )
    return bound.args


def form_of(model: nn.Module, inputs: Sequence[object], *, has_gradients: bool) -> CallForm:
    """The form of a call as it is now; ``has_gradients``: whether those of the model's parameters are wanted."""
    leaves: list[Leaf] = []

    def note(path: str, leaf: object) -> None:
        look = (tuple(leaf.shape), leaf.dtype) if isinstance(leaf, Tensor) else (type(leaf), leaf)
        leaves.append((path, look))

    map_arguments(inputs, note)
    settings = tuple(settings_of(model))
    return CallForm(type(model), settings, tensors_of(model), tuple(leaves), casts_now(), has_gradients)


def casts_now() -> tuple[object, ...]:
    """The automatic casts around a call, and the dtype of the fractions that it makes."""
    casts = tuple((kind, torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind))
    return (*casts, torch.get_default_dtype())


def settings_of(model: nn.Module) -> Iterator[Leaf]:
    """What modules hold beside tensors and modules, as far as it can be compared: modes, rates, sizes."""
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, _SETTINGS) and name not in _OF_TORCH:
                yield f"{path}.{name}", (type(value), value)
