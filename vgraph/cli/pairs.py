"""Regression on pairs of trees: how related two sentences are.

Takes: pairs with a number each. Gives: a Task. Runs once per seed.
Source: Tai, Socher and Manning 2015, section 4.2.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vgraph
from vgraph.cli.checkpoint import Identity, Parts
from vgraph.cli.metrics import MSE, PEARSON, measured
from vgraph.cli.settings import TreeSettings
from vgraph.cli.training import descend
from vgraph.cli.trees import EVALUATED_AT_ONCE, root_ids, with_tokens
from vgraph.data import PairDataset, PairSample, load_pairs, load_sick
from vgraph.errors import DataError
from vgraph.nn import ChildSumTreeLSTM

LEAST, MOST = 1, 5  # SICK's scale
COMPARED = 50
FOLDERS, SIMILARITIES = ("train", "dev", "test"), "sim.txt"
PAIR_METRICS = (PEARSON, MSE)


class PairParts(NamedTuple):
    """Three parts of pairs with one vocabulary; ``written``: the similarities of each file, a line each."""

    train: Sequence[PairSample]
    val: Sequence[PairSample]
    test: Sequence[PairSample]
    num_tokens: int
    written: Mapping[Path, Tensor]

    def identity(self) -> Identity:
        """What a checkpoint must agree with."""
        counts: Identity = {f"{name}_pairs": len(getattr(self, name)) for name in ("train", "val", "test")}
        return {**counts, "tokens": self.num_tokens}


class PairModel(nn.Module):
    """Called with two batches of trees, it gives what ``loss`` and ``similarity`` take."""

    @abstractmethod
    def loss(self, found: Tensor, similarity: Tensor) -> Tensor:
        """How far what was found is from (pairs,)."""

    @abstractmethod
    def similarity(self, found: Tensor) -> Tensor:
        """(pairs,): the numbers that are meant."""


class Relatedness(PairModel):
    """One child-sum Tree-LSTM reads both trees; product and distance of the roots' states say what is likely.

    ``levels`` are the whole numbers of the scale. A number between two of them is a distribution on both, which the
    model learns by its Kullback-Leibler divergence; what it says is the mean of its own distribution.
    """

    levels: Tensor

    def __init__(self, num_tokens: int, settings: TreeSettings) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_tokens, settings.embedding)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.embedding_dropout = nn.Dropout(settings.embedding_dropout)
        self.cell = ChildSumTreeLSTM(settings.embedding, settings.hidden, dropout=settings.cell_dropout)
        self.compare = nn.Sequential(
            nn.Linear(2 * settings.hidden, COMPARED),
            nn.Sigmoid(),
            nn.Dropout(settings.dropout),
            nn.Linear(COMPARED, MOST - LEAST + 1),
        )
        self.register_buffer("levels", torch.arange(LEAST, MOST + 1.0), persistent=False)

    def forward(self, left: vgraph.Graph, right: vgraph.Graph) -> Tensor:
        trees = vgraph.batch([left, right])
        h = self.cell(trees, x=self.embedding_dropout(self.embedding(trees.ndata["token"])))["h"]
        one, other = h[root_ids(trees)].chunk(2)
        return self.compare(torch.cat([one * other, (one - other).abs()], 1))

    def loss(self, found: Tensor, similarity: Tensor) -> Tensor:
        likely = (1 - (similarity.unsqueeze(1) - self.levels).abs()).clamp(min=0)  # equations 15 and 16
        return F.kl_div(F.log_softmax(found, 1), likely, reduction="batchmean")

    def similarity(self, found: Tensor) -> Tensor:
        return torch.softmax(found, 1) @ self.levels


MakePairModel: TypeAlias = Callable[[PairParts, TreeSettings], PairModel]


def relatedness(parts: PairParts, settings: TreeSettings) -> PairModel:
    """The built-in model, for pairs on the scale that it has levels for."""
    return Relatedness(parts.num_tokens, settings)


class PairTask:
    """The model that ``make`` gives, on the three parts of a data set of pairs."""

    def __init__(self, data: PairParts, settings: TreeSettings, seed: int, make: MakePairModel) -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        self.data, self.num_samples, self.batch_size = data, len(data.train), settings.batch_size
        self.model = make(data, settings)
        decay = settings.weight_decay
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings.lr, weight_decay=decay)

    @property
    def parts(self) -> Parts:
        return {"model": self.model, "optimizer": self.optimizer}

    def step(self, ids: list[int]) -> float:
        self.model.train()
        left, right, similarity = vgraph.collate([self.data.train[index] for index in ids])
        return descend(self.model, self.optimizer, self.model.loss(self.model(left, right), similarity))

    def evaluate(self) -> dict[str, float]:
        val, test = self._measured("val", self.data.val), self._measured("test", self.data.test)
        return {**val, **test, "val_loss": val[f"val_{MSE.key}"]}

    @torch.no_grad()
    def _measured(self, name: str, part: Sequence[PairSample]) -> dict[str, float]:
        self.model.eval()
        pieces = [part[first : first + EVALUATED_AT_ONCE] for first in range(0, len(part), EVALUATED_AT_ONCE)]
        batches = (vgraph.collate(list(piece)) for piece in pieces)
        found = [self.model.similarity(self.model(left, right)) for left, right, _ in batches]
        true = torch.stack([sample.similarity for sample in part])
        return measured(PAIR_METRICS, name, torch.cat(found), true)


def load_sick_parts(folder: Path) -> PairParts:
    """The pairs of the folders train, dev and test of a folder.

    Raises:
        DataError: a file is missing or malformed, or a part has no pairs.
    """
    splits = load_sick(folder)
    written = {folder / name / SIMILARITIES: part.similarity for name, part in zip(FOLDERS, splits, strict=True)}
    train, val, test = (list(_with_tokens(part)) for part in splits)
    return _checked(PairParts(train, val, test, len(splits.train.tokens), written), folder)


def divide_pairs(folder: Path) -> PairParts:
    """The pairs of one folder: of each ten, in their order, eight to train, one to validate, one to test.

    Raises:
        DataError: as of ``load_sick_parts``.
    """
    pairs = _with_tokens(load_pairs(folder))
    train, val, test = ([pairs[i] for i in range(len(pairs)) if i % 10 in at] for at in (range(8), (8,), (9,)))
    written = {folder / SIMILARITIES: pairs.similarity}
    return _checked(PairParts(train, val, test, len(pairs.tokens), written), folder)


def check_scale(written: Mapping[Path, Tensor]) -> None:
    """DataError: a similarity has no place on the scale of the built-in model; its file and line are named."""
    for path, similarity in written.items():
        beyond = ((similarity < LEAST) | (similarity > MOST)).nonzero().flatten().tolist()
        if beyond:
            fact = f"{similarity[beyond[0]].item():g} is not from {LEAST} to {MOST}, as relatedness in SICK is"
            cure = "bring the numbers to that scale, or train a model of your own: --model file.py:Class"
            raise DataError(fact, line=f"{path}:{beyond[0] + 1}", cure=cure)


def _with_tokens(pairs: PairDataset) -> PairDataset:
    return replace(pairs, left=with_tokens(pairs.left), right=with_tokens(pairs.right))


def _checked(parts: PairParts, folder: Path) -> PairParts:
    for name, part in zip(("train", "val", "test"), parts[:3], strict=True):
        if not part:
            raise DataError(f"there are no pairs for {name}", line=str(folder), cure="check that the files are whole")
    return parts
