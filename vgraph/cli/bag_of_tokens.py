"""The baselines beside a tree model: the commonest class, and a logistic regression on tokens.

Takes: forests. Gives: accuracies. Runs once per data set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vgraph.data import Forest, TreeSplits

WEIGHT_DECAYS = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
# how often a token stands in a tree, dampened; whether it does
SCALES = {"log counts": torch.log1p, "presence": torch.sign}


@dataclass(frozen=True)
class Baseline:
    """Accuracies in per cent; ``setting`` was the best on val."""

    val: float
    test: float
    setting: str


def count_majority(splits: TreeSplits) -> Baseline:
    """Always the commonest class of train."""
    commonest = int(np.bincount(splits.train.forest.label).argmax())
    val, test = (100 * float((s.forest.label == commonest).mean()) for s in splits[1:])
    return Baseline(val, test, splits.train.classes[commonest])


def fit_bag_of_tokens(splits: TreeSplits, feature: str) -> Baseline:
    """Multinomial logistic regression, by L-BFGS to its optimum.

    Weight decay and the scale of the counts are those with the best accuracy on val, so that the
    baseline is as strong as it can be made.
    """
    counts = [_count_tokens(part.forest, feature) for part in splits]
    labels = [torch.from_numpy(part.forest.label) for part in splits]
    tried: list[Baseline] = []
    for name, scale in SCALES.items():
        train, *others = [scale(part) for part in counts]
        for decay in WEIGHT_DECAYS:
            weight, bias = _fit(train, labels[0], splits.train.num_classes, decay)
            val, test = (
                100 * float(((x @ weight + bias).argmax(1) == y).double().mean())
                for x, y in zip(others, labels[1:], strict=True)
            )
            tried.append(Baseline(val, test, f"{name}, weight decay {decay:g}"))
    return max(tried, key=lambda found: found.val)


def _fit(x: Tensor, label: Tensor, num_classes: int, decay: float) -> tuple[Tensor, Tensor]:
    weight = torch.zeros(x.shape[1], num_classes, requires_grad=True)
    bias = torch.zeros(num_classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        found = F.cross_entropy(x @ weight + bias, label) + decay / 2 * weight.square().sum()
        found.backward()
        return found

    optimizer.step(loss)  # torch wants a float of it
    return weight.detach(), bias.detach()


def _count_tokens(forest: Forest, feature: str) -> Tensor:
    """(trees, tokens): how often each token stands in each tree."""
    tree = np.repeat(np.arange(len(forest)), np.diff(forest.ptr))
    token = forest.features[feature]
    is_one = token >= 0
    flat = tree[is_one] * len(forest.tokens) + token[is_one]
    counts = np.bincount(flat, minlength=len(forest) * len(forest.tokens))
    return torch.from_numpy(counts.reshape(len(forest), -1).astype(np.float32))
