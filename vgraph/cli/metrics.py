"""How well a model does: what its outputs are measured by, and how a figure is written.

Takes: outputs and what is true. Gives: figures by name. Runs once per epoch and part of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

Metrics: TypeAlias = tuple["Metric", ...]  # the first one chooses the best epoch


@dataclass(frozen=True)
class Metric:
    """``of(found, true)`` is the figure; ``key`` stands in the entries of a log, ``form`` writes it."""

    name: str
    key: str
    form: str
    of: Callable[[Tensor, Tensor], float]

    def shown(self, value: float) -> str:
        return self.form.format(value)


def accuracy(logits: Tensor, label: Tensor) -> float:
    """Per cent of rows whose largest logit is that of their class.

    >>> accuracy(torch.tensor([[1.0, 2.0], [1.0, 2.0]]), torch.tensor([1, 0]))
    50.0
    """
    return 100 * int((logits.argmax(1) == label).sum()) / len(label)


def roc_auc(logits: Tensor, label: Tensor) -> float:
    """Per cent of pairs, one of class 1 and one of class 0, of which the first has more for class 1; a tie is half.

    >>> roc_auc(torch.tensor([[0.0, 1.0], [0.0, 3.0], [0.0, 1.0]]), torch.tensor([0, 1, 1]))
    75.0
    """
    score = (logits[:, 1] - logits[:, 0]).double()
    _, place, counts = torch.unique(score, return_inverse=True, return_counts=True)
    rank = counts.cumsum(0) - (counts - 1) / 2  # from 1; equal scores share their mean
    is_one = label == 1
    ones, zeros = int(is_one.sum()), int((~is_one).sum())
    above = rank[place[is_one]].double().sum() - ones * (ones + 1) / 2
    return 100 * float(above) / (ones * zeros)


def pearson(found: Tensor, true: Tensor) -> float:
    """Pearson's correlation; 0 where one of them is constant.

    >>> pearson(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 4.0, 6.0]))
    1.0
    """
    one, other = (x.double() - x.double().mean() for x in (found, true))
    scale = float(one.norm() * other.norm())
    return round(float(one @ other) / scale, 12) if scale else 0.0


def mean_squared_error(found: Tensor, true: Tensor) -> float:
    """The mean of the squares of errors.

    >>> mean_squared_error(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
    2.0
    """
    return float((found.double() - true.double()).square().mean())


ACCURACY = Metric("accuracy", "accuracy", "{:.2f} %", accuracy)
ROC_AUC = Metric("ROC AUC", "roc_auc", "{:.2f} %", roc_auc)
PEARSON = Metric("Pearson's r", "pearson", "{:.4f}", pearson)
MSE = Metric("MSE", "mse", "{:.4f}", mean_squared_error)
METRICS = {metric.name: metric for metric in (ACCURACY, ROC_AUC, PEARSON, MSE)}


def measured(metrics: Metrics, part: str, found: Tensor, true: Tensor) -> dict[str, float]:
    """The figures of a part of the data, as an entry of the history has them: the first by the part's name alone."""
    first, *others = metrics
    return {part: first.of(found, true)} | {f"{part}_{metric.key}": metric.of(found, true) for metric in others}


def of_classes(num_classes: int, parts: Sequence[Tensor], *, by_auc: bool = False) -> Metrics:
    """Accuracy and, where each part has labels of both of two classes, ROC AUC; ``by_auc``: that comes first."""
    if num_classes != 2 or any(len(label.unique()) != 2 for label in parts):
        return (ACCURACY,)
    return (ROC_AUC, ACCURACY) if by_auc else (ACCURACY, ROC_AUC)
