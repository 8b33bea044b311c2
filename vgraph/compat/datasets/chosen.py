"""A data set by name: what examples of DGL call with their command line.

Takes: names. Gives: data sets. Runs once per process.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from vgraph.compat.data import CiteseerGraphDataset, CoraGraphDataset, PubmedGraphDataset
from vgraph.compat.datasets.kinds import Transform
from vgraph.compat.datasets.node_sets import RedditDataset
from vgraph.errors import DataError

HELP = "the data set: cora, citeseer, pubmed, reddit or reddit-self-loop"


def register_data_args(parser: ArgumentParser) -> None:
    """Adds ``--dataset`` to a command line."""
    parser.add_argument("--dataset", type=str, required=False, help=HELP)


def load_data(args: Namespace) -> CoraGraphDataset | CiteseerGraphDataset | PubmedGraphDataset | RedditDataset:
    """The data set that ``args.dataset`` names."""
    name = args.dataset
    if name is not None and name.startswith("reddit"):
        return RedditDataset(self_loop="self-loop" in name)
    known = {"cora": load_cora, "citeseer": load_citeseer, "pubmed": load_pubmed}
    if name not in known:
        raise DataError(f"there is no data set {name!r}", cure=f"name one of {', '.join(known)}, reddit")
    return known[name]()


def load_cora(
    raw_dir: str | None = None,
    force_reload: bool = False,
    verbose: bool = True,
    reverse_edge: bool = True,
    transform: Transform | None = None,
) -> CoraGraphDataset:
    """``CoraGraphDataset``, by the name of a function."""
    return CoraGraphDataset(raw_dir, force_reload, verbose, reverse_edge, transform)


def load_citeseer(
    raw_dir: str | None = None,
    force_reload: bool = False,
    verbose: bool = True,
    reverse_edge: bool = True,
    transform: Transform | None = None,
) -> CiteseerGraphDataset:
    """``CiteseerGraphDataset``, by the name of a function."""
    return CiteseerGraphDataset(raw_dir, force_reload, verbose, reverse_edge, transform)


def load_pubmed(
    raw_dir: str | None = None,
    force_reload: bool = False,
    verbose: bool = True,
    reverse_edge: bool = True,
    transform: Transform | None = None,
) -> PubmedGraphDataset:
    """``PubmedGraphDataset``, by the name of a function."""
    return PubmedGraphDataset(raw_dir, force_reload, verbose, reverse_edge, transform)
