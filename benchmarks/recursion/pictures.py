"""Pictures: how wide frontiers are, and where values lie in the arena."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import tree_lstm

import vgraph
from vgraph import compiler
from vgraph.runtime.compiled import CompiledProgram, Situation
from vgraph.scheduler.frontiers import levels


def draw(folder: Path, batch: int, hidden: int) -> None:
    """``widths.svg`` and ``memory.svg`` of a training step of the Tree-LSTM."""
    from matplotlib import pyplot as plt  # noqa: PLC0415  (an optional dependency)

    folder.mkdir(parents=True, exist_ok=True)
    task = tree_lstm.Task(tree_lstm.make_trees(batch), hidden)
    graph = vgraph.batch(task.graphs)
    widths = torch.bincount(torch.as_tensor(levels(graph.topology))).tolist()
    figure, axes = plt.subplots(figsize=(7, 3))
    axes.bar(range(len(widths)), widths)
    axes.set(xlabel="frontier", ylabel="vertices", yscale="log", title=f"{batch} trees")
    figure.tight_layout()
    figure.savefig(folder / "widths.svg")
    plans = _plans(task, batch)
    figure, both = plt.subplots(1, len(plans), figsize=(4 * len(plans), 3), squeeze=False)
    for axes, plan in zip(both[0], plans, strict=True):
        for value_id, tensor in plan.memory.tensors.items():
            life = plan.memory.lifetimes[value_id]
            axes.broken_barh([(life.first, life.last - life.first + 0.9)], (tensor.offset, tensor.num_bytes), ec="w")
        axes.set(xlabel="phase", ylabel="byte of the arena", title=f"{plan.memory.num_bytes / 2**20:.1f} MiB")
    figure.tight_layout()
    figure.savefig(folder / "memory.svg")
    plt.close("all")


def _plans(task: tree_lstm.Task, batch: int) -> list[Any]:
    """The plans of memory that one step makes."""
    seen, real = list[Any](), compiler._make_plan  # pyright: ignore[reportPrivateUsage]

    def watched(program: CompiledProgram, situation: Situation) -> Any:
        seen.append(real(program, situation))
        return seen[-1]

    compiler._make_plan = watched  # pyright: ignore[reportPrivateUsage]
    try:
        tree_lstm.vgraph_step(task, range(batch)).backward()
    finally:
        compiler._make_plan = real  # pyright: ignore[reportPrivateUsage]
    return seen
