"""Trees whose vertices each name their parent, numbered anew so that the root comes first, and packed as a Forest.

Takes: a parent and some features a vertex. Gives: a Forest. Runs once per tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vgraph.data.lines import Line
from vgraph.data.sst import UNKNOWN, Forest, TreeDataset, build_vocabulary, renumber_words

ROOT = -1
SHOWN_OF_A_CYCLE = 8
Names = Mapping[str, tuple[str, ...]]  # what the ids of a feature mean
NO_TREE = "give every word one head, and exactly one of them the head 0"


def root_first(heads: Sequence[int], line: Line) -> list[int]:
    """The vertices of a tree by their new numbers: its root is 0, and parents come before children.

    Args:
        heads: each vertex's parent, numbered from 0; -1 for the root.
        line: what errors name.

    Raises:
        DataError: there is no root or more than one, or a cycle.
    """
    children: list[list[int]] = [[] for _ in heads]
    roots: list[int] = []
    for vertex, head in enumerate(heads):
        (roots if head == ROOT else children[head]).append(vertex)
    if len(roots) != 1:
        shown = f"words {roots[0] + 1} and {roots[1] + 1} are roots" if roots else "no word is the root"
        raise line.wrong(f"no tree: {shown}", NO_TREE)
    order, stack = list[int](), roots
    while stack:
        vertex = stack.pop()
        order.append(vertex)
        stack += reversed(children[vertex])
    if len(order) < len(heads):
        cycle = [str(vertex + 1) for vertex in _cycle(heads, set(order))]
        more = ", ..." if len(cycle) > SHOWN_OF_A_CYCLE else ""
        shown = ", ".join(cycle[:SHOWN_OF_A_CYCLE])
        raise line.wrong(f"no tree: words {shown}{more} lie on a cycle", NO_TREE)
    return order


def _cycle(heads: Sequence[int], reached: set[int]) -> list[int]:
    """A cycle among the vertices that the root does not reach."""
    vertex = next(vertex for vertex in range(len(heads)) if vertex not in reached)
    place: dict[int, int] = {}
    while vertex not in place:
        place[vertex] = len(place)
        vertex = heads[vertex]
    return list(place)[place[vertex] :]


class ForestBuilder:
    """Sentences as trees of words.

    A word's features are itself (``word``), its place in the sentence (``position``), and others that are names, too.
    Names are numbered in the order of their first appearance.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.ptr, self.parent, self.position = [0], list[int](), list[int]()
        self.ids: dict[str, list[int]] = {name: [] for name in ("word", *names)}
        self.numbers: dict[str, dict[str, int]] = {name: {} for name in self.ids}
        self.labels: list[str] = []

    def add(self, heads: Sequence[int], columns: Mapping[str, Sequence[str]], line: Line) -> None:
        """One sentence: heads as ``root_first`` takes them, and each feature's names by word."""
        order = root_first(heads, line)
        new = {vertex: number for number, vertex in enumerate(order)}
        self.parent += [ROOT if heads[vertex] == ROOT else new[heads[vertex]] for vertex in order]
        self.position += order
        for name, own in self.ids.items():
            number = self.numbers[name]
            own += [number.setdefault(columns[name][vertex], len(number)) for vertex in order]
        self.ptr.append(len(self.parent))

    def forest(self, classes: Sequence[str] = ()) -> Forest:
        """All that was added; with ``classes``, the trees' labels are among them."""
        number = {name: i for i, name in enumerate(classes)}
        label = [number[name] for name in self.labels] if classes else [-1] * (len(self.ptr) - 1)
        features = {name: _ids(ids) for name, ids in self.ids.items()}
        found = {name: tuple(known) for name, known in self.numbers.items()}
        return Forest(
            ptr=_ids(self.ptr),
            parent=_ids(self.parent),
            label=_ids(label),
            features={**features, "position": _ids(self.position)},
            tokens=found.pop("word"),
            classes=tuple(classes),
            names=found,
        )


def with_names(forest: Forest, vocabulary: Sequence[str] | None, names: Names | None) -> TreeDataset:
    """The trees with ids of ``vocabulary`` and ``names``, of which 0 is what they lack; None: the forest's own."""
    forest = renumber_words(forest, build_vocabulary(forest) if vocabulary is None else vocabulary)
    features, new = dict(forest.features), dict[str, tuple[str, ...]]()
    for name, found in forest.names.items():
        new[name] = (UNKNOWN, *sorted(found)) if names is None else tuple(names.get(name, (UNKNOWN,)))
        number = {word: i for i, word in enumerate(new[name])}
        features[name] = _ids([number.get(word, 0) for word in found])[features[name]]
    return TreeDataset(replace(forest, features=features, names=new))


def _ids(numbers: Sequence[int]) -> NDArray[np.int64]:
    return np.asarray(numbers, np.int64)
