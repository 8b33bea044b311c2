"""What ``vgraph train`` is asked for: data of some kind and a model that takes it, built in or the user's own.

Takes: parsed arguments. Gives: a Plan. Runs once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TypeVar

from torch import nn

from vgraph.cli.bag_of_tokens import Baseline, count_majority, fit_bag_of_tokens
from vgraph.cli.checkpoint import Identity
from vgraph.cli.citations import CitationData, CitationTask, built_in, with_self_loops
from vgraph.cli.data_kinds import NodeData, PairData, TreeData, read_data
from vgraph.cli.metrics import ACCURACY, Metrics
from vgraph.cli.own_model import OwnNodeModel, OwnPairModel, OwnTreeModel
from vgraph.cli.pairs import PAIR_METRICS, PairModel, PairParts, PairTask, check_scale, relatedness
from vgraph.cli.settings import RELATEDNESS, SENTIMENT, SYNTAX, AttentionSettings, CitationSettings, TreeSettings
from vgraph.cli.training import Task
from vgraph.cli.trees import (
    DagClassifier,
    DagSamples,
    DagSplits,
    MakeTreeModel,
    TreeClassifier,
    TreeTask,
    describe_splits,
    load_functions,
    tree_metrics,
)
from vgraph.data import TreeDataset
from vgraph.errors import DataError

Settings = TypeVar("Settings", TreeSettings, CitationSettings, AttentionSettings)
TITLES = {"gcn": "graph convolutional network", "gat": "graph attention network"}


@dataclass(frozen=True)
class Plan:
    """What is to be trained: ``title`` for people, ``identity`` for checkpoints, ``metrics`` as the Task has them."""

    title: str
    identity: Identity
    make_task: Callable[[int], Task]
    first_seed: int
    epochs: int
    lines_by_epoch: bool
    baselines: dict[str, Baseline]
    metrics: Metrics = (ACCURACY,)


def make_plan(arguments: argparse.Namespace) -> Plan:
    """What the arguments ask for.

    Raises:
        DataError: the data are missing or malformed, or of a kind that the model does not take.
        NameLookupError: there is no such module of the user's own.
    """
    name = arguments.model or arguments.own_model
    if arguments.data is None:
        if arguments.model == "tree-lstm":
            return _plan_functions(arguments)
        what = "a graph" if arguments.model else "data"
        raise DataError(f"{name} needs {what}", cure="--data cora.npz or citeseer.npz (planetoid)")
    data = read_data(arguments.data, arguments.label)
    if arguments.model == "tree-lstm" and isinstance(data, NodeData):
        fact = f"tree-lstm takes trees and DAGs with a label each, and this is {data.kind}"
        raise DataError(fact, line=str(arguments.data), cure="use gcn or gat, or --model file.py:Class")
    if arguments.model in TITLES and not isinstance(data, NodeData):
        fact = f"{name} takes one graph with labels of nodes, and this is {data.kind}"
        raise DataError(fact, line=str(arguments.data), cure="use tree-lstm, or --model file.py:Class")
    if isinstance(data, NodeData):
        return _plan_nodes(arguments, data)
    return _plan_trees(arguments, data) if isinstance(data, TreeData) else _plan_pairs(arguments, data)


def _plan_functions(arguments: argparse.Namespace) -> Plan:
    settings, splits = _chosen(SYNTAX, arguments), load_functions()
    baselines = {
        "majority class": count_majority(splits),
        "bag of tokens, logistic regression": fit_bag_of_tokens(splits, "token"),
    }
    return Plan(
        "child-sum Tree-LSTM, naming the functions of Python's standard library",
        {"model": "syntax", **describe_splits(splits)} | _identity(settings),
        lambda seed: TreeTask(splits, settings, seed, _classifier(TreeClassifier, words=False), words=False),
        settings.seed,
        settings.epochs,
        True,
        baselines=baselines,
        metrics=tree_metrics(splits),
    )


def _plan_trees(arguments: argparse.Namespace, data: TreeData) -> Plan:
    own: str | None = arguments.own_model
    words = data.has_words and own is None
    settings = _chosen(SENTIMENT if words else SYNTAX, arguments)
    kind = DagClassifier if isinstance(data.splits, DagSplits) else TreeClassifier
    make = _classifier(kind, words=words) if own is None else _own_of_trees(own)
    title = own or f"{'binary' if words else 'child-sum'} Tree-LSTM"
    model = own or ("sentiment" if words else "tree-lstm")
    return Plan(
        f"{title}, {arguments.data}: {data.kind}",
        {"model": model, **describe_splits(data.splits)} | _identity(settings),
        lambda seed: TreeTask(data.splits, settings, seed, make, words=words),
        settings.seed,
        settings.epochs,
        True,
        baselines={},
        metrics=tree_metrics(data.splits),
    )


def _classifier(kind: type[TreeClassifier], *, words: bool) -> MakeTreeModel:
    return lambda samples, settings: kind(samples, settings, words=words)


def _own_of_trees(text: str) -> MakeTreeModel:
    def make(samples: TreeDataset | DagSamples, settings: TreeSettings) -> nn.Module:
        sizes = {"num_tokens": samples.num_tokens, "num_classes": samples.num_classes}
        return OwnTreeModel(text, sizes | _sizes(settings))

    return make


def _plan_pairs(arguments: argparse.Namespace, data: PairData) -> Plan:
    own: str | None = arguments.own_model
    settings = _chosen(RELATEDNESS, arguments)
    if own is None:
        check_scale(data.parts.written)

    def make_own(parts: PairParts, settings: TreeSettings) -> PairModel:
        assert own is not None
        return OwnPairModel(own, {"num_tokens": parts.num_tokens} | _sizes(settings))

    return Plan(
        f"{own or 'child-sum Tree-LSTM'}, {arguments.data}: {data.kind}",
        {"model": own or "relatedness", **data.parts.identity()} | _measured_by(PAIR_METRICS) | _identity(settings),
        lambda seed: PairTask(data.parts, settings, seed, make_own if own else relatedness),
        settings.seed,
        settings.epochs,
        True,
        baselines={},
        metrics=PAIR_METRICS,
    )


def _sizes(settings: TreeSettings) -> dict[str, float]:
    """What a module of the user's own for trees may ask for."""
    return {"hidden": settings.hidden, "embedding": settings.embedding, "dropout": settings.dropout}


def _measured_by(metrics: Metrics) -> Identity:
    """Nothing for accuracy, which is the rule."""
    return {} if metrics[0] is ACCURACY else {"measured_by": metrics[0].name}


def _plan_nodes(arguments: argparse.Namespace, found: NodeData) -> Plan:
    own: str | None = arguments.own_model
    settings = _chosen(AttentionSettings() if arguments.model == "gat" else CitationSettings(), arguments)
    data = with_self_loops(found.graph, arguments.data)
    metrics = data.metrics(by_auc=found.by_auc)

    def make_own(data: CitationData, settings: CitationSettings) -> nn.Module:
        assert own is not None
        sizes = {"num_features": data.feat.shape[1], "num_classes": data.num_classes}
        return OwnNodeModel(own, sizes | {"hidden": settings.hidden, "dropout": settings.dropout})

    make = make_own if own else built_in
    return Plan(
        f"{own or TITLES[arguments.model]}, {arguments.data}: {found.kind}",
        {"model": own or arguments.model, **data.identity()} | _measured_by(metrics) | _identity(settings),
        lambda seed: CitationTask(data, settings, seed, make, metrics),
        settings.seed,
        settings.epochs,
        False,
        baselines={},
        metrics=metrics,
    )


def _chosen(settings: Settings, arguments: argparse.Namespace) -> Settings:
    """The defaults with what the user gave."""
    names = asdict(settings)
    given = {name: value for name, value in vars(arguments).items() if name in names}
    return replace(settings, **{name: value for name, value in given.items() if value is not None})


def _identity(settings: TreeSettings | CitationSettings) -> Identity:
    """More epochs may be added to a training; anything else makes it another one."""
    return {name: value for name, value in asdict(settings).items() if name != "epochs"}
