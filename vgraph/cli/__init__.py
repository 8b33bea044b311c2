"""The command line: train, partition, place, partition-graph, check-graph, plan-graph, explain, info.

Takes: arguments. Gives: an exit status. Runs once. A command loads only what it runs.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import vgraph
from vgraph.cli.graph_parts import add_graph_parts
from vgraph.cli.partition import add_partition
from vgraph.cli.place import add_place
from vgraph.errors import VGraphError

__all__ = ["main"]
STOPPED = 130  # what a shell gives a program that Ctrl-C ended

TRAIN = """\
tree-lstm  without --data: names the functions of Python's standard library by their syntax trees
           (child-sum Tree-LSTM); with --data FOLDER: sentiment of the sentences of the Stanford
           Sentiment Treebank, train.txt, dev.txt and test.txt in FOLDER or FOLDER/trees (binary
           Tree-LSTM, no pretrained vectors)
gcn, gat   topics of papers in a citation graph, --data cora.npz or citeseer.npz: graph convolutions,
           or graph attention (--hidden is the width of each of eight heads)

What is not given has a default that fits the model and the data, and is printed at the start.
Ctrl-C stops between two steps; with --checkpoint, --resume then goes on as if it had not been
stopped (to the bit, with as many --threads).
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command, as ``vgraph`` does in a shell.

    Args:
        argv: the command and its arguments; None: those of the process.

    Returns:
        The exit status: 0 where it is done, 1 for an error, which is printed, 130 where Ctrl-C stopped it.

    Raises:
        SystemExit: there is no such command or argument, or help was asked for.

    Source: Python's ``argparse``.

    Example:
        >>> main(["info"])
        vgraph ...
        0
    """
    arguments = build_parser().parse_args(argv)
    logging.basicConfig(format="vgraph: %(message)s")
    try:
        return arguments.command(arguments)
    except (VGraphError, OSError) as error:
        print(f"vgraph: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("vgraph: stopped at once; a checkpoint, if any, is as it was last saved", file=sys.stderr)
        return STOPPED


def build_parser() -> argparse.ArgumentParser:
    """The options of all commands."""
    parser = argparse.ArgumentParser(prog="vgraph", description="Neural networks on trees, DAGs and graphs.")
    parser.add_argument("--version", action="version", version=f"vgraph {vgraph.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_train(commands.add_parser)
    add_partition(commands.add_parser)
    add_place(commands.add_parser)
    add_graph_parts(commands)
    explain = commands.add_parser("explain", help="print how a built-in model is run")
    explain.add_argument("model", choices=("tree-lstm", "binary-tree-lstm", "gcn", "gat"))
    explain.add_argument("--picture", metavar="FILE", help="draw it, too: an SVG file")
    explain.set_defaults(command=_explain)
    info = commands.add_parser("info", help="versions, devices, compilers, cache")
    info.set_defaults(command=_info)
    return parser


def _add_train(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    train = add_parser(
        "train",
        help="train a built-in model",
        description=TRAIN,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = train.add_argument
    add("model", choices=("tree-lstm", "gcn", "gat"))
    add("--data", type=Path, metavar="PATH", help="folder of trees, or .npz of a citation graph")
    add("--epochs", type=_at_least(1), metavar="N")
    add("--hidden", type=_at_least(1), metavar="N", help="width of the hidden states")
    add("--embedding", type=_at_least(1), metavar="N", help="width of the tokens' vectors (trees)")
    add("--batch-size", type=_at_least(1), metavar="N", help="trees in a step")
    add("--lr", type=_number(above=0.0), metavar="X", help="learning rate")
    add("--dropout", type=_number(below=1.0), metavar="P")
    add("--weight-decay", type=_number(), metavar="X")
    add("--seed", type=_at_least(0), metavar="N", help="of the first training")
    add("--seeds", type=_at_least(1), default=1, metavar="N", help="train N times, report the mean")
    add("--checkpoint", type=Path, metavar="FILE", help="keep the state of the training here")
    add("--resume", action="store_true", help="go on from --checkpoint")
    add("--log", type=Path, metavar="FILE.json", help="write every epoch and a summary")
    add("--plot", type=Path, metavar="FILE.png", help="draw loss and accuracy by epoch")
    add("--threads", type=_at_least(1), metavar="N", help="of torch's operators (small models: 1)")
    train.set_defaults(command=_train)


def _at_least(least: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if (value := int(text)) < least:
            raise argparse.ArgumentTypeError(f"{text} is below {least}")
        return value

    convert.__name__ = "whole number"
    return convert


def _number(above: float | None = None, below: float = float("inf")) -> Callable[[str], float]:
    """From 0, or more than ``above``, to less than ``below``."""

    def convert(text: str) -> float:
        value = float(text)
        if not (0 <= value < below and (above is None or value > above)):
            least = "from 0" if above is None else f"above {above:g}"
            raise argparse.ArgumentTypeError(f"{text} is not {least} and below {below:g}")
        return value

    convert.__name__ = "number"
    return convert


def _train(arguments: argparse.Namespace) -> int:
    from vgraph.cli.train import train

    return train(arguments)


def _explain(arguments: argparse.Namespace) -> int:
    from vgraph.cli.explain import explain

    print(explain(arguments.model, arguments.picture))
    return 0


def _info(arguments: argparse.Namespace) -> int:
    from vgraph.cli.info import describe

    for line in describe():
        print(line)
    return 0
