"""Pictures: how wide frontiers are, what a step does when, and where values lie in the arena."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import tree_lstm

import vgraph
from recursion.division import PARTS, spans
from vgraph import compiler
from vgraph.runtime.compiled import CallContext, CompiledProgram
from vgraph.scheduler.frontiers import levels


def draw(folder: Path, batch: int, hidden: int) -> None:
    """``recursive-widths.svg``, ``-timeline.svg`` and ``-memory.svg`` of a training step of the Tree-LSTM."""
    folder.mkdir(parents=True, exist_ok=True)
    task = tree_lstm.Task(tree_lstm.make_trees(batch), hidden)
    _widths(folder / "recursive-widths.svg", vgraph.batch(task.graphs), f"{batch} trees")
    _timeline(folder / "recursive-timeline.svg", task, batch)
    _memory(folder / "recursive-memory.svg", task, batch)


def _plot(rows: int = 1, columns: int = 1, size: tuple[float, float] = (7, 3)) -> tuple[Any, Any]:
    from matplotlib import pyplot as plt  # noqa: PLC0415  (an optional dependency)

    return plt.subplots(rows, columns, figsize=size, squeeze=False)


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path)
    figure.clear()


def _widths(path: Path, graph: vgraph.Graph, title: str) -> None:
    widths = torch.bincount(torch.as_tensor(levels(graph.topology))).tolist()
    figure, axes = _plot()
    axes[0][0].bar(range(len(widths)), widths)
    axes[0][0].set(xlabel="frontier", ylabel="vertices", yscale="log", title=title)
    _save(figure, path)


def _timeline(path: Path, task: tree_lstm.Task, batch: int) -> None:
    def step() -> None:
        task.optimizer.zero_grad()
        tree_lstm.vgraph_step(task, range(batch)).backward()
        task.optimizer.step()

    step()
    found, total = min((spans(step) for _ in range(3)), key=lambda one: one[1])
    figure, axes = _plot(size=(9, 2.6))
    for height, part in enumerate(reversed(PARTS)):
        bars = [(1e3 * s.start, 1e3 * (s.stop - s.start)) for s in found if s.part == part]
        axes[0][0].broken_barh(bars, (height + 0.1, 0.8))
    axes[0][0].set_yticks([h + 0.5 for h in range(len(PARTS))], list(reversed(PARTS)))
    axes[0][0].set(
        xlabel="milliseconds", xlim=(0, 1e3 * total), title="a training step; between the bars: torch and Python"
    )
    _save(figure, path)


def _memory(path: Path, task: tree_lstm.Task, batch: int) -> None:
    plans = [plan for plan in _plans(task, batch) if plan.memory.num_bytes]
    figure, all_axes = _plot(1, len(plans), (4.5 * len(plans), 3))
    for axes, plan in zip(all_axes[0], plans, strict=True):
        for value_id, tensor in plan.memory.tensors.items():
            life = plan.memory.lifetimes[value_id]
            axes.broken_barh([(life.first, life.last - life.first + 0.9)], (tensor.offset, tensor.num_bytes), ec="w")
        axes.set(xlabel="phase", ylabel="byte of the arena", title=f"{plan.memory.num_bytes / 2**20:.1f} MiB")
    _save(figure, path)


def _plans(task: tree_lstm.Task, batch: int) -> list[Any]:
    """The plans of memory that one step makes."""
    seen, real = list[Any](), compiler._make_plan  # pyright: ignore[reportPrivateUsage]

    def watched(program: CompiledProgram, call_context: CallContext) -> Any:
        seen.append(real(program, call_context))
        return seen[-1]

    with patch.object(compiler, "_make_plan", watched):
        tree_lstm.vgraph_step(task, range(batch)).backward()
    return seen
