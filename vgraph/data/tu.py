"""Graphs with labels from text: the TU collection as it is used for graph isomorphism networks.

Takes: text. Gives: graphs and their labels. Runs once per file. Source: Xu et al. 2019, section 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import vgraph
from vgraph.arguments import PATH, checked
from vgraph.data.given import TEXT
from vgraph.errors import DataError
from vgraph.files import read_text


@dataclass(frozen=True, eq=False)
class LabelledGraphs:
    """Graphs with a label each, and with tags of vertices.

    Attributes:
        graphs: graphs with ``ndata["tag"]``, int64 (vertices,).
        labels: int64 (graphs,).
        num_classes: labels are below it.
        num_tags: tags are below it.
        stored_tags: for each tag the number that the file has in its place.

    Source: Xu et al. 2019, section 7.

    Example:
        >>> data = parse_tu("1\\n2 7\\n5 1 1\\n5 1 0\\n")
        >>> len(data.graphs), data.num_classes
        (1, 1)
    """

    graphs: list[vgraph.Graph]
    labels: Tensor
    num_classes: int
    num_tags: int
    stored_tags: tuple[int, ...] = ()


@checked(text=TEXT)
def parse_tu(text: str, *, path: str | Path = "<text>") -> LabelledGraphs:
    """Reads "number of graphs", then for each "vertices label" and a line "tag degree neighbours ..." a vertex.

    Labels and tags are numbered 0, 1, ... in order of their first appearance; neighbours are the
    sources of edges, in both directions as the file has them.

    Args:
        text: the lines.
        path: what errors call the text.

    Returns:
        LabelledGraphs.

    Raises:
        DataError: a line is missing or left over, has more or fewer numbers than it should, is no list of whole
            numbers, or names a vertex out of range.

    Source: Xu et al. 2019, section 7 (the data sets).

    Example:
        >>> data = parse_tu("1\\n2 7\\n5 1 1\\n5 1 0\\n")
        >>> data.graphs[0].edges(), data.labels.tolist(), data.num_tags
        ((tensor([1, 0]), tensor([0, 1])), [0], 1)
    """
    rows = _Rows(text, path)
    graphs: list[vgraph.Graph] = []
    labels: list[int] = []
    known_labels: dict[int, int] = {}
    known_tags: dict[int, int] = {}
    for _ in range(rows.count("a file", "graphs", *rows.take(1, 1))):
        count, label = rows.take(2, 2)
        rows.count("a graph", "vertices", count)
        labels.append(known_labels.setdefault(label, len(known_labels)))
        tags, src, dst = list[int](), list[int](), list[int]()
        for vertex in range(count):
            tag, degree, *rest = rows.take(2)
            if not 0 <= degree <= len(rest) or any(not 0 <= other < count for other in rest[:degree]):
                raise rows.wrong(f"vertex {vertex} of {count} has no {degree} neighbours there")
            tags.append(known_tags.setdefault(tag, len(known_tags)))
            src += rest[:degree]
            dst += [vertex] * degree
        g = vgraph.graph((torch.tensor(src, dtype=torch.int64), torch.tensor(dst, dtype=torch.int64)), num_nodes=count)
        g.ndata["tag"] = torch.tensor(tags, dtype=torch.int64)
        graphs.append(g)
    rows.end(len(graphs))
    numbers = torch.tensor(labels, dtype=torch.int64)
    return LabelledGraphs(graphs, numbers, len(known_labels), len(known_tags), tuple(known_tags))


@checked(path=PATH)
def load_tu(path: str | Path) -> LabelledGraphs:
    """The graphs of ``MUTAG.txt``, ``PROTEINS.txt`` and their like.

    Args:
        path: the file.

    Returns:
        LabelledGraphs.

    Raises:
        DataError: the file is missing or malformed.

    Source: Xu et al. 2019, section 7 (the data sets).

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "pair.txt")
        ...     _ = path.write_text("1\\n2 7\\n5 1 1\\n5 1 0\\n")
        ...     data = load_tu(path)
        >>> len(data.graphs), data.graphs[0].ndata["tag"].tolist(), data.num_classes
        (1, [0, 0], 1)
    """
    return parse_tu(read_text(path), path=path)


class _Rows:
    def __init__(self, text: str, path: str | Path) -> None:
        self.lines, self.path, self.number = text.split("\n"), path, 0

    def wrong(self, fact: str) -> DataError:
        return DataError(fact, line=f"{self.path}:{self.number}", cure="give whole numbers, a line for every vertex")

    def count(self, whole: str, parts: str, number: int) -> int:
        """The number, which is none below 0."""
        if number < 0:
            raise self.wrong(f"{whole} of {number} {parts}")
        return number

    def end(self, num_graphs: int) -> None:
        """DataError: something follows the last graph, so that the file does not hold what it says."""
        left = (number for number, line in enumerate(self.lines[self.number :], self.number + 1) if line.strip())
        self.number = next(left, 0)
        if self.number:
            fact = f"{self.lines[self.number - 1][:80]!r} follows the last vertex of the last graph of {num_graphs}"
            cure = "write in the first line how many graphs there are, and before each one how many vertices it has"
            raise DataError(fact, line=f"{self.path}:{self.number}", cure=cure)

    def take(self, least: int, most: int | None = None) -> list[int]:
        """The numbers of the next line, of which there are so many; attributes with points are none."""
        if self.number >= len(self.lines):
            raise self.wrong("the file ends too early")
        self.number += 1
        words = self.lines[self.number - 1].split()
        try:
            found = [_whole(word) for word in words[:2]] + [_whole(word) for word in words[2:] if "." not in word]
        except ValueError:
            raise self.wrong(f"{self.lines[self.number - 1][:80]!r} is no list of whole numbers") from None
        if len(found) < least or (most is not None and len(words) > most):
            raise self.wrong(f"there are {len(words)} numbers where {least} are needed")
        return found


def _whole(word: str) -> int:
    """A number as it stands, however many digits it has; some files write those at the front of lines as 3.0.

    What follows the neighbours may be attributes, with points: no numbers to read.
    """
    whole, point, zeros = word.partition(".")
    if (point and zeros.strip("0")) or "_" in word or not word.isascii():
        raise ValueError(word)
    return int(whole)
