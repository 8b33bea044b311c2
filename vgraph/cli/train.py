"""``vgraph train``: arguments become a Task, a Trainer runs it, what it found is told.

Takes: parsed arguments. Gives: an exit status, a log, a curve, a checkpoint. Runs once.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

import torch
from tqdm import tqdm

from vgraph.cli.bag_of_tokens import Baseline, count_majority, fit_bag_of_tokens
from vgraph.cli.checkpoint import Identity, load_checkpoint
from vgraph.cli.citations import AttentionSettings, CitationSettings, CitationTask, load_citations
from vgraph.cli.report import (
    Entry,
    best_entry,
    check_plot,
    check_writable,
    draw_curve,
    summarize,
    write_log,
)
from vgraph.cli.training import Stopped, Task, Trainer
from vgraph.cli.trees import (
    SENTIMENT,
    SYNTAX,
    TreeSettings,
    TreeTask,
    describe_splits,
    load_functions,
    load_sentences,
)
from vgraph.errors import CheckpointError, DataError

STOPPED = 130
Settings = TypeVar("Settings", TreeSettings, CitationSettings, AttentionSettings)


@dataclass(frozen=True)
class Plan:
    """What is to be trained: ``title`` for people, ``identity`` for checkpoints."""

    title: str
    identity: Identity
    make_task: Callable[[int], Task]
    first_seed: int
    epochs: int
    lines_by_epoch: bool
    baselines: dict[str, Baseline]


def train(arguments: argparse.Namespace) -> int:
    """The whole command."""
    _check_arguments(arguments)
    _set_threads(arguments)
    plan = (_plan_trees if arguments.model == "tree-lstm" else _plan_citations)(arguments)
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
    if arguments.checkpoint and arguments.checkpoint.exists() and not arguments.resume:
        raise CheckpointError(
            "there is a checkpoint already, which would be written over",
            line=str(arguments.checkpoint),
            cure="add --resume, or name another file",
        )
    if arguments.plot:
        check_plot()
    for path in (arguments.checkpoint, arguments.log, arguments.plot):
        check_writable(path)


def _set_threads(arguments: argparse.Namespace) -> None:
    """The sentences' matrices are worth several threads; smaller ones lose by waiting for them."""
    is_small = arguments.model != "tree-lstm" or arguments.data is None
    if arguments.threads or is_small:
        torch.set_num_threads(arguments.threads or 1)


def _plan_trees(arguments: argparse.Namespace) -> Plan:
    words = arguments.data is not None
    settings = _chosen(SENTIMENT if words else SYNTAX, arguments)
    splits = load_sentences(arguments.data) if words else load_functions()
    title = (
        f"binary Tree-LSTM, sentiment of {arguments.data}"
        if words
        else "child-sum Tree-LSTM, naming the functions of Python's standard library"
    )
    baselines: dict[str, Baseline] = {}
    if not words:
        baselines["majority class"] = count_majority(splits)
        baselines["bag of tokens, logistic regression"] = fit_bag_of_tokens(splits, "token")
    return Plan(
        title,
        {"model": "sentiment" if words else "syntax", **describe_splits(splits)} | _identity(settings),
        lambda seed: TreeTask(splits, settings, seed, words=words),
        settings.seed,
        settings.epochs,
        True,
        baselines,
    )


def _plan_citations(arguments: argparse.Namespace) -> Plan:
    if arguments.data is None:
        raise DataError(f"{arguments.model} needs a graph", cure="--data cora.npz or citeseer.npz (planetoid)")
    is_gcn = arguments.model == "gcn"
    settings = _chosen(CitationSettings() if is_gcn else AttentionSettings(), arguments)
    data = load_citations(arguments.data)
    return Plan(
        f"graph {'convolutional' if is_gcn else 'attention'} network, {arguments.data}",
        {"model": arguments.model, **data.identity()} | _identity(settings),
        lambda seed: CitationTask(data, settings, seed),
        settings.seed,
        settings.epochs,
        False,
        {},
    )


def _chosen(settings: Settings, arguments: argparse.Namespace) -> Settings:
    """The defaults with what the user gave."""
    names = asdict(settings)
    given = {name: value for name, value in vars(arguments).items() if name in names}
    return replace(settings, **{name: value for name, value in given.items() if value is not None})


def _identity(settings: TreeSettings | CitationSettings) -> Identity:
    """More epochs may be added to a training; anything else makes it another one."""
    return {name: value for name, value in asdict(settings).items() if name != "epochs"}


@dataclass
class _Teller:
    """Prints a line an epoch, or, where epochs take no time, a line a seed."""

    plan: Plan
    best: Entry | None = None

    def tell_epoch(self, entry: Entry) -> None:
        if self.plan.lines_by_epoch:
            _write(
                f"epoch {entry['epoch']:3}  loss {entry['loss']:.4f}  val {entry['val']:.2f} %  "
                f"{entry['seconds']:.1f} s"
            )
        is_new = self.best is None or self.best["seed"] != entry["seed"]
        self.best = entry if is_new or self.best is None else best_entry([self.best, entry])
        if entry["epoch"] == self.plan.epochs and not self.plan.lines_by_epoch:
            _write(
                f"seed {entry['seed']}  best epoch {self.best['epoch']:3}  "
                f"val {self.best['val']:.2f} %  test {self.best['test']:.2f} %"
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
    return lambda history: write_log(path, config, history, baselines=baselines)


def _finish(arguments: argparse.Namespace, plan: Plan, history: list[Entry]) -> None:
    if arguments.plot:
        draw_curve(arguments.plot, plan.title, history)
    for name, found in plan.baselines.items():
        print(f"{name} ({found.setting}): test accuracy {found.test:.2f} % (val {found.val:.2f} %)")
    print(f"{arguments.model}: {summarize(history)}")


def _tell_stopped(stopped: Stopped, checkpoint: Path | None) -> None:
    if checkpoint is None:
        print(f"{stopped}; without --checkpoint nothing is kept")
    else:
        print(f"{stopped}; {checkpoint} holds everything up to here: go on with --resume")
