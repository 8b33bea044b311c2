"""A user's own model on a device mesh: parameters as DTensors, its forward as the plan divides it.

Takes: a plan, a model, a mesh. Gives: the model. Made once; every call runs one step of all workers.
Source: PyTorch, ``torch.distributed.fsdp.fully_shard``, which changes a model in place likewise.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast
from weakref import WeakSet

import torch
from torch import Tensor, nn

from vgraph.api.dense.call_form import CallForm, form_of, in_order
from vgraph.api.dense.checks import refuse_hooks, refuse_trained
from vgraph.api.dense.dtensor.placements import returned_values
from vgraph.api.dense.dtensor.recordings import Planned, Recording
from vgraph.api.dense.plan_file import plan_digest
from vgraph.api.dense.run import Deliver, Layout, new_buffers, tensors_of
from vgraph.capture.step.returns import restored
from vgraph.errors import ModelError
from vgraph.ir.sharding import Region
from vgraph.ir.step import TrainingStep
from vgraph.runtime.distributed.dtensors import DTensor, MeshWorkers
from vgraph.runtime.distributed.in_process import whole_like
from vgraph.runtime.distributed.shards import Collectives, Coming, take

if TYPE_CHECKING:
    from vgraph.api.dense.dtensor.compiled import TracedStep

MOST_RECORDINGS = 16  # forms of a call that are kept; the one that was made first goes first


class DividedForward:
    """What stands in place of a model's ``forward``."""

    def __init__(self, model: nn.Module, planned: Planned, workers: MeshWorkers) -> None:
        self.model, self.planned, self.workers = model, planned, workers
        self.signature = inspect.signature(model.forward)
        self.recordings = [planned.as_planned()]
        self.checked = WeakSet[Recording]()  # whose first batch was the same in every process
        self.traced: list[TracedStep] = []  # of compiled graphs, which know their numbers alone

    def __call__(self, *inputs: object, **named: object) -> object:
        if torch.compiler.is_dynamo_compiling():
            from vgraph.api.dense.dtensor import compiled  # noqa: PLC0415 - it loads Dynamo

            return compiled.call(self, inputs, named)
        return self.run(*inputs, **named)

    def run(self, *inputs: object, **named: object) -> object:
        """One call of the model, by all workers."""
        inputs = self.in_order(inputs, named)
        self._refuse_strangers()
        recording = self.recording(inputs)
        step, program = recording.step, recording.parts.programs[self.workers.group.rank]
        batch = recording.arguments.tensors(inputs)
        if recording.form.has_gradients:
            refuse_trained(batch)
        if recording not in self.checked:
            self.workers.group.check_batch([tensor for tensor in batch if not isinstance(tensor, DTensor)])
            self.checked.add(recording)
        with torch.no_grad():
            found = self.workers.group.run(program, self._given(recording, batch))
            made = {v.id: part for v, part in zip(step.program.outputs, found, strict=True) if v is not None}
            self._write_buffers(step, made)
        if recording.form.has_gradients:
            return self._loss(recording, made)
        results = [made[value.id] for value in returned_values(step)]
        return restored(recording.returns, [tensor for tensor in results if tensor is not None])

    def in_order(self, inputs: Sequence[object], named: Mapping[str, object]) -> tuple[object, ...]:
        """What a call passes, by the places of forward's parameters."""
        return in_order(self.signature, inputs, named)

    # ------------------------------------------------------------ recordings
    def recording(self, inputs: Sequence[object]) -> Recording:
        """That of calls like this one, perhaps made now."""
        wanted = torch.is_grad_enabled() and any(p.requires_grad for p in self.model.parameters())
        form = form_of(self.model, inputs, has_gradients=wanted)
        for kept in self.recordings:
            if kept.form == form and not kept.change(self.model):
                return kept
        made = self._recorded(inputs, form)
        self.recordings = [*self.recordings, made][-MOST_RECORDINGS:]
        return made

    def _recorded(self, inputs: Sequence[object], form: CallForm) -> Recording:
        made = self.planned.recorded(self.model, inputs, form)
        self.workers.check_equal("programs", plan_digest(made.sharding, made.step))
        return made

    # ------------------------------------------------------------ tensors
    def _given(self, recording: Recording, batch: Sequence[Tensor]) -> list[Tensor]:
        """This worker's part of every input of the Program."""
        step, given = recording.step, list[Tensor]()
        ids = {value.id: tensor for value, tensor in zip(step.inputs, batch, strict=True)}
        rank = self.workers.group.rank
        for entry, layout in zip(step.program.inputs, recording.parts.input_layouts, strict=True):
            kind, _, name = entry.name.partition(":")
            if kind == "parameter":
                given.append(self._local(name))
            elif entry.name == "$seed":
                given.append(self.workers.group.agree(torch.randint(2**62, ())))
            else:
                whole = ids.get(entry.value.id)
                if whole is None:
                    whole = self.model.get_buffer(name) if kind == "buffer" else step.constants[entry.value.id]
                given.append(self.part(whole, layout.regions[rank]))
        return given

    def _local(self, name: str) -> Tensor:
        parameter = self.model.get_parameter(name)
        assert isinstance(parameter, DTensor), name
        return parameter.to_local().detach()

    def _refuse_strangers(self) -> None:
        # torch.func.functional_call puts tensors there that are none
        every = cast("Iterable[tuple[str, object]]", self.model.named_parameters())
        for name, parameter in every:
            is_ours = isinstance(parameter, nn.Parameter) and isinstance(parameter, DTensor)
            if name not in self.planned.parameters or not is_ours:
                raise ModelError(
                    f"{name} is a {type(parameter).__name__} that as_dtensor has not made",
                    cure="copy numbers into the model's parameters, and leave them in their places",
                )

    def part(self, tensor: Tensor, region: Region | None) -> Tensor:
        """What this worker has of a whole tensor."""
        whole = (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach()
        part = whole.new_empty((0,)) if region is None else take(whole, whole_like(whole), region)
        return part.to(self.workers.group.device).contiguous()

    def _write_buffers(self, step: TrainingStep, made: Mapping[int, Tensor | None]) -> None:
        for name, after in new_buffers(step, made).items():
            self.model.get_buffer(name).copy_(after)

    def _loss(self, recording: Recording, made: Mapping[int, Tensor | None]) -> Tensor:
        """The loss, whose backward hands out the gradients that this worker has."""
        step, loss = recording.step, made[recording.step.loss.id]
        assert loss is not None
        gradients = {name: made[value.id] for name, value in step.gradients.items()}
        group, held = self.workers.group, list[DTensor]()
        for name, part in gradients.items():
            home = self.gradient(recording, name, part, group)
            shape = recording.step.gradients[name].row_shape
            held.append(self.workers.joined(home, shape, self.planned.parameters[name]))
        return Deliver.apply(loss, held, *(self.model.get_parameter(name) for name in gradients))

    def gradient(self, recording: Recording, name: str, part: Tensor | None, group: Collectives[Coming]) -> Tensor:
        """This worker's part of a gradient, where its parameter lies: the mean over replicas, where there are any."""
        if name in recording.homeward:
            part = group.exchange(recording.homeward[name], part)
        if self.workers.group.has_replicas:
            part = group.mean(part)
        assert part is not None
        return part


def distribute_model(model: nn.Module, planned: Planned, workers: MeshWorkers) -> nn.Module:
    """Replaces the model's parameters by DTensors, one at a time, and its forward by that of the plan.

    Raises:
        ModelError: the model is not of the plan's parameters and buffers.
    """
    _check(model, planned)
    workers.check_equal("plans", plan_digest(planned.sharding, planned.step))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            if id(parameter) not in made:
                whole = parameter.detach() if parameter.is_meta else parameter.detach().to(workers.group.device)
                placed = workers.distribute(whole, planned.parameters[names[id(parameter)]])
                made[id(parameter)] = nn.Parameter(placed, requires_grad=parameter.requires_grad)
            module.register_parameter(name, made[id(parameter)])
    for buffer in model.buffers():
        if not buffer.is_meta:
            buffer.copy_(workers.group.agree(buffer.detach(), everywhere=True))
    model.forward = DividedForward(model, planned, workers)
    model.register_load_state_dict_pre_hook(_refuse_whole)
    return model


def _refuse_whole(model: nn.Module, state: Mapping[str, object], prefix: str, *_: object) -> None:
    """Raises where ``load_state_dict`` is given a whole tensor for a DTensor, which torch cannot copy there.

    Scalars torch copies: ``set_model_state_dict`` leaves them as they are.
    """
    for name, parameter in model.named_parameters():
        given = state.get(prefix + name)
        if isinstance(parameter, DTensor) and parameter.dim() and given is not None and not isinstance(given, DTensor):
            raise ModelError(
                f"{name} is a DTensor, and a {type(given).__name__} in the state that is loaded",
                cure="pass whole tensors to torch.distributed.checkpoint.state_dict.set_model_state_dict(model, state, "
                "options=StateDictOptions(full_state_dict=True))",
            )


def _check(model: nn.Module, planned: Planned) -> None:
    cure = "pass the model that the plan was made of, or make a plan of this one"
    if "forward" in vars(model):
        raise ModelError(
            f"this {type(model).__name__} has a forward of its own, perhaps of an earlier as_dtensor",
            cure="pass a model as its class makes it",
        )
    if type(model) is not planned.form.kind:
        raise ModelError(
            f"this is a {type(model).__name__}, and the plan is of a {planned.form.kind.__name__}", cure=cure
        )
    refuse_hooks(model.named_parameters())
    here, there = tensors_of(model), planned.form.tensors
    for name in {**here, **there}:
        if here.get(name) != there.get(name):
            raise ModelError(
                f"{name} is {_shown(here.get(name))} in this {type(model).__name__} and {_shown(there.get(name))} in "
                "that of the plan",
                cure=cure,
            )


def _shown(layout: Layout | None) -> str:
    if layout is None:
        return "missing"
    shape, dtype, is_trained, first = layout
    return f"{dtype}{list(shape)}{', trained' if is_trained else ''}, called {first}"
