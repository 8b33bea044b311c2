"""What a placement runs: the captured model, and every step of it on the devices.

Takes: a model; a PartitionedProgram. Gives: a function of the model's inputs. Runs once per model, and at every step.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vgraph.api.dense.checks import refuse_trained
from vgraph.api.dense.devices import PlaceDevice
from vgraph.capture.guards.model_watch import ModelWatch
from vgraph.capture.step.arguments import Arguments, map_arguments
from vgraph.capture.step.capture_step import capture_forward, capture_step
from vgraph.capture.step.returns import restored
from vgraph.errors import ModelError, PlacementError
from vgraph.ir.partitioned import PartitionedProgram
from vgraph.ir.program import Program, Value
from vgraph.ir.step import TrainingStep
from vgraph.partition.placement.program_graph import split_gradients
from vgraph.runtime.distributed.streams import DeviceStream, PlacedProgram

Layout = tuple[tuple[int, ...], torch.dtype, bool, str]  # shape, dtype, whether it is trained, its first name


@dataclass(frozen=True, eq=False)
class Captured:
    """A model as a Program, and where the tensors of its inputs are found at every call."""

    model: nn.Module
    step: TrainingStep
    program: Program
    modules: list[str]
    returns: object  # the nest of what the model returns, with a Returned for each tensor
    is_training: bool
    example: tuple[object, ...]
    arguments: Arguments
    sources: tuple[Callable[[Sequence[Tensor]], Tensor], ...]  # one an input of the Program
    modes: list[bool]  # whether each module was in training
    model_tensors: dict[str, Layout]  # see tensors_of
    watch: ModelWatch  # what its code reads beside parameters and buffers

    @property
    def is_meta(self) -> bool:
        """Whether there is nothing to run: tensors without data."""
        return any(
            tensor.is_meta for tensor in (*self.model.parameters(), *self.model.buffers(), *_tensors(self.example))
        )

    @property
    def together(self) -> list[tuple[Value, Value]]:
        """Values of one device: a buffer and its new contents."""
        return [(self.step.buffers[name], value) for name, value in self.step.new_buffers.items()]

    def tensors(self, inputs: Sequence[object]) -> list[Tensor]:
        """The Program's inputs for these inputs of the model."""
        batch = self.arguments.tensors(inputs)
        if not self.arguments.is_in_order(inputs):
            raise ModelError(
                "a dict among the inputs has its items in another order than that of the example",
                cure="pass them in its order, in which the model may have read them",
            )
        return [source(batch) for source in self.sources]


def capture_model(model: nn.Module, example: tuple[object, ...]) -> Captured:
    """The model's training step, if it returns a loss, else its forward.

    Raises:
        ModelError: the model cannot be captured; the message has its own line.
    """
    arguments = Arguments(example)
    step, returns, is_loss = capture_forward(model, example)
    if is_loss:
        step = capture_step(model, example)
    program, origin = split_gradients(step.program)
    modules = [step.notes[position].module for position in origin]
    sources = tuple(_source(model, step, given.name, given.value) for given in program.inputs)
    return Captured(
        model=model,
        step=step,
        program=program,
        modules=modules,
        returns=returns,
        is_training=is_loss,
        example=example,
        arguments=arguments,
        sources=sources,
        modes=modes_of(model),
        model_tensors=tensors_of(model),
        watch=ModelWatch(model),
    )


def modes_of(model: nn.Module) -> list[bool]:
    """Whether each module is in training: what a recording depends on."""
    return [module.training for module in model.modules()]


def tensors_of(model: nn.Module) -> dict[str, Layout]:
    """Of parameters and buffers by name what a recording depends on: another may take the place of one.

    That is shape, dtype, whether it is trained, and which names it has.
    """
    first: dict[int, str] = {}
    found: dict[str, Layout] = {}
    for tensors in (model.named_parameters, model.named_buffers):
        for name, tensor in tensors(remove_duplicate=False):
            found[name] = (tuple(tensor.shape), tensor.dtype, tensor.requires_grad, first.setdefault(id(tensor), name))
    return found


def _source(model: nn.Module, step: TrainingStep, name: str, value: Value) -> Callable[[Sequence[Tensor]], Tensor]:
    """How to find the tensor of an input of the Program."""
    kind, _, path = name.partition(":")
    if kind == "input":
        return operator.itemgetter(int(path))
    if kind == "constant":
        constant = step.constants[value.id]
        return lambda batch: constant
    if name == "$seed":
        return lambda batch: torch.randint(2**62, (), dtype=value.dtype)
    owner, _, attribute = path.rpartition(".")
    return lambda batch: getattr(model.get_submodule(owner), attribute)


def _tensors(inputs: Sequence[object]) -> list[Tensor]:
    found: list[Tensor] = []
    map_arguments(inputs, lambda _, leaf: found.append(leaf) if isinstance(leaf, Tensor) else None)
    return found


def refuse_changes(captured: Captured) -> None:
    """Raises where the model is no more what was placed."""
    if modes_of(captured.model) != captured.modes:
        raise PlacementError(
            "the model, or a module of it, has changed between training and evaluation since it was placed",
            cure="call model.train() or model.eval() as it was, or place it anew",
        )
    before, now = captured.model_tensors, tensors_of(captured.model)
    for name in before | now if before != now else ():
        if before.get(name) != now.get(name):
            raise PlacementError(
                f"{name!r} of the model has another shape, dtype, name or requires_grad than when it was placed",
                cure="give it back what it had, or place the model anew",
            )
    found, line = captured.watch.change(captured.model)
    if found:
        raise PlacementError(
            f"{found}, which {type(captured.model).__name__} reads, has changed since it was placed",
            line=line or None,
            cure="give it back what it was, or place the model anew",
        )


class Runner:
    """Runs a placed model; every call reads its parameters and buffers as they are then."""

    def __init__(self, captured: Captured, parts: PartitionedProgram, places: Sequence[PlaceDevice]) -> None:
        self.captured = captured
        streams = [DeviceStream(p.name, p.torch_device, p.num_threads) for p in places if p.torch_device is not None]
        self.program = PlacedProgram(parts, streams)
        self.expected = [(tuple(t.shape), t.dtype) for t in _tensors(captured.example)]

    def __call__(self, inputs: Sequence[object]) -> Any:
        captured = self.captured
        self._check(_tensors(inputs))
        if captured.is_training:
            refuse_trained(_tensors(inputs))
        outputs = [tensor for tensor in self.program.run(captured.tensors(inputs)) if tensor is not None]
        home = next(iter(_tensors(inputs)), outputs[0]).device
        self._write_buffers(outputs)
        if captured.is_training:
            parameters = dict(captured.model.named_parameters())
            trained = [parameters[name] for name in captured.step.gradients]
            loss, gradients = outputs[0].to(home), outputs[1 : 1 + len(trained)]
            return Deliver.apply(loss, gradients, *trained) if torch.is_grad_enabled() else loss
        return restored(captured.returns, [tensor.to(home) for tensor in outputs])

    def _check(self, batch: Sequence[Tensor]) -> None:
        found = [(tuple(t.shape), t.dtype) for t in batch]
        if found != self.expected:
            raise PlacementError(
                f"the model was placed with inputs {_shapes(self.expected)}, and is given {_shapes(found)}",
                cure="pass inputs of the same shapes and dtypes, or place the model with these",
            )
        refuse_changes(self.captured)

    @torch.no_grad()
    def _write_buffers(self, outputs: Sequence[Tensor]) -> None:
        """What the step changed in the model: BatchNorm's running statistics."""
        step = self.captured.step
        if step.new_buffers:
            names = dict(self.captured.model.named_buffers())
            made = dict(zip((v.id for v in step.program.outputs if v is not None), outputs, strict=True))
            for name, after in new_buffers(step, made).items():
                names[name].copy_(after)


def new_buffers(step: TrainingStep, made: Mapping[int, Tensor | None]) -> dict[str, Tensor]:
    """What buffers hold after a step, of which ``made`` has the outputs by the ids of their values.

    One that takes what another held has a copy of its own, for that may be written first.
    """
    found: dict[str, Tensor] = {}
    for name, value in step.new_buffers.items():
        after = made[value.id]
        assert after is not None
        found[name] = after.clone() if name in step.swapped else after
    return found


def _shapes(given: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> str:
    return ", ".join(f"{str(dtype).removeprefix('torch.')}{list(shape)}" for shape, dtype in given) or "none"


class Deliver(torch.autograd.Function):
    """The loss of a step that has computed its gradients: backward hands them out."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: Sequence[Tensor], *parameters: Tensor) -> Tensor:
        ctx.save_for_backward(*(g.to(p.device) for g, p in zip(gradients, parameters, strict=True)))
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True: what was computed knows no derivative of its own
            raise ModelError(
                "gradients of a step that runs as a program of its own have no second derivative (create_graph=True)",
                cure="take it in the model's forward, where torch.autograd.grad(..., create_graph=True) is recorded",
            )
        (above,) = grad_outputs
        return (None, None, *(gradient * above for gradient in ctx.saved_tensors))
