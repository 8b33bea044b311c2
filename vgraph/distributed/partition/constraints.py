"""Constraints: what every part is to have an equal share of, beside nodes.

Takes: the words of ``balance``, features. Gives: weights of nodes. Runs once per graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.distributed.partition.whole_graph import EDGES_AT_ONCE, WholeGraph
from vgraph.errors import FunctionError, NameLookupError

MOST_CLASSES = 64  # of a feature whose values are balanced one by one
NO_CLASS = 255


@dataclass(frozen=True)
class Classes:
    """Nodes of which each class is shared out equally: one byte a node; ``NO_CLASS`` counts for nothing."""

    word: str
    of_nodes: NDArray[np.uint8]
    num_classes: int


@dataclass(frozen=True)
class Balance:
    """Constraints beside the number of nodes; ``edges``: in-edges are shared out, too."""

    words: tuple[str, ...]
    edges: bool
    classes: tuple[Classes, ...]

    @property
    def num_constraints(self) -> int:
        return 1 + self.edges + sum(found.num_classes for found in self.classes)


def read_balance(whole: WholeGraph, balance: str | Sequence[str] | None) -> Balance:
    """What the words mean for a graph.

    "edges": in-edges; "types": nodes of each type; another word is a feature of nodes (or that with "_mask"
    appended): nodes where it is true, or each of its values if it holds whole numbers.

    Raises:
        NameLookupError: there is no such feature.
        FunctionError: a feature holds no truth values or few whole numbers, one a node.
    """
    words = tuple(w.strip() for w in balance.split(",")) if isinstance(balance, str) else tuple(balance or ())
    words = tuple(dict.fromkeys(word for word in words if word))
    classes = tuple(_classes(whole, word) for word in words if word != "edges")
    return Balance(words, "edges" in words, classes)


def training_nodes(whole: WholeGraph, balance: Balance) -> tuple[Classes, ...]:
    """Nodes with a "train_mask", which ranks share out even where parts were not balanced by it."""
    is_known = any("train_mask" in data for data in whole.node_data.values())
    is_balanced = {"train", "train_mask"} & set(balance.words)
    return (_classes(whole, "train"),) if is_known and not is_balanced else ()


def weights_of(whole: WholeGraph, balance: Balance) -> NDArray[np.int64]:
    """One row a node, one column a constraint: (nodes, constraints)."""
    weights = np.zeros((whole.total_nodes, balance.num_constraints), np.int64)
    weights[:, 0] = 1
    column = 1
    if balance.edges:
        weights[:, 1] = in_degrees(whole)
        column = 2
    for found in balance.classes:
        for value in range(found.num_classes):
            weights[:, column] = found.of_nodes == value
            column += 1
    return weights


def totals_of(whole: WholeGraph, balance: Balance) -> NDArray[np.int64]:
    """The sum of every constraint over all nodes, (constraints,)."""
    counts = [np.bincount(c.of_nodes, minlength=256)[: c.num_classes] for c in balance.classes]
    edges = [whole.total_edges] if balance.edges else []
    return np.concatenate([[whole.total_nodes, *edges], *counts]).astype(np.int64)


def loads_of(classes: Classes, parts: NDArray[np.int32], num_parts: int) -> dict[str, tuple[int, ...]]:
    """How many nodes of every class each part has, by the class's name."""
    counts = np.zeros(num_parts * 256, np.int64)
    for first in range(0, len(parts), EDGES_AT_ONCE):
        some = slice(first, first + EDGES_AT_ONCE)
        counts += np.bincount(parts[some].astype(np.int64) * 256 + classes.of_nodes[some], minlength=len(counts))
    of_values = counts.reshape(num_parts, 256)[:, : classes.num_classes].T
    names = [classes.word] if classes.num_classes == 1 else [f"{classes.word}={k}" for k in range(classes.num_classes)]
    return {name: tuple(column.tolist()) for name, column in zip(names, of_values, strict=True)}


def in_degrees(whole: WholeGraph) -> NDArray[np.int64]:
    """In-edges of every node over all types of edges, (nodes,)."""
    degrees, starts = np.zeros(whole.total_nodes, np.int64), whole.starts
    for (_, _, ntype), lists in whole.in_edges.items():
        first = starts[ntype]
        degrees[first : first + whole.num_nodes[ntype]] += torch.diff(lists.ptr).numpy()
    return degrees


def _classes(whole: WholeGraph, word: str) -> Classes:
    of_nodes = np.full(whole.total_nodes, NO_CLASS, np.uint8)
    if word == "types":
        for number, (ntype, first) in enumerate(whole.starts.items()):
            of_nodes[first : first + whole.num_nodes[ntype]] = number
        return Classes(word, of_nodes, few_classes(word, len(whole.num_nodes)))
    found = {t: c for t, data in whole.node_data.items() if (c := data.get(word, data.get(f"{word}_mask"))) is not None}
    if not found:
        names = sorted({name for data in whole.node_data.values() for name in data})
        fact = f"nothing is called {word!r} of which parts could have equal shares; nodes have {names}"
        raise NameLookupError(fact, cure='name a feature of nodes, "edges" or "types"')
    count = max(_num_classes(word, column) for column in found.values())
    for ntype, column in found.items():
        for some in range(0, len(column), EDGES_AT_ONCE):
            values = column[some : some + EDGES_AT_ONCE]
            classes = torch.where(values, 0, NO_CLASS) if values.dtype == torch.bool else values.long() & NO_CLASS
            first = whole.starts[ntype] + some
            of_nodes[first : first + len(values)] = torch.where(values < 0, NO_CLASS, classes).numpy()
    return Classes(word, of_nodes, count)


def _num_classes(word: str, column: Tensor) -> int:
    """A negative number is no class."""
    if column.ndim != 1 or column.is_floating_point() or column.is_complex():
        fact = f"the feature {word!r} is {tuple(column.shape)} {column.dtype}"
        raise FunctionError(fact, cure="balance truth values or whole numbers, one a node")
    if column.dtype == torch.bool:
        return 1
    return few_classes(word, 1 + max(-1, int(column.max())) if len(column) else 0)


def few_classes(word: str, count: int) -> int:
    """``count``; FunctionError: there are too many classes for a constraint each."""
    if count > MOST_CLASSES:
        fact = f"{word!r} has {count} classes; each would be a constraint of its own"
        raise FunctionError(fact, cure=f"balance a feature of at most {MOST_CLASSES} classes")
    return count
