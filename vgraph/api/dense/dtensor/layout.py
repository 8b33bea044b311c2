"""What a plan is as DTensors: where each parameter lies, and what a step then moves.

Takes: a TrainingStep, a ShardingPlan. Gives: a DTensorLayout. Runs once per plan; needs no processes.
Source: PyTorch's DTensor, whose placements are blocks and whole copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vgraph.api.dense.dtensor.placements import Placements, bare_plan, hold_in_blocks, in_blocks
from vgraph.ir.sharding import ShardingPlan
from vgraph.ir.step import TrainingStep
from vgraph.partition.rewrite.rewrite import RewriteOptions, rewrite


@dataclass(frozen=True)
class DTensorLayout:
    """A plan as DTensors, as ``Plan.dtensor_layout`` gives it.

    Attributes:
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

    placements: Mapping[str, Placements]
    planned: Mapping[str, Placements]
    communicated_bytes: int
    planned_bytes: int

    def __str__(self) -> str:
        lines = [f"{name}: {_shown(placements)}" for name, placements in self.placements.items()]
        lines += [
            f"{name}: the plan has {_shown(placements)}, moved at every step"
            for name, placements in self.planned.items()
        ]
        more = self.communicated_bytes - self.planned_bytes
        lines.append(f"{self.communicated_bytes} bytes a step, {more} more than the plan's own state would need")
        return "\n".join(lines)


def parameters_in_blocks(step: TrainingStep, plan: ShardingPlan) -> dict[str, Placements]:
    """Where DTensors hold every parameter."""
    return {
        name: in_blocks(value.row_shape, plan.placements[value.id], plan.axes)
        for name, value in step.parameters.items()
    }


def dtensor_layout(step: TrainingStep, plan: ShardingPlan, options: RewriteOptions) -> DTensorLayout:
    """The books of a plan whose parameters are DTensors."""
    placements = parameters_in_blocks(step, plan)
    homes = {name: plan.placements[value.id] for name, value in step.parameters.items()}
    step, plan = bare_plan(step, plan)
    held = hold_in_blocks(step, plan, placements)
    return DTensorLayout(
        placements,
        {name: home for name, home in homes.items() if home != placements[name]},
        rewrite(step.program, held, options).communicated_bytes,
        rewrite(step.program, plan, options).communicated_bytes,
    )


def _shown(placements: Placements) -> str:
    return ".".join(map(str, placements)) or "whole"
