"""What a plan is as DTensors: where each parameter lies, and what a step then moves.

Takes: a TrainingStep, a ShardingPlan. Gives: a DTensorLayout. Runs once per plan; needs no processes.
Source: PyTorch's DTensor, whose placements are blocks and whole copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from vgraph.api.dense.dtensor.placements import Placements, bare_plan, hold_in_blocks, in_blocks
from vgraph.ir.partitioned import PartitionedProgram
from vgraph.ir.sharding import ShardingPlan
from vgraph.ir.step import TrainingStep
from vgraph.partition.accounting.footprint import program_footprint
from vgraph.partition.rewrite.rewrite import RewriteOptions, rewrite
from vgraph.partition.search.fit import FAIR_SHARE
from vgraph.partition.search.named import named_plans
from vgraph.partition.search.options import Options
from vgraph.partition.search.search import search

IN_BLOCKS = "parameters in blocks"


@dataclass(frozen=True)
class DTensorLayout:
    """A plan as DTensors, as ``Plan.dtensor_layout`` gives it.

    Attributes:
        name: "" for the plan itself; else what takes its place because it moves less where parameters have to be
            moved, and fits: "parameters in blocks", the plan of a search that cuts no parameter along an inner factor,
            or a named plan, such as "Megatron".
        placements: a placement a step of the plan for every parameter, and so for its gradient.
        planned: where the plan has those parameters that a DTensor cannot hold so: a dim cut along an inner factor,
            or unevenly. They are held in blocks, or whole, and moved to where the plan has them at every step.
        communicated_bytes: bytes that cross workers in a step, forward and backward, with that.
        planned_bytes: the same as the plan itself has its parameters and buffers.

    Source: Wang, Huang and Li 2019 (Tofu), section 4; the words are those of DTensor.

    Example:
        >>> import torch, vgraph
        >>> class Model(torch.nn.Linear):
        ...     def forward(self, x):
        ...         return super().forward(x).square().mean()
        >>> plan = vgraph.parallelize(Model(8, 8), (torch.ones(4, 8),), num_workers=2)
        >>> layout = plan.dtensor_layout()
        >>> layout.planned, layout.communicated_bytes == layout.planned_bytes
        ({}, True)
    """

    name: str
    placements: Mapping[str, Placements]
    planned: Mapping[str, Placements]
    communicated_bytes: int
    planned_bytes: int

    def __str__(self) -> str:
        lines = [f"{self.name} in place of the plan, which would move more"] if self.name else []
        lines += [f"{name}: {_shown(placements)}" for name, placements in self.placements.items()]
        lines += [
            f"{name}: the plan has {_shown(placements)}, moved at every step"
            for name, placements in self.planned.items()
        ]
        more = self.communicated_bytes - self.planned_bytes
        lines.append(f"{self.communicated_bytes} bytes a step, {more} more than the plan's own state would need")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class AsDTensors:
    """A plan for the bare step, where DTensors hold its parameters, and one Program a worker for that."""

    name: str
    step: TrainingStep
    plan: ShardingPlan
    parameters: Mapping[str, Placements]
    parts: PartitionedProgram

    @property
    def moved(self) -> dict[str, Placements]:
        """The parameters that a DTensor cannot hold where the plan has them, and where that is."""
        homes = {name: self.plan.placements[value.id] for name, value in self.step.parameters.items()}
        return {name: home for name, home in homes.items() if home != self.parameters[name]}

    @property
    def need(self) -> float:
        """Bytes of the fullest worker, without the optimizer's."""
        return program_footprint(self.parts, self.step).total


def as_dtensors(step: TrainingStep, plan: ShardingPlan, options: RewriteOptions, *, is_limited: bool) -> AsDTensors:
    """The plan, or where DTensors cannot hold it another that moves least and fits, if that moves less.

    The others are the best of those that cut no parameter along an inner factor, and the named ones. One fits if it
    needs at most as much memory as the plan itself, or, unless memory ``is_limited``, a fifth more.
    """
    found = _held("", step, plan, options)
    if not found.moved:
        return found
    budget = found.need if is_limited else FAIR_SHARE * found.need
    plans = {IN_BLOCKS: _with_parameters_in_blocks(step, plan.axes), **named_plans(step, plan.num_workers)}
    others = [_held(name, step, other, options) for name, other in plans.items()]
    fitting = [other for other in others if other.need <= budget]
    return min([found, *fitting], key=lambda each: each.parts.communicated_bytes)


def _with_parameters_in_blocks(step: TrainingStep, axes: tuple[int, ...]) -> ShardingPlan:
    """The plan that moves least of those in which no parameter is cut along an inner factor."""
    parameters = {value.id for value in step.parameters.values()}

    def restrict(options: Options) -> Options:
        return replace(options, factors={i: dims for i, dims in options.factors.items() if i not in parameters})

    return search(step, axes, restrict=restrict).plan


def _held(name: str, step: TrainingStep, plan: ShardingPlan, options: RewriteOptions) -> AsDTensors:
    step, plan = bare_plan(step, plan)
    parameters = {
        key: in_blocks(value.row_shape, plan.placements[value.id], plan.axes) for key, value in step.parameters.items()
    }
    parts = rewrite(step.program, hold_in_blocks(step, plan, parameters), options)
    return AsDTensors(name, step, plan, parameters, parts)


def layout_of(found: AsDTensors, options: RewriteOptions) -> DTensorLayout:
    """The books of a plan whose parameters are DTensors."""
    own = rewrite(found.step.program, found.plan, options)
    return DTensorLayout(
        found.name, found.parameters, found.moved, found.parts.communicated_bytes, own.communicated_bytes
    )


def _shown(placements: Placements) -> str:
    return ".".join(map(str, placements)) or "whole"
