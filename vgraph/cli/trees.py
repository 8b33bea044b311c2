"""Classification of trees by a Tree-LSTM: syntax trees of functions, sentiment of sentences.

Takes: tree data sets. Gives: a Task. Runs once per seed.
Source: Tai, Socher and Manning 2015, section 4.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import vgraph
from vgraph.cli.checkpoint import Identity, Parts
from vgraph.cli.tokens import TokenEmbedding
from vgraph.cli.training import descend
from vgraph.data import TreeDataset, TreeSample, TreeSplits, load_sst, load_syntax
from vgraph.errors import DataError
from vgraph.nn import ChildSumTreeLSTM, NaryTreeLSTM

UNKNOWN_ID = 0  # of every vocabulary
EVALUATED_AT_ONCE = 128
VOTES_LEARN_FASTER = 3  # a token's vote begins at zero, and most tokens are rare


@dataclass(frozen=True)
class TreeSettings:
    """Sizes and rates.

    ``token_dropout`` is the part of tokens read as unknown in training, ``cell_dropout`` that of a
    cell's candidate. ``averaging``: what is measured is an average of the weights over about
    1 / (1 - averaging) steps; 0: it is the weights themselves.
    """

    epochs: int
    hidden: int
    embedding: int
    batch_size: int
    lr: float
    dropout: float
    embedding_dropout: float
    token_dropout: float
    cell_dropout: float
    weight_decay: float
    averaging: float = 0.0
    seed: int = 0


SYNTAX = TreeSettings(
    epochs=10, hidden=100, embedding=100, batch_size=32, lr=2e-3, dropout=0.5,
    embedding_dropout=0.3, token_dropout=0.1, cell_dropout=0.0, weight_decay=0.01, averaging=0.99,
)  # fmt: skip
SENTIMENT = TreeSettings(
    epochs=10, hidden=200, embedding=200, batch_size=64, lr=1e-3, dropout=0.5,
    embedding_dropout=0.5, token_dropout=0.1, cell_dropout=0.2, weight_decay=0.05,
)  # fmt: skip


class TreeClassifier(nn.Module):
    """Tokens are embedded, a Tree-LSTM reads them, a linear layer names the class.

    ``words`` (the sentences): tokens stand at the leaves, and every vertex gets logits. Otherwise
    each vertex has a token, and each tree one row of logits: from its root's state, from the largest
    of all its vertices' states, and from a vote of each token that stands in it. Names say much, and
    with few trees a plain vote learns it best; the Tree-LSTM adds what order and structure say.
    """

    def __init__(self, data: TreeDataset, settings: TreeSettings, *, words: bool) -> None:
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
        h = torch.cat([h[root_ids(trees)], largest_in_tree(tree, h, trees.batch_size)], 1)
        return self.out(self.dropout(h)) + self.dropout(present) @ self.votes

    def _embed(self, token: Tensor) -> Tensor:
        if self.training and self.token_dropout:
            is_hidden = torch.rand(token.shape) < self.token_dropout
            token = token.masked_fill(is_hidden, UNKNOWN_ID)
        return self.embedding_dropout(self.embedding(token))


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


class TreeTask:
    """A TreeClassifier on the three splits of a data set."""

    def __init__(self, splits: TreeSplits, settings: TreeSettings, seed: int, *, words: bool) -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        self.splits, self.words = splits, words
        self.num_samples, self.batch_size = len(splits.train), settings.batch_size
        self.model = TreeClassifier(splits.train, settings, words=words)
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
        return {"val": self._accuracy(self.splits.val), "test": self._accuracy(self.splits.test)}

    @torch.no_grad()
    def _accuracy(self, part: TreeDataset) -> float:
        """Per cent of trees whose root is named right."""
        model = self.model if self.average is None else self.average
        model.eval()
        right = 0
        for first in range(0, len(part), EVALUATED_AT_ONCE):
            samples = part[first : first + EVALUATED_AT_ONCE]
            trees = vgraph.batch(sample.graph for sample in samples)
            logits = model(trees)
            found = (logits[root_ids(trees)] if self.words else logits).argmax(1)
            right += int((found == _labels(samples)).sum())
        return 100 * right / len(part)


def _labels(samples: Sequence[TreeSample]) -> Tensor:
    return torch.tensor([sample.label for sample in samples])


def load_sentences(path: Path) -> TreeSplits:
    """SST in a folder, or in the folder ``trees`` inside it.

    Raises:
        DataError: a file is missing, malformed, or without trees.
    """
    inner = path / "trees"
    splits = load_sst(inner if (inner / "train.txt").exists() else path)
    _check_filled(splits, path)
    return splits


def load_functions() -> TreeSplits:
    """The functions of Python's own standard library."""
    splits = load_syntax()
    _check_filled(splits, "the standard library")
    return splits


def _check_filled(splits: TreeSplits, path: Path | str) -> None:
    for name, part in splits._asdict().items():
        if not len(part):
            fact = f"there are no trees for {name}"
            raise DataError(fact, line=str(path), cure="check that the files are whole")


def describe_splits(splits: TreeSplits) -> Identity:
    """What a checkpoint must agree with; the names of the tokens too, by a checksum."""
    parts: Identity = {f"{name}_trees": len(part) for name, part in splits._asdict().items()}
    train = splits.train
    return {**parts, "tokens": train.num_tokens, "classes": " ".join(train.classes)}
