"""Recordings: a model's step in one form, divided among the workers of a plan.

Takes: a model, inputs, a plan. Gives: a Recording, with one Program a worker. Runs once per form of a call.
Source: Tofu section 5.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn

from vgraph.api.dense.call_form import CallForm
from vgraph.api.dense.dtensor.placements import Placements, bare, carried_over, hold_in_blocks
from vgraph.capture.guards.model_watch import ModelWatch
from vgraph.capture.step.arguments import Arguments
from vgraph.capture.step.capture_step import capture_forward, capture_step
from vgraph.capture.step.returns import Returned
from vgraph.errors import ModelError
from vgraph.ir.exchange import Exchange
from vgraph.ir.partitioned import PartitionedProgram
from vgraph.ir.sharding import Replicate, ShardingPlan
from vgraph.ir.step import TrainingStep
from vgraph.partition.rewrite.layout import Workers, build_exchange, placed
from vgraph.partition.rewrite.rewrite import RewriteOptions, rewrite
from vgraph.partition.search.held import search_held


@dataclass(frozen=True, eq=False)
class Recording:
    """A bare step of the model, divided.

    ``returns``: the nest of what the model returns, with numbers for tensors. ``homeward``: what moves a gradient to
    where its parameter lies, by name; one value may be the gradient of several parameters, and lies where one does.
    ``watch``: what the model's code read.
    """

    form: CallForm
    step: TrainingStep
    sharding: ShardingPlan
    parts: PartitionedProgram
    returns: object
    arguments: Arguments
    homeward: Mapping[str, Exchange]
    watch: ModelWatch

    def change(self, model: nn.Module) -> str:
        """What of the model, which this stands in place of, is no more as it was recorded; "": nothing."""
        with _as_it_was(model):
            return self.watch.change(model)[0]


@dataclass(frozen=True, eq=False)
class Planned:
    """The plan: of which bare step, how it is divided, where DTensors hold its parameters."""

    step: TrainingStep
    sharding: ShardingPlan
    options: RewriteOptions
    parameters: Mapping[str, Placements]
    form: CallForm
    arguments: Arguments
    watch: ModelWatch

    def as_planned(self) -> Recording:
        """The step that the plan was made of; nothing is recorded anew."""
        return self._recording(self.form, self.step, self.sharding, Returned(0), self.arguments, self.watch)

    def recorded(self, model: nn.Module, inputs: Sequence[object], form: CallForm) -> Recording:
        """The model as it is now: of another form than the planned, divided as is best for it.

        Raises:
            ModelError: the model cannot be recorded, or returns something else than its loss where gradients are
                wanted.
        """
        arguments = Arguments(inputs)
        with _as_it_was(model):
            step, returns, is_loss = capture_forward(model, inputs, is_divided=True)
            if form.has_gradients:
                _refuse_other_results(model, is_loss=is_loss)
                step = capture_step(model, inputs)
            watch = ModelWatch(model)
        step = bare(step)[0]
        sharding = carried_over(self.step, self.sharding, step)
        if sharding is None:
            whole = (Replicate(),) * len(self.sharding.axes)
            held = {value.id: self.parameters[name] for name, value in step.parameters.items()}
            held |= {value.id: whole for value in step.buffers.values()}
            sharding = search_held(step, self.sharding.axes, held, 0.0)
        return self._recording(form, step, sharding, returns, arguments, watch)

    def _recording(
        self,
        form: CallForm,
        step: TrainingStep,
        sharding: ShardingPlan,
        returns: object,
        arguments: Arguments,
        watch: ModelWatch,
    ) -> Recording:
        held = hold_in_blocks(step, sharding, self.parameters)
        parts = rewrite(step.program, held, self.options)
        homeward = self._homeward(step, held, parts) if form.has_gradients else {}
        return Recording(form, step, held, parts, returns, arguments, homeward=homeward, watch=watch)

    def _homeward(self, step: TrainingStep, plan: ShardingPlan, parts: PartitionedProgram) -> dict[str, Exchange]:
        found, workers = dict[str, Exchange](), Workers(plan)
        for name, value in step.gradients.items():
            lies, wanted = parts.output_layouts[step.program.outputs.index(value)], self.parameters[name]
            if lies is not None and lies.placements != wanted:
                regions = placed(value.row_shape, wanted, workers).regions
                found[name] = build_exchange(0, value.dtype, lies, regions, frozenset(), workers)
        return found


@contextmanager
def _as_it_was(model: nn.Module) -> Generator[None]:
    """The model with its own forward, and without hooks of its own: those run around every call."""
    held = {name: value for name, value in vars(model).items() if name == "forward" or "_hooks" in name}
    del vars(model)["forward"]
    vars(model).update((name, OrderedDict()) for name, value in held.items() if isinstance(value, OrderedDict))
    try:
        yield
    finally:
        vars(model).update(held)


def _refuse_other_results(model: nn.Module, *, is_loss: bool) -> None:
    if not is_loss:
        raise ModelError(
            f"{type(model).__name__} returns something else than its loss while gradients are recorded",
            cure="call it under torch.no_grad(), or let it return its scalar loss, as it did when it was planned",
        )
