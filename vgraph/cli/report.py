"""What a training leaves behind: a JSON log, a curve, the figures of its last line.

Takes: the history of all seeds. Gives: files and words. Runs every few seconds.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from vgraph.atomic_file import atomic_file, write_text
from vgraph.cli.metrics import ACCURACY, METRICS, Metric, Metrics
from vgraph.errors import FunctionError, VGraphError

Entry: TypeAlias = dict[str, float]


@dataclass(frozen=True)
class Summary:
    """Figures at the epoch with the best val, means over seeds; ``beside``: other metrics of test, by their names."""

    val: float
    test: float
    spread: float
    best_epochs: list[int]
    metric: str = ACCURACY.name
    beside: dict[str, float] = field(default_factory=dict[str, float])

    def __str__(self) -> str:
        shown = METRICS[self.metric].shown
        test, val = f"test {self.metric} {shown(self.test)}", f"(val {shown(self.val)})"
        beside = "".join(f", test {name} {METRICS[name].shown(value)}" for name, value in self.beside.items())
        if len(self.best_epochs) == 1:
            return f"{test} at the best val epoch, {self.best_epochs[0]} {val}{beside}"
        spread = shown(self.spread).removesuffix(" %")
        seeds = f"mean and standard deviation of {len(self.best_epochs)} seeds"
        return f"{test} +- {spread} at the best val epochs, {seeds} {val}{beside}"


def best_entry(entries: Sequence[Entry]) -> Entry:
    """The epoch with the best val; among equals the one with the lowest val loss."""
    return max(entries, key=lambda entry: (entry["val"], -entry.get("val_loss", 0.0)))


def summarize(history: Sequence[Entry], metrics: Metrics = (ACCURACY,)) -> Summary:
    """What the last line says.

    >>> entries = [{"seed": 0, "epoch": 1, "val": 50.0, "test": 40.0}]
    >>> entries += [{"seed": 0, "epoch": 2, "val": 60.0, "test": 45.0}]
    >>> print(summarize(entries))
    test accuracy 45.00 % at the best val epoch, 2 (val 60.00 %)
    """
    best = [best_entry(entries) for entries in split_seeds(history).values()]
    tests = [entry["test"] for entry in best]
    spread = statistics.stdev(tests) if len(tests) > 1 else 0.0
    epochs = [int(entry["epoch"]) for entry in best]
    val, (first, *others) = statistics.fmean(entry["val"] for entry in best), metrics
    beside = {metric.name: statistics.fmean(entry[f"test_{metric.key}"] for entry in best) for metric in others}
    return Summary(val, statistics.fmean(tests), spread, epochs, first.name, beside)


def split_seeds(history: Sequence[Entry]) -> dict[int, list[Entry]]:
    """The epochs of every seed."""
    seeds: dict[int, list[Entry]] = {}
    for entry in history:
        seeds.setdefault(int(entry["seed"]), []).append(entry)
    return seeds


def write_log(
    path: Path,
    config: Mapping[str, object],
    history: Sequence[Entry],
    metrics: Metrics = (ACCURACY,),
    **more: object,
) -> None:
    """One object an epoch, and a summary, as one JSON document; what is no finite number is null."""
    summary = vars(summarize(history, metrics)) if history else None
    content = {"config": config, "epochs": history, "summary": summary, **more}
    write_text(path, json.dumps(_as_json(content), indent=1, allow_nan=False) + "\n")


def _as_json(value: object) -> object:
    """The same with null for numbers that JSON does not have: the loss of a training that diverged is one."""
    if isinstance(value, Mapping):
        return {key: _as_json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_plot(path: Path) -> None:
    """Before hours of training: is there what draws the curve, and in this format?"""
    if importlib.util.find_spec("matplotlib") is None:
        raise FunctionError("--plot needs matplotlib", cure="pip install 'vgraph[plot]'")
    from matplotlib.backend_bases import FigureCanvasBase

    formats = FigureCanvasBase.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in formats:
        raise FunctionError(
            f"{path.name} is no picture", cure=f"name a file that ends in one of .{', .'.join(formats)}"
        )


def check_writable(path: Path | None) -> None:
    """Before hours of training: may a file be written there?"""
    if path is not None and path.is_dir():
        raise VGraphError(f"{path} is a folder, and a file is to be written", cure="name a file")
    if path is not None and not os.access(path.parent, os.W_OK):
        raise VGraphError(
            f"there is no folder {path.parent} to write {path.name} to",
            cure="make it, or name another file",
        )


def draw_curve(path: Path, title: str, history: Sequence[Entry], metric: Metric) -> None:
    """Training loss, val and test figures by epoch, one line a seed, as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for index, entries in enumerate(split_seeds(history).values()):
        epochs = [entry["epoch"] for entry in entries]
        left.plot(epochs, [entry["loss"] for entry in entries], color="C0")
        for name, color in (("val", "C1"), ("test", "C2")):
            label = name if not index else None
            right.plot(epochs, [entry[name] for entry in entries], color=color, label=label)
        best = best_entry(entries)
        right.plot(best["epoch"], best["test"], "o", color="C2")
    left.set(xlabel="epoch", ylabel="training loss")
    right.set(xlabel="epoch", ylabel=f"{metric.name}{', %' if '%' in metric.form else ''}")
    right.legend()
    figure.suptitle(title)
    with atomic_file(path) as file:
        figure.savefig(file, dpi=120, format=path.suffix[1:] or None)
