"""Describe: what a graph is, in one line and as a table of a notebook.

Takes: frames by type. Gives: text, HTML. Runs when somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import TypeAlias

from vgraph.graphs.frame import Frame
from vgraph.graphs.types import EdgeType

Frames: TypeAlias = Mapping[str, Frame] | Mapping[EdgeType, Frame]


def text_by_type(src: Mapping[str, Frame], dst: Mapping[str, Frame] | None, edges: Mapping[EdgeType, int]) -> str:
    """How many rows each type has; ``dst``: of a block alone."""
    counts = [{t: f.num_rows for t, f in side.items()} for side in (src, dst) if side is not None]
    if dst is None:
        return f"Graph(num_nodes={counts[0]}, num_edges={edges})"
    return f"Block(num_src_nodes={counts[0]}, num_dst_nodes={counts[1]}, num_edges={edges})"


def table(title: str, kinds: Mapping[str, Frames]) -> str:
    """A row for each type of nodes and edges: how many there are, and their features."""
    head = "".join(f"<th>{word}</th>" for word in ("", "type", "rows", "features"))
    rows = "".join(f"<tr>{cells}</tr>" for kind, frames in kinds.items() for cells in _cells(kind, frames))
    return f"<table><caption>{escape(title)}</caption><tr>{head}</tr>{rows}</table>"


def _cells(kind: str, frames: Frames) -> Iterator[str]:
    for name, frame in frames.items():
        shown = ", ".join(str(part) for part in name) if isinstance(name, tuple) else str(name)
        features = [f"{key} {list(scheme.shape)} {scheme.dtype}" for key, scheme in frame.schemes().items()]
        words = (kind, shown, f"{frame.num_rows:,}", "<br>".join(map(escape, features)))
        yield "".join(f"<td>{word if i == len(words) - 1 else escape(word)}</td>" for i, word in enumerate(words))
