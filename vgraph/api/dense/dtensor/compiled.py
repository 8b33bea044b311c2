"""Compiled: a divided model's call as Dynamo reads it: the worker's operators become part of the compiled graph.

Takes: a DividedForward, a call inside ``torch.compile``. Gives: its results. Runs once per compiled graph; what is
found of a call (its form, the recording, whether gradients are wanted) are constants of the graph, and what they
depend on is read here, so that Dynamo guards it.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Protocol, cast
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from vgraph.api.dense.call_form import settings_of
from vgraph.api.dense.dtensor.placements import returned_values
from vgraph.api.dense.dtensor.recordings import Recording
from vgraph.api.dense.run import Deliver, new_buffers
from vgraph.capture.step.arguments import map_arguments
from vgraph.capture.step.returns import Returned
from vgraph.errors import ModelError
from vgraph.ir.sharding import Region
from vgraph.runtime.distributed.compiled import CompiledWorker, Turns, worker_of
from vgraph.runtime.distributed.dtensors import DTensor, MeshWorkers
from vgraph.runtime.distributed.shards import Collectives, Coming


class Divided(Protocol):
    """What stands in place of a model's forward, as a compiled call needs it."""

    model: nn.Module
    workers: MeshWorkers
    traced: list[TracedStep]

    def run(self, *inputs: object) -> object:
        """One call of the model, by all workers."""
        ...

    def in_order(self, inputs: Sequence[object], named: Mapping[str, object]) -> tuple[object, ...]:
        """What a call passes, by the places of forward's parameters."""
        ...

    def recording(self, inputs: Sequence[object]) -> Recording:
        """That of calls like this one."""
        ...

    def part(self, tensor: Tensor, region: Region | None) -> Tensor:
        """What this worker has of a whole tensor."""
        ...

    def gradient(self, recording: Recording, name: str, part: Tensor | None, group: Collectives[Coming]) -> Tensor:
        """This worker's part of a gradient, where its parameter lies."""
        ...


Look = tuple[tuple[int, ...], torch.dtype]  # a tensor's shape and dtype


class TracedStep:
    """One recording, as one worker runs it inside a compiled graph."""

    def __init__(self, divided: Divided, recording: Recording) -> None:
        self.divided, self.recording = divided, recording
        group, step = divided.workers.group, recording.step
        entries = zip(step.program.inputs, recording.parts.input_layouts, strict=True)
        self.regions = {entry.name: layout.regions[group.rank] for entry, layout in entries}
        constants = {
            entry.name: divided.part(step.constants[entry.value.id], self.regions[entry.name])
            for entry in step.program.inputs
            if entry.name.startswith("constant:")
        }
        self.worker = CompiledWorker(
            recording.parts.programs[group.rank], group, constants, recording.homeward.values(), self._refuse_changes
        )
        _steps[self.worker.number] = self

    def _refuse_changes(self) -> None:
        model = self.divided.model
        if changed := self.recording.change(model):
            raise ModelError(
                f"{changed}, which {type(model).__name__} reads, has changed since the step was compiled",
                cure="give it back what it was, or have the model compiled again: torch.compiler.reset()",
            )

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """Paths of a batch's tensors, parameters and buffers that are read, buffers that are written."""
        step = self.recording.step
        order = (path for path, item in self.recording.arguments.leaves.items() if isinstance(item, Tensor))
        buffers = (name for name in step.buffers if f"buffer:{name}" in self.regions)
        return tuple(order), tuple(step.parameters), tuple(buffers), tuple(step.new_buffers)

    @property
    def kind(self) -> str:
        """What the model returns: a tensor, a tuple or a list of tensors; "": something else, or it draws numbers."""
        returns = self.recording.returns
        if "$seed" in self.regions:
            return ""
        if self.trained or isinstance(returns, Returned):
            return "tensor"
        if type(returns) in (tuple, list) and all(isinstance(item, Returned) for item in cast("list[object]", returns)):
            return type(returns).__name__
        return ""

    @property
    def trained(self) -> tuple[str, ...]:
        """Parameters whose gradients the step gives."""
        return tuple(self.recording.step.gradients) if self.recording.form.has_gradients else ()

    def run(
        self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], batch: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """What the model returns, tensor by tensor, and new contents of its buffers; parameters are local parts."""
        step, group = self.recording.step, self.divided.workers.group
        with torch.no_grad(), torch.autocast(group.device.type, enabled=False):  # casts are ops of the step
            whole = {f"buffer:{name}": buffer for name, buffer in buffers.items()}
            whole |= {f"input:{i}": tensor for i, tensor in enumerate(batch)}
            given = {f"parameter:{name}": part.detach() for name, part in parameters.items()}
            for name, tensor in whole.items():
                if name in self.regions:
                    given[name] = self.divided.part(tensor, self.regions[name])
            turns = Turns(self.worker, next(iter(parameters.values())))
            found = turns.run(given)
            made = {v.id: part for v, part in zip(step.program.outputs, found, strict=True) if v is not None}
            held = [self.divided.gradient(self.recording, n, made[step.gradients[n].id], turns) for n in self.trained]
            wanted = [step.loss] if self.trained else returned_values(step)
            results = [part for value in wanted if (part := made[value.id]) is not None]
            results[0] = turns.end(results[0])
            written = list(new_buffers(step, made).values())
        if self.trained:
            results = [Deliver.apply(results[0], held, *(parameters[name] for name in self.trained))]
        return results, written


_steps: WeakValueDictionary[int, TracedStep] = WeakValueDictionary()  # by number, which is a graph's constant


def step_of(number: str) -> TracedStep:
    """The step of this number, in words: Dynamo lets a number vary from graph to graph.

    Raises:
        WorkerError: it is gone, or of another process.
    """
    worker_of(int(number))
    return _steps[int(number)]


# ---------------------------------------------------------------- what Dynamo reads
def call(divided: Divided, inputs: Sequence[object], named: Mapping[str, object]) -> object:
    """A call of the model; it leaves the graph where it passes, or gives, what operators cannot take."""
    inputs = divided.in_order(inputs, named)
    tensors: dict[str, Tensor] = {}
    strange: list[str] = []
    nest = [_without_tensors(item, f"input {i}", tensors, strange) for i, item in enumerate(inputs)]
    looks = {path: (_extents(tensor), tensor.dtype) for path, tensor in tensors.items()}
    settings = tuple(settings_of(divided.model))
    number = "" if strange else _prepare(divided, nest, looks, settings)
    if not number:
        return _outside(divided, inputs)
    order, parameters, buffers, written = _names(number)
    own, others = dict(divided.model.named_parameters()), dict(divided.model.named_buffers())
    results, contents = _run(
        number,
        [cast("DTensor", own[name]).to_local() for name in parameters],
        [others[name] for name in buffers],
        [tensors[path] for path in order],
    )
    with torch.no_grad():
        for name, content in zip(written, contents, strict=True):
            others[name].copy_(content)
    kind = _kind(number)
    return results[0] if kind == "tensor" else list(results) if kind == "list" else tuple(results)


def _extents(tensor: Tensor) -> tuple[int, ...]:
    """The tensor's shape in numbers, also where Dynamo would let an extent vary: a plan is one of extents."""
    return tuple([operator.index(extent) for extent in tensor.shape])


def _without_tensors(nest: object, path: str, tensors: dict[str, Tensor], strange: list[str]) -> object:
    """The nest with None in place of tensors, which are filed by their paths, as ``map_nest`` names them.

    ``strange`` takes the paths of what is neither a plain tensor, a constant, nor a tuple, list or dict of these.
    """
    if isinstance(nest, Tensor) and not isinstance(nest, DTensor) and not _is_trained(nest):
        tensors[path] = nest
        return None
    if type(nest) in (tuple, list):
        pairs = enumerate(cast("list[object]", nest))
        items = [_without_tensors(item, f"{path}[{i}]", tensors, strange) for i, item in pairs]
        return items if type(nest) is list else tuple(items)
    if type(nest) is dict:
        named = cast("dict[str, object]", nest)
        return {key: _without_tensors(item, f"{path}[{key!r}]", tensors, strange) for key, item in named.items()}
    if not (nest is None or isinstance(nest, (bool, int, float, str))):
        strange.append(path)
    return nest


def _is_trained(tensor: Tensor) -> bool:
    """Whether a gradient is wanted of it, which is refused outside of the graph."""
    return tensor.requires_grad and torch.is_grad_enabled()


@torch.compiler.disable(reason="a call of such arguments or results runs outside the graph")
def _outside(divided: Divided, inputs: Sequence[object]) -> object:
    return divided.run(*inputs)


@torch.compiler.allow_in_graph
def _run(
    number: str, parameters: Sequence[Tensor], buffers: Sequence[Tensor], batch: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    found = step_of(number)
    _, own, others, _ = found.names
    return found.run(dict(zip(own, parameters, strict=True)), dict(zip(others, buffers, strict=True)), batch)


@torch.compiler.assume_constant_result
def _prepare(divided: Divided, nest: Sequence[object], looks: Mapping[str, Look], settings: Sequence[object]) -> str:
    """The number of the step that such a call runs; "": it runs outside of the graph.

    ``settings`` are given for their guards: what becomes a constant is guarded by its value.
    """
    device = divided.workers.group.device

    def made(path: str, item: object) -> object:
        return torch.empty(looks[path][0], dtype=looks[path][1], device=device) if path in looks else item

    recording = divided.recording(map_arguments(nest, made))
    known = next((each for each in divided.traced if each.recording is recording), None)
    if known is None:
        known = TracedStep(divided, recording)
        divided.traced.append(known)
    return str(known.worker.number) if known.kind else ""


@torch.compiler.assume_constant_result
def _names(number: str) -> tuple[tuple[str, ...], ...]:
    return step_of(number).names


@torch.compiler.assume_constant_result
def _kind(number: str) -> str:
    return step_of(number).kind
