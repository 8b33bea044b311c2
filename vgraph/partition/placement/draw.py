"""Draw: a placement as a coloured graph and a Gantt chart.

Takes: OpGraph, Cluster, Timeline. Gives: a picture (.svg, .png, .pdf). Runs when asked.
Source: depth-first placement, the figures of placed graphs.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from vgraph.atomic_file import atomic_file
from vgraph.errors import PlacementError
from vgraph.partition.placement.devices import Cluster
from vgraph.partition.placement.dot import color_of
from vgraph.partition.placement.list_schedule import Timeline
from vgraph.partition.placement.op_graph import Floats, Ints, OpGraph

TRANSFER = "#555555"


def save_figure(graph: OpGraph, cluster: Cluster, timeline: Timeline, path: Path) -> None:
    """Above the graph by depth, in the colours of devices; below what each device and link does when.

    Raises:
        PlacementError: matplotlib is not installed, or cannot write such a file.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise PlacementError("matplotlib, which draws, is not installed", cure="pip install 'vgraph[plot]'")
    from matplotlib.figure import Figure  # noqa: PLC0415 - only who draws needs it

    figure: Any = Figure(figsize=(12, 8), layout="constrained")
    if path.suffix.lstrip(".") not in figure.canvas.get_supported_filetypes():
        raise PlacementError(
            f"{path.suffix!r} is no picture that matplotlib writes", cure="end the name in .svg or .png"
        )
    above, below = figure.subplots(2, 1, height_ratios=(3, 2))
    _draw_graph(above, graph, timeline)
    _draw_gantt(below, cluster, timeline)
    names = [f"{device.name} ({device.kind})" for device in cluster.devices]
    handles = [below.plot([], [], "s", color=color_of(i), label=name)[0] for i, name in enumerate(names)]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(names), 6), frameon=False)
    import matplotlib  # noqa: PLC0415

    letters = matplotlib.rc_context({"svg.fonttype": "none"})  # as letters: smaller, and found by a search
    with letters, atomic_file(path) as file:
        figure.savefig(file, format=path.suffix[1:])


def layer_ops(graph: OpGraph) -> tuple[Floats, Floats]:
    """Depth of every op, and its place within its depth, centred."""
    depth = [0] * graph.num_ops
    for op, before in enumerate(graph.predecessors):
        if before:
            depth[op] = 1 + max(depth[other] for other, _ in before)
    for op in range(graph.num_ops - 1, -1, -1):  # an input stands just before its first reader
        if not graph.predecessors[op] and graph.successors[op]:
            depth[op] = min(depth[other] for other, _ in graph.successors[op]) - 1
    x = np.array(depth, dtype=np.float64)
    y = np.zeros(graph.num_ops)
    for layer in np.unique(x):
        within = np.flatnonzero(x == layer)
        y[within] = np.arange(len(within)) - (len(within) - 1) / 2
    return x, y


def _draw_graph(axes: Any, graph: OpGraph, timeline: Timeline) -> None:
    from matplotlib.collections import LineCollection  # noqa: PLC0415

    x, y = layer_ops(graph)
    source, target, _ = graph.op_edges
    ends: Any = np.stack([np.stack([x[source], y[source]], 1), np.stack([x[target], y[target]], 1)], 1)
    crossing = timeline.device_of[source] != timeline.device_of[target]
    axes.add_collection(LineCollection(ends[~crossing], colors="#cccccc", linewidths=0.5, zorder=1))
    axes.add_collection(LineCollection(ends[crossing], colors="#d62728", linewidths=0.8, zorder=2))
    colors = [color_of(device) for device in timeline.device_of.tolist()]
    size = float(np.clip(6000 / max(graph.num_ops, 1), 3, 60))
    axes.scatter(x, y, c=colors, s=size, zorder=3, edgecolors="#333333", linewidths=0.3)
    axes.set(title=f"{graph.num_ops} operators, {int(crossing.sum())} edges between devices", xlabel="depth", yticks=[])


def _draw_gantt(axes: Any, cluster: Cluster, timeline: Timeline) -> None:
    length = timeline.finish - timeline.start
    labels = [device.name for device in cluster.devices]
    for device in range(cluster.num_devices):
        on = np.flatnonzero((timeline.device_of == device) & (length[: timeline.num_ops] > 0))
        _bars(axes, device, timeline, on, color_of(device))
    pairs = sorted(set(zip(timeline.source.tolist(), timeline.target.tolist(), strict=True)))
    for row, (source, target) in enumerate(pairs, start=cluster.num_devices):
        on = np.flatnonzero((timeline.source == source) & (timeline.target == target))
        _bars(axes, row, timeline, timeline.num_ops + on, TRANSFER)
        labels.append(f"{labels[source]} to {labels[target]}")
    axes.set(
        yticks=range(len(labels)), yticklabels=labels, xlabel="milliseconds", xlim=(0, timeline.makespan * 1e3 or 1)
    )
    axes.set_title(f"makespan {timeline.makespan * 1e3:.3f} ms")
    axes.invert_yaxis()


def _bars(axes: Any, row: int, timeline: Timeline, tasks: Ints, color: str) -> None:
    start, finish = timeline.start[tasks] * 1e3, timeline.finish[tasks] * 1e3
    spans = list(zip(start.tolist(), (finish - start).tolist(), strict=True))
    axes.broken_barh(spans, (row - 0.4, 0.8), facecolors=color, edgecolors="#333333", linewidth=0.1)
