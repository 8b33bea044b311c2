"""Forms: the steps of one plan: the one that it was searched for, and those of other batches and of evaluation.

Takes: what a plan was made of, a batch. Gives: a Form, whose parameters lie as the plan's do. Runs once per form of
batches and mode. Source: Tofu section 6, with one set of shards for several graphs.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from vgraph.api.dense.call_form import casts_now, form_of
from vgraph.api.dense.checks import refuse_beyond
from vgraph.capture.guards.model_watch import ModelWatch
from vgraph.capture.step.arguments import Arguments
from vgraph.capture.step.capture_step import capture_forward, capture_training
from vgraph.capture.step.copy_model import copy_around
from vgraph.capture.step.optimizer import Optimizer
from vgraph.capture.step.returns import Returned, restored
from vgraph.errors import ModelError
from vgraph.ir.partitioned import Layout, PartitionedProgram
from vgraph.ir.program import Value
from vgraph.ir.sharding import ShardingPlan
from vgraph.ir.step import TrainingStep
from vgraph.partition.accounting.footprint import program_footprint
from vgraph.partition.rewrite.replicas import average_gradients
from vgraph.partition.rewrite.rewrite import RewriteOptions, rewrite
from vgraph.partition.search.held import search_held

logger = logging.getLogger("vgraph")
MOST_FORMS = 8  # beside the first; the one that was not asked for longest is let go
_HELD = ("parameter:", "buffer:", "history:", "$lr")  # names of inputs that all forms have in common


class Recipe:
    """What a plan was made of, and its other steps are: the model without its numbers, and how it is trained.

    ``arguments``, ``returns``: what the plan's own step takes and gives; ``is_forward``: it has no loss, and no
    gradients.
    """

    def __init__(
        self,
        model: nn.Module,
        arguments: Arguments,
        returns: object,
        *,
        is_forward: bool,
        optimizer: Optimizer | None,
        max_norm: float | None,
        memory_limit: float | None,
    ) -> None:
        self.model, self.name = copy_around(model, _without_numbers), type(model).__name__
        self.original, self.watch = weakref.ref(model), ModelWatch(model)
        self.modes, self.is_training = [module.training for module in model.modules()], model.training
        self.form = form_of(model, arguments.example, has_gradients=True)
        self.arguments, self.returns, self.is_forward = arguments, returns, is_forward
        self.optimizer, self.max_norm, self.memory_limit = optimizer, max_norm, memory_limit

    def capture(self, batch: Sequence[object], *, is_training: bool) -> tuple[TrainingStep, object]:
        """The model's step in one mode: forward alone in evaluation, but as the plan's own step in that one's mode."""
        if is_training == self.is_training:
            for module, mode in zip(self.model.modules(), self.modes, strict=True):
                module.training = mode
        else:
            self.model.train(is_training)
        if self.is_forward or (self.is_training and not is_training):
            return capture_forward(self.model, batch, is_divided=True)[:2]
        return capture_training(self.model, batch, self.optimizer, self.max_norm)

    def refuse_changes(self) -> None:
        """Raises where what the model's code reads beside its tensors is no more what was planned."""
        found, line = self.watch.change(self.original())
        if found:
            raise ModelError(
                f"{found}, which {self.name} reads, has changed since it was planned",
                line=line or None,
                cure="give it back what it was, or make the plan anew",
            )

    def refuse_other_results(self) -> None:
        """Raises where the plan's own step gives anything but a loss."""
        if self.is_forward or not isinstance(self.returns, Returned):
            raise ModelError(
                f"{self.name} returns {'no loss' if self.is_forward else 'its loss among other results'}",
                cure="make DTensors of a plan whose model returns its scalar loss alone, or use plan.worker()",
            )


def _without_numbers(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")


@dataclass(frozen=True, eq=False)
class Form:
    """One step, recorded with batches of one form in one mode under the same casts, and how workers share it."""

    step: TrainingStep
    sharding: ShardingPlan
    parts: PartitionedProgram
    arguments: Arguments
    returns: object  # the nest of what the model returns, with a Returned for each tensor
    is_training: bool  # the mode
    casts: tuple[object, ...]  # see casts_now

    @cached_property
    def held(self) -> dict[str, Value]:
        """Parameters, buffers, history and the rate, by the names that all forms have for them."""
        return held_inputs(self.step)

    @cached_property
    def layouts(self) -> dict[int, Layout]:
        """By the id of an input's value, where it lies."""
        return {i.value.id: at for i, at in zip(self.step.program.inputs, self.parts.input_layouts, strict=True)}

    @cached_property
    def output_layouts(self) -> dict[int, Layout]:
        """By the id of an output's value, where it lies."""
        pairs = zip(self.step.program.outputs, self.parts.output_layouts, strict=True)
        return {v.id: at for v, at in pairs if v is not None and at is not None}

    def result(self, outputs: Sequence[Tensor]) -> object:
        """What the model returns; ``outputs``: whole tensors, as many as it returns or more."""
        return restored(self.returns, outputs)

    def over_replicas(self, options: RewriteOptions) -> Form:
        """The form whose update, if it has one, reads the mean of the gradients of all replicas."""
        if not self.step.updated:
            return self
        step, sharding = average_gradients(self.step, self.sharding)
        parts = rewrite(step.program, sharding, options, step.overwrites)
        return replace(self, step=step, sharding=sharding, parts=parts)


def held_inputs(step: TrainingStep) -> dict[str, Value]:
    """``Form.held`` of a step."""
    return {entry.name: entry.value for entry in step.program.inputs if entry.name.startswith(_HELD)}


class Forms:
    """Finds, or makes, the form of a batch; ``first`` is the one that the plan was searched for.

    ``has_replicas``: updates read the mean of the gradients of all replicas.
    """

    def __init__(self, recipe: Recipe, first: Form, options: RewriteOptions, *, has_replicas: bool = False) -> None:
        self.recipe, self.options, self.has_replicas = recipe, options, has_replicas
        self.budget = recipe.memory_limit or program_footprint(first.parts, first.step).total
        self.first = self._adapted(first)
        self._others: list[Form] = []  # what was asked for last at the end

    def known(self, batch: Sequence[object], *, is_training: bool) -> Form | None:
        """The form of a batch, if there is one already.

        Raises:
            ModelError: no batch of the plan is like this one, or the model has changed since it was planned.
        """
        self.recipe.refuse_changes()
        if is_training == self.recipe.is_training:
            self.first.arguments.refuse_others(batch)
        self.first.arguments.refuse_other_floats(batch)
        for form in (self.first, *self._others):
            if (form.is_training, form.casts) == (is_training, casts_now()) and form.arguments.fits(batch):
                if form is not self.first:
                    self._others.remove(form)
                    self._others.append(form)
                return form
        return None

    def find(self, batch: Sequence[object], *, is_training: bool) -> Form:
        """The form of a batch, made if need be, and kept.

        Raises:
            ModelError: the model cannot be recorded with it, or it does not fit the plan's limit of memory.
        """
        found = self.known(batch, is_training=is_training)
        if found is None:
            found = self._made(batch, is_training=is_training)
            self._others.append(found)
            if len(self._others) > MOST_FORMS:
                del self._others[0]
                logger.warning(
                    "batches of more than %d forms: one that comes again is recorded and planned anew; pad them to few",
                    MOST_FORMS,
                )
        return found

    def _made(self, batch: Sequence[object], *, is_training: bool) -> Form:
        arguments, first = Arguments(batch), self.first
        step, returns = self.recipe.capture(batch, is_training=is_training)
        held = {v.id: first.sharding.placements[first.held[name].id] for name, v in held_inputs(step).items()}
        sharding = search_held(step, first.sharding.axes, held, self.budget)
        parts = rewrite(step.program, sharding, self.options, step.overwrites)
        cure = "pass a smaller batch, or make the plan with a higher memory_limit"
        refuse_beyond(self.recipe.memory_limit, program_footprint(parts, step).total, "with this batch", cure)
        logger.info("another step of %s was recorded and planned", self.recipe.name)
        return self._adapted(Form(step, sharding, parts, arguments, returns, is_training, casts_now()))

    def _adapted(self, form: Form) -> Form:
        return form.over_replicas(self.options) if self.has_replicas else form
