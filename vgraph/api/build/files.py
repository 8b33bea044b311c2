"""Graphs on disk: tensors and names, which running no code can read.

Takes: graphs and labels. Gives: one file, and back. Runs once per file.
The format is torch's archive of plain tensors, lists and dicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.serialization import add_safe_globals

from vgraph.api.build.dgl_files import is_dgl_file, read_dgl_file
from vgraph.api.build.stored_graph import Misfit, StoredGraph, checked_columns, chosen_graphs
from vgraph.api.graph import Graph
from vgraph.arguments import MAPPING, NAME, PATH, WORDS, Bound, checked
from vgraph.atomic_file import atomic_file
from vgraph.errors import DataError, FunctionError, GraphError
from vgraph.files import most_vertices, read_archive
from vgraph.graphs.frame import Frame
from vgraph.graphs.given import ONE_OR_MORE
from vgraph.graphs.graph_data import restored
from vgraph.graphs.matrices import FORMATS, check_format

FORMAT, VERSION = "vgraph graphs", 1
_FORMATS = Bound("a format, or a list of them", lambda given: NAME.accepts(given) or WORDS.accepts(given)).or_none()
# What ``torch.load(..., weights_only=True)`` may make: ``restored`` compares all that a file says of a graph.
add_safe_globals([restored, Graph])


@checked(filename=PATH, g_list=ONE_OR_MORE, labels=MAPPING.or_none(), formats=_FORMATS)
def save_graphs(
    filename: str | Path,
    g_list: Graph | Sequence[Graph],
    labels: Mapping[str, Tensor] | None = None,
    formats: str | Sequence[str] | None = None,
) -> None:
    """Writes graphs with all their features, and tensors by name, to one file, as a whole or not at all.

    Args:
        filename: where to; a file that is there is replaced.
        g_list: a graph, or several of any kinds.
        labels: tensors by name, stored without gradient; None: none.
        formats: words of "coo", "csr", "csc", or one: the formats of the adjacency that graphs have as soon as they are
            loaded; None: they are made when they are first used. Edges are stored as pairs of ends in any case.

    Raises:
        FunctionError: an item is no graph, or a label no tensor.
        GraphError: a graph has far more nodes than edges and features, so that no reader would believe the file; a word
            is no format.
        DataError: the file cannot be written.

    Source: DGL 1.1, ``dgl.save_graphs``.

    Example:
        >>> import tempfile, vgraph
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     vgraph.save_graphs(folder + "/graphs.bin", [vgraph.graph(([0], [1]))])
        ...     graphs, labels = vgraph.load_graphs(folder + "/graphs.bin")
        >>> graphs, labels
        ([Graph(num_nodes=2, num_edges=1, ndata={}, edata={})], {})
    """
    graphs = [g_list] if isinstance(g_list, Graph) else list(g_list)
    found = dict(labels or {})
    _refuse_others(graphs, found)
    _refuse_unbelievable(graphs)
    ready = [formats] if isinstance(formats, str) else list(formats or ())
    for name in ready:
        check_format(name)
    content = {"format": FORMAT, "version": VERSION, "graphs": [_packed(g) for g in graphs], "labels": _own(found)}
    content |= {"formats": ready} if ready else {}
    try:
        with atomic_file(filename) as file:
            torch.save(content, file)
    except OSError as error:
        fact, cure = f"cannot write {filename}: {error.strerror or error}", "check the path and the room on the disk"
        raise DataError(fact, cure=cure) from error


def _refuse_others(graphs: Sequence[object], labels: Mapping[str, object]) -> None:
    for index, g in enumerate(graphs):
        if not isinstance(g, Graph):
            fact = f"item {index} is a {type(g).__name__}, not a graph"
            raise FunctionError(fact, cure="pass a list of graphs")
    for name, label in labels.items():
        if not isinstance(label, Tensor):
            raise FunctionError(f"the label {name!r} is no tensor", cure="pass torch.as_tensor(label)")


@checked(filename=PATH)
def load_graphs(filename: str | Path, idx_list: Sequence[int] | None = None) -> tuple[list[Graph], dict[str, Tensor]]:
    """The graphs and labels of a file of ``save_graphs``, or of DGL's, on the CPU, wherever they were.

    The file cannot run code, and every id, number of rows and checksum in it is compared before a graph is made.

    Args:
        filename: the file.
        idx_list: the numbers of the graphs to read, from 0 up; None: all. Labels are always read whole.

    Returns:
        A list of graphs, and a dict of tensors by name.

    Raises:
        DataError: the file is missing, damaged or of another kind, or its parts do not fit together.
        FunctionError: there is no such graph.

    Source: DGL 1.1, ``dgl.load_graphs``.

    Example:
        >>> import vgraph
        >>> vgraph.load_graphs("nothing.bin")
        Traceback (most recent call last):
        vgraph.errors.DataError: cannot read nothing.bin: No such file or directory
        ...
    """
    try:
        if is_dgl_file(filename):
            return read_dgl_file(filename, idx_list)
        num_bytes = Path(filename).stat().st_size
    except OSError as error:
        fact = f"cannot read {filename}: {error.strerror or error}"
        raise DataError(fact, cure="check the path") from error
    content = _read(filename)
    packed = content["graphs"]
    chosen = chosen_graphs(idx_list, len(packed))
    graphs = [_unpacked(filename, num_bytes, packed, i) for i in chosen]
    for g in graphs:
        _make_formats(g, content.get("formats", ()))
    return graphs, content["labels"]


def _make_formats(g: Graph, formats: Sequence[str]) -> None:
    for etype in g.canonical_etypes:
        for name in formats:
            if name != "coo":
                getattr(g.relation(etype)[0], name)  # kept from then on


@checked(filename=PATH)
def load_labels(filename: str | Path) -> dict[str, Tensor]:
    """The labels of a file of ``save_graphs``.

    Args:
        filename: the file.

    Returns:
        A dict of tensors by name, on the CPU.

    Raises:
        DataError: the file is missing, damaged or of another kind.

    Source: DGL 1.1, ``dgl.data.utils.load_labels``.

    Example:
        >>> import tempfile, torch, vgraph
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     vgraph.save_graphs(folder + "/graphs.bin", [], {"y": torch.tensor([1])})
        ...     vgraph.load_labels(folder + "/graphs.bin")
        {'y': tensor([1])}
    """
    return load_graphs(filename, [])[1]


def _read(filename: str | Path) -> dict[str, Any]:
    try:
        content = read_archive(filename)
    except DataError as error:
        raise _damaged(filename, error.fact) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise _damaged(filename, "it is of another kind")
    if content.get("version") != VERSION:
        fact = f"{filename} has version {content.get('version')} of the format"
        raise DataError(fact, cure="read it with the vgraph that wrote it")
    ready = content.get("formats", [])
    if not isinstance(ready, list) or any(not isinstance(name, str) or name not in FORMATS for name in ready):
        raise _damaged(filename, "it names other formats than those of adjacencies")
    if not isinstance(content.get("graphs"), list):
        raise _damaged(filename, "it has no list of graphs")
    try:
        checked_columns(content.get("labels"))
    except Misfit as error:
        raise _damaged(filename, f"of the labels, {error}") from error
    return content


def _damaged(filename: str | Path, why: str) -> DataError:
    fact = f"{filename} holds no graphs, or is damaged: {why}"
    return DataError(fact, cure="write it with save_graphs")


def _own(columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors without the rest of the storage that they are views of, and without gradients."""
    return {name: column.detach().clone() for name, column in columns.items()}


def _refuse_unbelievable(graphs: Sequence[Graph]) -> None:
    """GraphError: nodes without edges and features, more than are believed of a file of this size."""
    frames = [frame for g in graphs for frame in (*g.src_frames.values(), *g.dst_frames.values())]
    most = max((frame.num_rows for frame in frames), default=0)
    num_bytes = sum(8 * g.num_edges() for g in graphs)
    num_bytes += sum(c.nbytes for frame in frames for c in frame.values() if c.layout == torch.strided)
    if most > most_vertices(num_bytes):
        fact = f"{most} nodes with {num_bytes} bytes of edges and features would not be read again"
        raise GraphError(fact, cure="give them a feature")


def _packed(g: Graph) -> dict[str, object]:
    def frames(found: Mapping[str, Frame] | Mapping[int, Frame]) -> list[object]:
        return [[key, frame.num_rows, _own(frame)] for key, frame in found.items()]

    topologies = [(key, g.relation(key)[0]) for key in g.canonical_etypes]
    return {
        "is_block": g.is_block,
        "edges": [[list(key), t.src.clone(), t.dst.clone(), t.num_src, t.num_dst] for key, t in topologies],
        "src": frames(g.src_frames),
        "dst": frames(g.dst_frames) if g.is_block else [],
        "edata": frames({i: g.edge_frames[key] for i, key in enumerate(g.canonical_etypes)}),
        "gdata": _own(g.gdata),
        "sizes": None if g.sizes is None else {name: list(sizes) for name, sizes in g.sizes.items()},
    }


def _unpacked(filename: str | Path, num_bytes: int, graphs: Sequence[Mapping[str, Any]], index: int) -> Graph:
    try:
        return _stored(graphs[index]).build(num_bytes)
    except (Misfit, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(filename, f"of graph {index}, {error}") from error


def _stored(packed: Mapping[str, Any]) -> StoredGraph:
    columns = {place: (count, columns) for place, count, columns in packed["edata"]}
    edges = [(*edge, columns.pop(place)[1]) for place, edge in enumerate(packed["edges"])]
    sides = [{name: (count, columns) for name, count, columns in packed[side]} for side in ("src", "dst")]
    if columns or any(len(found) != len(packed[side]) for found, side in zip(sides, ("src", "dst"), strict=True)):
        raise Misfit("a type has features twice, or features have no type")
    return StoredGraph(edges, sides[0], sides[1] if packed["is_block"] else None, packed["gdata"], packed["sizes"])
