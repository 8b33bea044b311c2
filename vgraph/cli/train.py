"""``vgraph train``: arguments become a Task, a Trainer runs it, what it found is told.

Takes: parsed arguments. Gives: an exit status, a log, a curve, a checkpoint. Runs once.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

from vgraph.cli.checkpoint import load_checkpoint
from vgraph.cli.plans import Plan, make_plan
from vgraph.cli.report import (
    Entry,
    best_entry,
    check_plot,
    check_writable,
    draw_curve,
    summarize,
    write_log,
)
from vgraph.cli.training import Stopped, Trainer
from vgraph.errors import CheckpointError

STOPPED = 130


def train(arguments: argparse.Namespace) -> int:
    """The whole command."""
    _check_arguments(arguments)
    _set_threads(arguments)
    plan = make_plan(arguments)
    resumed = load_checkpoint(arguments.checkpoint, plan.identity) if arguments.resume else None
    print(plan.title)
    print(", ".join(f"{name} {value}" for name, value in plan.identity.items()))
    teller = _Teller(plan)
    trainer = Trainer(
        plan.make_task,
        range(plan.first_seed, plan.first_seed + arguments.seeds),
        plan.epochs,
        plan.identity,
        arguments.checkpoint,
        _log_writer(arguments, plan),
        teller.tell_epoch,
    )
    try:
        history = trainer.run(resumed)
    except Stopped as stopped:
        _tell_stopped(stopped, arguments.checkpoint)
        return STOPPED
    _finish(arguments, plan, history)
    return 0


def _check_arguments(arguments: argparse.Namespace) -> None:
    """All that can be known to fail before anything is loaded."""
    if arguments.resume and arguments.checkpoint is None:
        raise CheckpointError("--resume goes on from no file", cure="add --checkpoint FILE")
    for path in (arguments.checkpoint, arguments.log, arguments.plot):
        check_writable(path)
    if arguments.checkpoint and arguments.checkpoint.exists() and not arguments.resume:
        raise CheckpointError(
            "there is a checkpoint already, which would be written over",
            line=str(arguments.checkpoint),
            cure="add --resume, or name another file",
        )
    if arguments.plot:
        check_plot(arguments.plot)


def _set_threads(arguments: argparse.Namespace) -> None:
    """The sentences' matrices are worth several threads; smaller ones lose by waiting for them."""
    is_small = arguments.model in ("gcn", "gat") or arguments.data is None
    if arguments.threads or is_small:
        torch.set_num_threads(arguments.threads or 1)


@dataclass
class _Teller:
    """Prints a line an epoch, or, where epochs take no time, a line a seed."""

    plan: Plan
    best: Entry | None = None

    def tell_epoch(self, entry: Entry) -> None:
        shown = self.plan.metrics[0].shown
        if self.plan.lines_by_epoch:
            _write(
                f"epoch {entry['epoch']:3}  loss {entry['loss']:.4f}  val {shown(entry['val'])}  "
                f"{entry['seconds']:.1f} s"
            )
        is_new = self.best is None or self.best["seed"] != entry["seed"]
        self.best = entry if is_new or self.best is None else best_entry([self.best, entry])
        if entry["epoch"] == self.plan.epochs and not self.plan.lines_by_epoch:
            _write(
                f"seed {entry['seed']}  best epoch {self.best['epoch']:3}  "
                f"val {shown(self.best['val'])}  test {shown(self.best['test'])}"
            )


def _write(line: str) -> None:
    tqdm.write(line, file=sys.stdout)
    sys.stdout.flush()


def _log_writer(arguments: argparse.Namespace, plan: Plan) -> Callable[[list[Entry]], None]:
    path: Path | None = arguments.log
    if path is None:
        return lambda history: None
    began = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    config = {**plan.identity, "epochs": plan.epochs, "seeds": arguments.seeds, "began": began}
    baselines = {name: vars(found) for name, found in plan.baselines.items()}
    return lambda history: write_log(path, config, history, plan.metrics, baselines=baselines)


def _finish(arguments: argparse.Namespace, plan: Plan, history: list[Entry]) -> None:
    if arguments.plot:
        draw_curve(arguments.plot, plan.title, history, plan.metrics[0])
    for name, found in plan.baselines.items():
        print(f"{name} ({found.setting}): test accuracy {found.test:.2f} % (val {found.val:.2f} %)")
    print(f"{arguments.model or arguments.own_model}: {summarize(history, plan.metrics)}")


def _tell_stopped(stopped: Stopped, checkpoint: Path | None) -> None:
    if checkpoint is None:
        print(f"{stopped}; without --checkpoint nothing is kept")
    else:
        print(f"{stopped}; {checkpoint} holds everything up to here: go on with --resume")
