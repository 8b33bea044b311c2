"""Pictures of the tables: growth of the search, bars of all methods, samples a second of all models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt

Rows = Sequence[dict[str, Any]]
SHOWN = ("ideal", "small batch", "swapping", "operator placement", "data parallel", "all rows, greedy", "spartan",
         "icml18", "equal chop", "tofu")  # fmt: skip


def plot_growth(rows: Rows, path: Path) -> None:
    """Seconds by layers and by workers."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=False)
    for place, what in zip(axes, ("layers", "workers"), strict=True):
        points = [(row["count"], row["search s"]) for row in rows if row["what"] == what]
        place.plot(*zip(*points, strict=True), marker="o")
        place.set(xlabel=what, ylabel="search, seconds", ylim=(0, None))
        if what == "workers":
            place.set_xscale("log", base=2)
    _save(figure, path)


def plot_bars(rows: Rows, path: Path) -> None:
    """Thesis figure 3.10: simulated seconds of a step, computing and waiting for copies."""
    models = [m for m in dict.fromkeys(row["model"] for row in rows) if m in ("rnn-4-8k", "wresnet-152-10", "rnn")]
    figure, axes = plt.subplots(1, len(models), figsize=(4.5 * len(models), 3.4), squeeze=False)
    methods = ("all rows, greedy", "spartan", "equal chop", "icml18", "tofu")
    for place, model in zip(axes[0], models, strict=True):
        found = {row["method"]: row for row in rows if row["model"] == model and "computing" in row}
        shown = [m for m in methods if m in found]
        computing = np.array([found[m]["computing"] for m in shown])
        place.bar(shown, computing, label="computing", color="#1f77b4")
        waiting = [found[m]["seconds"] for m in shown] - computing
        place.bar(shown, waiting, bottom=computing, label="waiting for copies", color="#ff7f0e")
        place.set(title=f"{model}, 8 workers", ylabel="simulated seconds a step")
        place.tick_params(axis="x", rotation=30)
        place.set_ylim(top=1.25 * max(found[m]["seconds"] for m in shown))
        place.legend(fontsize=8)
    _save(figure, path)


def plot_figures(rows: Rows, path: Path) -> None:
    """Thesis figures 3.8 and 3.9: simulated samples a second beside ideal; a cross: out of memory."""
    kinds = [kind for kind in ("wresnet", "rnn") if any(row["model"].startswith(kind) for row in rows)]
    figure, axes = plt.subplots(len(kinds), 1, figsize=(13, 3.6 * len(kinds)), squeeze=False)
    for place, kind in zip(axes[:, 0], kinds, strict=True):
        mine = [row for row in rows if row["model"].startswith(kind)]
        at, width = np.arange(len(mine)), 0.8 / (len(SHOWN) - 1)
        for number, method in enumerate(SHOWN[1:]):
            values = [row[method] if isinstance(row[method], float) else 0.0 for row in mine]
            parts = [value / row["ideal"] for value, row in zip(values, mine, strict=True)]
            where = at + (number - 4) * width
            place.bar(where, parts, width, label=method, color=plt.get_cmap("tab10")(number))
            missing = [x for x, value in zip(where, values, strict=True) if not value]
            place.plot(missing, [0.02] * len(missing), "x", color=plt.get_cmap("tab10")(number), markersize=4)
        place.set_xticks(at, [f"{row['model']}\nbatch {row['batch']}" for row in mine], fontsize=7)
        place.set(ylabel="of ideal (simulated)", ylim=(0, 1.3))
        place.legend(fontsize=7, ncols=5, loc="upper right")
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
