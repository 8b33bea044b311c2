"""Graphs from text edge lists: one "src dst [weight]" a line.

Takes: text. Gives: an EdgeList of arrays, or a graph. Runs once per file. Source: SNAP's format.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import vgraph
from vgraph.arguments import COUNT, PATH, checked
from vgraph.data.given import TEXT
from vgraph.data.lines import SHOWN, Line, lines_of
from vgraph.files import check_vertices, read_text

MAX_ID = 2**63 - 2  # the number of vertices is one more and has to fit int64


@dataclass(frozen=True, eq=False)
class EdgeList:
    """The edges of one file, in its order.

    Attributes:
        src: int64 (num_edges,).
        dst: int64 (num_edges,).
        weight: float32 (num_edges,); None where the file has no weights.
        num_vertices: how many vertices.

    Source: the text format of SNAP's networks.

    Example:
        >>> parse_edge_list("0 1 0.5\\n").weight.tolist()
        [0.5]
    """

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    weight: NDArray[np.float32] | None
    num_vertices: int


@checked(text=TEXT, num_vertices=COUNT.or_none())
def parse_edge_list(text: str, *, num_vertices: int | None = None, path: str | Path = "<text>") -> EdgeList:
    """Reads "src dst [weight]" lines; whitespace or commas separate, "#" starts a comment.

    Args:
        text: the lines.
        num_vertices: all ids are below it; None: one more than the largest id, which is believed up to 2^24 or 64 a
            byte of the text.
        path: what errors call the text.

    Returns:
        An EdgeList.

    Raises:
        ArgumentError: ``num_vertices`` is no whole number from 0 up.
        DataError: a line that is no edge, an id out of range or beyond belief, weights on some lines only.

    Source: the text format of SNAP's networks.

    Example:
        >>> edges = parse_edge_list("# a triangle\\n0 1\\n1, 2\\n2\\t0\\n")
        >>> edges.src.tolist(), edges.dst.tolist(), edges.num_vertices
        ([0, 1, 2], [1, 2, 0], 3)
    """
    limit = MAX_ID if num_vertices is None else num_vertices - 1
    largest, largest_at = -1, ""
    src: list[int] = []
    dst: list[int] = []
    weight: list[float] = []
    for line in lines_of(text, path):
        fields = line.text.partition("#")[0].replace(",", " ").split()
        if not fields:
            continue
        if len(fields) not in (2, 3):
            fact = f"{line.text.strip()[:SHOWN]!r} is not an edge"
            raise line.wrong(fact, 'write "src dst" or "src dst weight"')
        if src and (len(fields) == 3) != bool(weight):
            raise line.wrong("some edges have a weight and some have none", "give every edge a weight, or none")
        src.append(_parse_id(fields[0], limit, line))
        dst.append(_parse_id(fields[1], limit, line))
        if max(src[-1], dst[-1]) > largest:
            largest, largest_at = max(src[-1], dst[-1]), line.at
        if len(fields) == 3:
            weight.append(line.real(fields[2], "weight"))
    if num_vertices is None:
        num_vertices = largest + 1
        cure = "number the vertices 0, 1, 2, ..., or pass num_nodes, if there are so many"
        check_vertices(num_vertices, len(text), largest_at, cure)
    return EdgeList(
        np.asarray(src, np.int64),
        np.asarray(dst, np.int64),
        np.asarray(weight, np.float32) if weight else None,
        num_vertices,
    )


@checked(path=PATH, num_nodes=COUNT.or_none())
def load_edge_list(path: str | Path, *, num_nodes: int | None = None) -> vgraph.Graph:
    """The graph of a text edge list; weights, where given, in ``edata["weight"]`` (float32).

    Args:
        path: the file.
        num_nodes: all ids are below it; None: one more than the largest id.

    Returns:
        A Graph with one type of nodes and edges.

    Raises:
        ArgumentError: ``num_nodes`` is no whole number from 0 up.
        DataError: the file is missing or malformed, or an id is not below ``num_nodes`` (without it, beyond belief).

    Source: the text format of SNAP's networks.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "pair.txt")
        ...     _ = path.write_text("0 1 0.5\\n")
        ...     g = load_edge_list(path)
        >>> g.num_nodes(), g.edata["weight"].tolist()
        (2, [0.5])
    """
    edges = parse_edge_list(read_text(path), num_vertices=num_nodes, path=path)
    ends = (torch.from_numpy(edges.src), torch.from_numpy(edges.dst))
    graph = vgraph.graph(ends, num_nodes=edges.num_vertices)
    if edges.weight is not None:
        graph.edata["weight"] = torch.from_numpy(edges.weight)
    return graph


def _parse_id(word: str, limit: int, line: Line) -> int:
    cure = "pass a larger num_nodes, or none" if limit < MAX_ID else "renumber the vertices"
    numbered = "number the vertices 0, 1, 2, ..., or give columns with a heading, and names, to vgraph.from_pandas"
    return line.whole(word, "vertex id", limit, cure, numbered)
