"""What a captured step starts from: parameters, buffers, history, one tensor at a time.

Takes: a model, or a meta model and ``init``. Gives: tensors for the inputs of its step. Runs once per plan.
Source: Tofu section 6 (parameters are initialised where they lie).
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from vgraph.errors import ModelError
from vgraph.ir.program import Value
from vgraph.ir.step import TrainingStep

Init = Callable[..., object]


class StepState:
    """Gives each input of a step its tensor; a real model's tensors are copied at once."""

    def __init__(self, model: nn.Module, step: TrainingStep, init: Init | None) -> None:
        self.step, self.init = step, init
        held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        self.names = {value.id: name for name, value in (*step.parameters.items(), *step.buffers.items())}
        self.copied = {n: t.detach().clone() for n, t in held.items() if not t.is_meta}
        self.aliases, self.unsaved = dict(_aliases(model)), _unsaved(model)
        self.history = {kept.before.id: kept for kept in step.history}

    def initial(self, value: Value, learning_rate: float) -> Tensor:
        """The whole tensor that an input of the step begins with, on the CPU."""
        if value.id in self.names:
            return self._named(self.names[value.id], value)
        if value.id in self.history:
            return torch.full(value.row_shape, self.history[value.id].initial, dtype=value.dtype)
        if value.id in self.step.constants:
            return self.step.constants[value.id]
        if self.step.learning_rate is not None and value.id == self.step.learning_rate.id:
            return torch.tensor(learning_rate, dtype=value.dtype)
        raise AssertionError(f"{value} is given anew in every step")

    def is_copied(self, value: Value) -> bool:
        """Whether an input begins with a tensor of the model itself, in each process its own."""
        return self.names.get(value.id) in self.copied

    def _named(self, name: str, value: Value) -> Tensor:
        if name in self.copied:
            return self.copied[name]
        if self.init is None:
            raise ModelError(
                f"{name} is on the meta device, which holds no numbers",
                cure="pass init=, a function of (name, tensor) that fills each tensor in place",
            )
        tensor = torch.empty(value.row_shape, dtype=value.dtype)
        with torch.no_grad():
            made = self.init(name, tensor) if _takes_two(self.init) else self.init(tensor)
        found = made.detach() if isinstance(made, Tensor) else tensor
        if found.shape != tensor.shape:
            raise ModelError(
                f"init gave {name} the shape {tuple(found.shape)} instead of {tuple(tensor.shape)}",
                cure="fill the tensor that is passed, or return one of its shape",
            )
        return found.to(value.dtype)


def _aliases(model: nn.Module) -> Iterator[tuple[str, str]]:
    """Other names of a tensor that has several (tied weights), and the first."""
    first: dict[int, str] = {}
    every = (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
    for name, tensor in itertools.chain(*every):
        if first.setdefault(id(tensor), name) != name:
            yield name, first[id(tensor)]


def _unsaved(model: nn.Module) -> frozenset[str]:
    """The names of buffers that the model's own state leaves out (``persistent=False``)."""
    saved = {id(tensor) for tensor in model.state_dict(keep_vars=True).values()}
    return frozenset(name for name, buffer in model.named_buffers() if id(buffer) not in saved)


def _takes_two(init: Init) -> bool:
    try:
        kinds = inspect.signature(init).parameters.values()
    except (TypeError, ValueError):
        return True
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in kinds) > 1
