"""The options of ``vgraph train``, and of each model by itself, with the defaults that its help shows.

Takes: a parser. Gives: the same parser with options. Runs once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vgraph.cli.option_values import at_least, number_from
from vgraph.cli.settings import RELATEDNESS, SENTIMENT, SYNTAX, AttentionSettings, CitationSettings, TreeSettings

TRAIN = """\
vgraph train MODEL --data PATH               a built-in model (vgraph train MODEL --help: its options)
vgraph train --model file.py:Class --data PATH    a torch.nn.Module of your own

What PATH is, is found by its name and content, and told. What is not given has a default that fits
the model and the data, and is printed at the start. Ctrl-C stops between two steps; with
--checkpoint, --resume then goes on as if it had not been stopped (to the bit, with as many --threads).
"""
OWN = """\
your own module:
  file.py:Class or package.module:Class. Its constructor is given what it names of num_classes, hidden,
  dropout, and num_features (a graph) or num_tokens, embedding (trees). A graph: it is called with the
  graph, each node with an edge to itself, and features (nodes, num_features), and gives (nodes,
  num_classes). Trees and DAGs: it is called with a batch of them, ndata["token"] (bracketed trees:
  ndata["word"], -1 at inner vertices), and gives (trees, num_classes). Pairs: it is called with two such
  batches, and gives (pairs,) numbers; there are no num_classes.
"""
TREES = """\
a folder of train.txt, dev.txt, test.txt (or of such a folder trees): the Stanford Sentiment Treebank;
.txt: bracketed trees; .tsv: ListOps; .conllu, or a folder of *train*, *dev* and *test*.conllu:
dependency trees, whose label is in a comment, "# label = ..." (or --label);
.json, .jsonl, .csv: DAGs with a label each;
a folder of a.toks, a.parents, b.toks, b.parents and sim.txt, or of such folders train, dev and test:
pairs of sentences with their relatedness, from 1 to 5 (SICK)
"""
NODES = """\
.npz: a citation graph (cora, citeseer) or a heterophilous one (tolokers, minesweeper: ROC AUC);
a folder of *edges.csv, *target.csv and *features.json: MUSAE (--label: the column of labels)
"""


@dataclass(frozen=True)
class Model:
    """A built-in model as its help describes it; ``settings`` has its defaults, ``of_data`` those for some data."""

    title: str
    data: str
    settings: TreeSettings | CitationSettings
    of_data: Mapping[str, TreeSettings] = field(default_factory=dict[str, TreeSettings])


MODELS = {
    "tree-lstm": Model(
        "Tree-LSTM: child-sum, binary on bracketed trees. Without --data it names the functions of Python's own\n"
        "standard library by their syntax trees; of pairs it learns a number, measured by Pearson's r.",
        TREES,
        SYNTAX,
        {"bracketed trees": SENTIMENT, "pairs": RELATEDNESS},
    ),
    "gcn": Model(
        "Graph convolutions (Kipf and Welling 2017): classes of the nodes of one graph.", NODES, CitationSettings()
    ),
    "gat": Model(
        "Graph attention (Velickovic et al. 2018): classes of the nodes of one graph.", NODES, AttentionSettings()
    ),
}


def add_train(parser: argparse.ArgumentParser, command: Callable[[argparse.Namespace], int]) -> None:
    """Fills the parser of ``vgraph train``, and those of its models."""
    parser.description, parser.epilog = TRAIN, OWN
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--model", dest="own_model", metavar="FILE.py:CLASS", help="a module of your own")
    _add_options(parser, None)
    models = parser.add_subparsers(dest="model", metavar="MODEL", help=", ".join(MODELS), required=False)
    for name, model in MODELS.items():
        described = models.add_parser(
            name,
            description=f"{model.title}\n\ndata:\n{model.data}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            argument_default=argparse.SUPPRESS,  # what stands before the model's name counts, too
        )
        _add_options(described, model)

    def checked(arguments: argparse.Namespace) -> int:
        if (arguments.model is None) == (arguments.own_model is None):
            parser.error(f"name one model: {', '.join(MODELS)}, or --model file.py:Class")
        for option in _unused(arguments):
            print(f"{arguments.model} has no --{option.replace('_', '-')}: it is left out")
        return command(arguments)

    parser.set_defaults(command=checked, seeds=1)


def _unused(arguments: argparse.Namespace) -> list[str]:
    """What is given and means nothing to the model."""
    settings = MODELS[arguments.model].settings if arguments.model else SYNTAX
    return [name for name in ("embedding", "batch_size") if getattr(arguments, name) and not hasattr(settings, name)]


def _add_options(parser: argparse.ArgumentParser, model: Model | None) -> None:
    add = parser.add_argument

    def add_setting(option: str, convert: Callable[[str], float], metavar: str, text: str) -> None:
        name = option[2:].replace("-", "_")
        shown = text if model is None else _with_default(text, name, model)
        add(option, type=convert, metavar=metavar, help=shown)

    add("--data", type=Path, metavar="PATH", help="a file or a folder" + (", as above" if model else ""))
    add("--label", metavar="NAME", help="the comment (CoNLL-U) or column (MUSAE) that has the labels")
    add_setting("--epochs", at_least(1), "N", "how often all is seen")
    add_setting("--hidden", at_least(1), "N", "width of the hidden states")
    add_setting("--embedding", at_least(1), "N", "width of the tokens' vectors")
    add_setting("--batch-size", at_least(1), "N", "trees in a step")
    add_setting("--lr", number_from(above=0.0), "X", "learning rate")
    add_setting("--dropout", number_from(below=1.0), "P", "share of features that are dropped")
    add_setting("--weight-decay", number_from(), "X", "decay of the weights")
    add_setting("--seed", at_least(0), "N", "of the first training")
    add("--seeds", type=at_least(1), metavar="N", help="train N times, report the mean (default 1)")
    add("--checkpoint", type=Path, metavar="FILE", help="keep the state of the training here")
    add("--resume", action="store_true", help="go on from --checkpoint")
    add("--log", type=Path, metavar="FILE.json", help="write every epoch and a summary")
    add("--plot", type=Path, metavar="FILE.png", help="draw loss and accuracy by epoch")
    add("--threads", type=at_least(1, 2**16), metavar="N", help="of torch's operators (small models: 1)")


def _with_default(text: str, name: str, model: Model) -> str:
    """What the help says of a setting; nothing, if the model has none of that name."""
    if not hasattr(model.settings, name):
        return argparse.SUPPRESS
    usual = getattr(model.settings, name)
    others = {data: getattr(settings, name) for data, settings in model.of_data.items()}
    differing = [f"{value:g} for {data}" for data, value in others.items() if value != usual]
    more = f"; {', '.join(differing)}" if differing else ""
    return f"{text} (default {usual:g}{more})"
