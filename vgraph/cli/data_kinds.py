"""What ``--data`` names: the kind of a file or a folder is found by its name and content, and it is loaded.

Takes: a path. Gives: trees or a graph to train on. Runs once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from vgraph.cli.pairs import PairParts, divide_pairs, load_sick_parts
from vgraph.cli.trees import DagSamples, DagSplits, Splits, check_filled, load_sentences, with_tokens
from vgraph.data import (
    CitationGraph,
    TreeSplits,
    load_conllu,
    load_dags,
    load_heterophilous,
    load_listops,
    load_musae,
    load_planetoid,
    load_ptb,
    split_trees,
)
from vgraph.errors import DataError
from vgraph.files import read_arrays, read_text

LABEL = "label"  # the comment of CoNLL-U that has it
DIVIDED = "of each ten 8 to train, 1 to validate, 1 to test"
GUIDE = 'load it with vgraph.data and write the step, as the guide "Data of your own" shows'


@dataclass(frozen=True)
class TreeData:
    """Trees or DAGs with a label each; ``has_words``: words stand at the leaves alone, and all vertices have labels."""

    kind: str
    splits: Splits
    has_words: bool = False


@dataclass(frozen=True)
class NodeData:
    """A graph whose nodes have labels; ``by_auc``: two classes of it are measured by ROC AUC."""

    kind: str
    graph: CitationGraph
    by_auc: bool = False


@dataclass(frozen=True)
class PairData:
    """Pairs of trees with a number each."""

    kind: str
    parts: PairParts


Data: TypeAlias = TreeData | NodeData | PairData


def read_data(path: Path, label: str | None) -> Data:
    """What a file or folder holds; ``label`` names the comment or the column that has the labels.

    Raises:
        DataError: it is missing or malformed, of no kind that is known, or has nothing to learn.
    """
    load = _kind_of(path)
    if label is not None and load not in LABELLED:
        fact = f"--label {label} names a comment of CoNLL-U or a column of MUSAE, and this is neither"
        raise DataError(fact, line=str(path), cure="leave it out")
    found = load(path, label)
    if isinstance(found, TreeData):
        check_filled(found.splits, path)
    return found


Load: TypeAlias = Callable[[Path, str | None], Data]


def _kind_of(path: Path) -> Load:
    if path.is_dir():
        known = (load for pattern, load in FOLDERS.items() if any(path.glob(pattern)))
        return next(known, _sentences)
    return FILES.get(path.suffix.lower(), _sentences)


# ---------------------------------------------------------------- trees
def _sentences(path: Path, label: str | None) -> TreeData:
    return TreeData("sentences with a label at every vertex", load_sentences(path), has_words=True)


def _bracketed(path: Path, label: str | None) -> TreeData:
    if not read_text(path).lstrip().startswith("("):
        return _unlearnable("text that begins with no bracket, as trees do")(path, label)
    return TreeData(f"bracketed trees, {DIVIDED}", split_trees(load_ptb(path)), has_words=True)


def _listops(path: Path, label: str | None) -> TreeData:
    return TreeData(f"ListOps, {DIVIDED}", split_trees(load_listops(path)))


def _conllu(path: Path, label: str | None) -> TreeData:
    trees = load_conllu(path, label=label or LABEL)
    return TreeData(f"dependency trees (CoNLL-U), {DIVIDED}", split_trees(with_tokens(trees)))


def _treebank(folder: Path, label: str | None) -> TreeData:
    paths = [sorted(folder.glob(f"*{part}*.conllu")) for part in ("train", "dev", "test")]
    for part, found in zip(("train", "dev", "test"), paths, strict=True):
        if len(found) != 1:
            fact = f"there are {len(found)} files *{part}*.conllu"
            raise DataError(fact, line=str(folder), cure="put one for each of train, dev and test there")
    label = label or LABEL
    train = load_conllu(paths[0][0], label=label)
    others = [
        load_conllu(found[0], label=label, classes=train.classes, vocabulary=train.tokens, names=train.names)
        for found in paths[1:]
    ]
    return TreeData("dependency trees (CoNLL-U)", TreeSplits(*map(with_tokens, (train, *others))))


def _dags(path: Path, label: str | None) -> TreeData:
    data = load_dags(path)
    without = (data.labels < 0).nonzero().flatten().tolist()
    if without:
        fact = f"graph {without[0]}, counted from 0, has no label"
        raise DataError(fact, line=str(path), cure=f"give every graph a label, or {GUIDE}")
    parts = ([i for i in range(len(data.graphs)) if i % 10 in places] for places in (range(8), (8,), (9,)))
    return TreeData(f"DAGs, {DIVIDED}", DagSplits(*(DagSamples(data, ids) for ids in parts)))


# ---------------------------------------------------------------- pairs of trees
def _sick(folder: Path, label: str | None) -> PairData:
    return PairData("pairs of sentences with their relatedness", load_sick_parts(folder))


def _pairs(folder: Path, label: str | None) -> PairData:
    return PairData(f"pairs of sentences with their relatedness, {DIVIDED}", divide_pairs(folder))


# ---------------------------------------------------------------- one large graph
def _arrays(path: Path, label: str | None) -> NodeData:
    if "node_labels" in read_arrays(path, ("node_labels",)):
        return NodeData("a heterophilous graph, the first of its splits", load_heterophilous(path), by_auc=True)
    return NodeData("a citation graph", load_planetoid(path))


def _musae(path: Path, label: str | None) -> NodeData:
    return NodeData(
        "a network of MUSAE, of ten nodes 6 to train, 2 to validate, 2 to test", load_musae(path, target=label)
    )


def _unlearnable(what: str) -> Callable[[Path, str | None], TreeData]:
    def refuse(path: Path, label: str | None) -> TreeData:
        raise DataError(f"it is {what}, with no labels that a command could learn", line=str(path), cure=GUIDE)

    return refuse


FOLDERS: dict[str, Load] = {
    "*train*.conllu": _treebank,
    "*edges.csv": _musae,
    "a.toks": _pairs,
    "train/a.toks": _sick,
}
FILES: dict[str, Load] = {
    ".npz": _arrays,
    ".tsv": _listops,
    ".conllu": _conllu,
    ".json": _dags,
    ".jsonl": _dags,
    ".csv": _dags,
    ".txt": _bracketed,
    ".smi": _unlearnable("a list of molecules"),
    ".mtx": _unlearnable("a matrix"),
    ".mat": _unlearnable("a matrix"),
}
LABELLED = (_conllu, _treebank, _musae)
