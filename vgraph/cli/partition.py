"""The command partition: how a model's training step is divided among workers.

Takes: arguments. Gives: an exit status. Runs once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from tqdm import tqdm

import vgraph
from vgraph.cli.models import load_model
from vgraph.cli.option_values import number_from
from vgraph.cli.report import check_plot, check_writable

PARTITION = """\
MODEL is file.py:function or package.module:function, where function() returns (model, example_inputs), or the
built-in two-branches. The model returns its scalar loss; it may be on the meta device.
"""
OPTIMIZERS: dict[str, Callable[[Sequence[torch.Tensor]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.001),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
}


def add_partition(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """The command's options."""
    partition = add_parser(
        "partition",
        help="divide a model's training step among workers",
        description=PARTITION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = partition.add_argument
    add("model", metavar="MODEL", help="as above")
    add("--workers", type=int, default=8, metavar="N", help="how many divide the step (default 8)")
    add(
        "--optimizer",
        choices=(*OPTIMIZERS, "none"),
        default="none",
        help="whose update is part of the step (default none)",
    )
    add(
        "--memory",
        type=number_from(above=0),
        metavar="GIB",
        help="what each worker may hold (default: no bound)",
    )
    add(
        "--machine",
        choices=("paper", "nvlink", "hosts"),
        default="paper",
        help="whose links count, and what is simulated (default paper)",
    )
    add("--plot", type=Path, metavar="FILE.png", help="draw the tiles of every tensor")
    add("--save", type=Path, metavar="FILE.json", help="write the plan")
    partition.set_defaults(command=run_partition)


def run_partition(arguments: argparse.Namespace) -> int:
    """Captures, searches, prints, simulates, draws."""
    for path in (arguments.plot, arguments.save):
        check_writable(path)
    if arguments.plot:
        check_plot(arguments.plot)
    with tqdm(total=2, desc="load", leave=False, disable=None) as bar:
        model, inputs = load_model(arguments.model)
        bar.update()
        bar.set_description("capture and search")
        limit = None if arguments.memory is None else arguments.memory * 2**30
        plan = vgraph.parallelize(
            model,
            inputs,
            arguments.workers,
            optimizer=OPTIMIZERS.get(arguments.optimizer),
            memory_limit=limit,
            machine=arguments.machine,
        )
        bar.update()
    plan.print()
    found = plan.simulate(arguments.machine)
    print(
        f"simulated on {found.machine}: {found.seconds:.4g} s a step, {found.communication_share:.0%} of it waiting "
        f"for copies{'' if found.fits else '; does not fit its memory'}"
    )
    if arguments.plot:
        plan.save_plot(arguments.plot)
    if arguments.save:
        plan.save(arguments.save)
    return 0
