"""A whole training step of a small model, what goes into it, and what one process computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vgraph.capture.step.capture_step import capture_step
from vgraph.ir.program import Program
from vgraph.ir.step import TrainingStep
from vgraph.runtime.distributed.dense_ops import evaluate


def step_of(
    model: nn.Module, *batch: Tensor, optimizer: Callable[..., Any] | None = None
) -> tuple[TrainingStep, list[Tensor]]:
    """The step, and a tensor for each of its inputs."""
    step = capture_step(model, batch, optimizer)
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    held = {**step.parameters, **step.buffers}
    given = {value.id: named[name].detach().clone() for name, value in held.items()}
    given |= {value.id: x for value, x in zip(step.inputs, batch, strict=True)}
    given |= {h.before.id: torch.full(h.before.shape, h.initial + 0.5, dtype=h.before.dtype) for h in step.history}
    if step.learning_rate is not None:
        given[step.learning_rate.id] = torch.tensor(0.1, dtype=torch.float64)
    given |= step.constants
    seeds = [i.value.id for i in step.program.inputs if i.name == "$seed"]
    given |= dict.fromkeys(seeds, torch.tensor(7))
    return step, [given[i.value.id] for i in step.program.inputs]


def run_whole(program: Program, inputs: list[Tensor]) -> list[Tensor]:
    """What one process computes."""
    env = {given.value.id: tensor for given, tensor in zip(program.inputs, inputs, strict=True)}
    for op in program.ops:
        evaluate(op, env)
    return [env[v.id] for v in program.outputs if v is not None]
