"""The command line: train, partition, place, partition-graph, check-graph, plan-graph, explain, info.

Takes: arguments. Gives: an exit status. Runs once. A command loads only what it runs.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

import vgraph
from vgraph.cli.graph_parts import add_graph_parts
from vgraph.cli.partition import add_partition
from vgraph.cli.place import add_place
from vgraph.cli.train_options import add_train
from vgraph.errors import VGraphError

__all__ = ["main"]
STOPPED = 130  # what a shell gives a program that Ctrl-C ended


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
    add_train(commands.add_parser("train", help="train a model, built in or your own"), _train)
    add_partition(commands.add_parser)
    add_place(commands.add_parser)
    add_graph_parts(commands)
    explain = commands.add_parser("explain", help="print how a built-in model is run")
    models = ("tree-lstm", "binary-tree-lstm", "gcn", "gat")
    explain.add_argument("model", choices=models, help="on a tree of seven vertices, or a square with self-loops")
    explain.add_argument("--picture", metavar="FILE", help="draw it, too: an SVG file")
    explain.set_defaults(command=_explain)
    info = commands.add_parser("info", help="versions, devices, compilers, cache")
    info.set_defaults(command=_info)
    return parser


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
