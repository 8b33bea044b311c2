"""Classification of trees by a Tree-LSTM: syntax trees of functions, sentiment of sentences.

Takes: tree data sets. Gives: a Task. Runs once per seed.
Source: Tai, Socher and Manning 2015, section 4.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias, overload

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import vgraph
from vgraph.cli.checkpoint import Identity, Parts
from vgraph.cli.metrics import Metrics, measured, of_classes
from vgraph.cli.settings import TreeSettings
from vgraph.cli.tokens import TokenEmbedding
from vgraph.cli.training import descend
from vgraph.data import DagDataset, TreeDataset, TreeSample, TreeSplits, load_sst, load_syntax
from vgraph.errors import DataError
from vgraph.nn import ChildSumTreeLSTM, NaryTreeLSTM

UNKNOWN_ID = 0  # of every vocabulary
EVALUATED_AT_ONCE = 128
VOTES_LEARN_FASTER = 3  # a token's vote begins at zero, and most tokens are rare


class TreeClassifier(nn.Module):
    """Tokens are embedded, a Tree-LSTM reads them, a linear layer names the class.

    ``words`` (the sentences): tokens stand at the leaves, and every vertex gets logits. Otherwise
    each vertex has a token, and each tree one row of logits: from its root's state, from the largest
    of all its vertices' states, and from a vote of each token that stands in it. Names say much, and
    with few trees a plain vote learns it best; the Tree-LSTM adds what order and structure say.
    """

    def __init__(self, data: TreeDataset | DagSamples, settings: TreeSettings, *, words: bool) -> None:
        super().__init__()
        self.words, self.token_dropout = words, settings.token_dropout
        if words:
            self.embedding = nn.Embedding(data.num_tokens, settings.embedding)
            nn.init.normal_(self.embedding.weight, std=0.1)
        else:
            self.embedding = TokenEmbedding(data.tokens, settings.embedding, std=0.5)
        cell = NaryTreeLSTM if words else ChildSumTreeLSTM
        self.cell = cell(settings.embedding, settings.hidden, dropout=settings.cell_dropout)
        self.dropout = nn.Dropout(settings.dropout)
        self.embedding_dropout = nn.Dropout(settings.embedding_dropout)
        self.out = nn.Linear(settings.hidden * (1 if words else 2), data.num_classes)
        if not words:
            self.votes = nn.Parameter(torch.zeros(data.num_tokens, data.num_classes))

    def forward(self, trees: vgraph.Graph) -> Tensor:
        if self.words:
            word = trees.ndata["word"]
            ids = (word >= 0).nonzero().squeeze(1)
            h = self.cell(trees, x=vgraph.at(self._embed(word[ids]), ids))["h"]
            return self.out(self.dropout(h))
        token = trees.ndata["token"]
        h = self.cell(trees, x=self._embed(token))["h"]
        tree = tree_ids(trees)
        present = torch.zeros(trees.batch_size, len(self.votes))
        present[tree, token] = 1
        h = torch.cat([self._at_roots(trees, tree, h), largest_in_tree(tree, h, trees.batch_size)], 1)
        return self.out(self.dropout(h)) + self.dropout(present) @ self.votes

    def _at_roots(self, trees: vgraph.Graph, tree: Tensor, h: Tensor) -> Tensor:
        return h[root_ids(trees)]

    def _embed(self, token: Tensor) -> Tensor:
        if self.training and self.token_dropout:
            is_hidden = torch.rand(token.shape) < self.token_dropout
            token = token.masked_fill(is_hidden, UNKNOWN_ID)
        return self.embedding_dropout(self.embedding(token))


class DagClassifier(TreeClassifier):
    """The same on DAGs, of which several vertices may be last: what stands for a root is the sum of those."""

    def _at_roots(self, trees: vgraph.Graph, tree: Tensor, h: Tensor) -> Tensor:
        last = (trees.out_degrees() == 0).nonzero().squeeze(1)
        return h.new_zeros(trees.batch_size, h.shape[1]).index_add(0, tree[last], h[last])


def root_ids(trees: vgraph.Graph) -> Tensor:
    """The root of every tree of a batch: its first vertex."""
    sizes = trees.batch_num_nodes()
    return sizes.cumsum(0) - sizes


def tree_ids(trees: vgraph.Graph) -> Tensor:
    """(vertices,): the tree of a batch that each vertex belongs to."""
    sizes = trees.batch_num_nodes()
    return torch.repeat_interleave(torch.arange(len(sizes)), sizes)


def largest_in_tree(tree: Tensor, rows: Tensor, count: int) -> Tensor:
    """(trees, width): elementwise the largest of the rows of each of ``count`` trees."""
    index = tree.unsqueeze(1).expand_as(rows)
    empty = rows.new_zeros(count, rows.shape[1])
    return empty.scatter_reduce(0, index, rows, "amax", include_self=False)


class DagSamples(Sequence[TreeSample]):
    """Some of the graphs of a file as the samples that trees are, each kind of vertex a token."""

    def __init__(self, data: DagDataset, ids: Sequence[int]) -> None:
        self.tokens, self.classes = data.kinds, data.classes
        self.num_tokens, self.num_classes = len(data.kinds), len(data.classes)
        self.labels = data.labels[list(ids)]
        self._samples = [TreeSample(data.graphs[i], int(data.labels[i]), 0) for i in ids]
        for sample in self._samples:
            sample.graph.ndata["token"] = sample.graph.ndata["kind"]

    def __len__(self) -> int:
        return len(self._samples)

    @overload
    def __getitem__(self, index: int) -> TreeSample: ...
    @overload
    def __getitem__(self, index: slice) -> list[TreeSample]: ...
    def __getitem__(self, index: int | slice) -> TreeSample | list[TreeSample]:
        return self._samples[index]


class DagSplits(NamedTuple):
    """Three parts of a list of DAGs."""

    train: DagSamples
    val: DagSamples
    test: DagSamples


Splits: TypeAlias = TreeSplits | DagSplits
MakeTreeModel: TypeAlias = Callable[[TreeDataset | DagSamples, TreeSettings], nn.Module]


class TreeTask:
    """The model that ``make`` gives, on the three splits of a data set; ``words``: each vertex has a label."""

    def __init__(self, splits: Splits, settings: TreeSettings, seed: int, make: MakeTreeModel, *, words: bool) -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        self.splits, self.words, self.metrics = splits, words, tree_metrics(splits)
        self.num_samples, self.batch_size = len(splits.train), settings.batch_size
        self.model = make(splits.train, settings)
        groups = [
            {"params": [p], "lr": settings.lr * (VOTES_LEARN_FASTER if name == "votes" else 1)}
            for name, p in self.model.named_parameters()
        ]
        self.optimizer = torch.optim.AdamW(groups, weight_decay=settings.weight_decay, fused=True)
        average = get_ema_multi_avg_fn(settings.averaging)
        self.average = AveragedModel(self.model, multi_avg_fn=average) if settings.averaging else None

    @property
    def parts(self) -> Parts:
        own: dict[str, nn.Module | torch.optim.Optimizer] = {
            "model": self.model,
            "optimizer": self.optimizer,
        }
        return own if self.average is None else {**own, "average": self.average}

    def step(self, ids: list[int]) -> float:
        self.model.train()
        samples = [self.splits.train[index] for index in ids]
        trees = vgraph.batch(sample.graph for sample in samples)
        label = trees.ndata["label"] if self.words else _labels(samples)
        loss = descend(self.model, self.optimizer, F.cross_entropy(self.model(trees), label))
        if self.average is not None:
            self.average.update_parameters(self.model)
        return loss

    def evaluate(self) -> dict[str, float]:
        return self._measured("val", self.splits.val) | self._measured("test", self.splits.test)

    @torch.no_grad()
    def _measured(self, name: str, part: TreeDataset | DagSamples) -> dict[str, float]:
        """How well roots are named."""
        model = self.model if self.average is None else self.average
        model.eval()
        found = list[Tensor]()
        for first in range(0, len(part), EVALUATED_AT_ONCE):
            samples = part[first : first + EVALUATED_AT_ONCE]
            trees = vgraph.batch(sample.graph for sample in samples)
            logits = model(trees)
            found.append(logits[root_ids(trees)] if self.words else logits)
        return measured(self.metrics, name, torch.cat(found), part_labels(part))


def _labels(samples: Sequence[TreeSample]) -> Tensor:
    return torch.tensor([sample.label for sample in samples])


def part_labels(part: TreeDataset | DagSamples) -> Tensor:
    """The class of each tree."""
    return part.labels if isinstance(part, DagSamples) else torch.from_numpy(part.forest.label)


def tree_metrics(splits: Splits) -> Metrics:
    """What trees are measured by."""
    return of_classes(splits.train.num_classes, [part_labels(part) for part in splits[1:]])


def with_tokens(trees: TreeDataset) -> TreeDataset:
    """Words under the name that models of trees with a token at every vertex read."""
    return TreeDataset(replace(trees.forest, features={"token": trees.forest.features["word"]}))


def load_sentences(path: Path) -> TreeSplits:
    """SST in a folder, or in the folder ``trees`` inside it.

    Raises:
        DataError: a file is missing, malformed, or without trees.
    """
    inner = path / "trees"
    splits = load_sst(inner if (inner / "train.txt").exists() else path)
    check_filled(splits, path)
    return splits


def load_functions() -> TreeSplits:
    """The functions of Python's own standard library."""
    splits = load_syntax()
    check_filled(splits, "the standard library")
    return splits


def check_filled(splits: Splits, path: Path | str) -> None:
    """DataError: a part of them has no trees."""
    for name, part in splits._asdict().items():
        if not len(part):
            fact = f"there are no trees for {name}"
            raise DataError(fact, line=str(path), cure="check that the files are whole")


def describe_splits(splits: Splits) -> Identity:
    """What a checkpoint must agree with; the names of the tokens too, by a checksum."""
    parts: Identity = {f"{name}_trees": len(part) for name, part in splits._asdict().items()}
    train = splits.train
    return {**parts, "tokens": train.num_tokens, "classes": " ".join(train.classes)}
