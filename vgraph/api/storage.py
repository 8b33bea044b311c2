"""Graphs on disk: tensors and names, which running no code can read.

Takes: graphs and labels. Gives: one file, and back; tempo: once a file.
The format is torch's archive of plain tensors, lists and dicts, read with ``weights_only``.
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vgraph.api.frame import Frame
from vgraph.api.graph import Graph
from vgraph.api.relations import EdgeType
from vgraph.api.stored_dgl import is_dgl_file, read_dgl_file
from vgraph.api.tracer import user_line
from vgraph.errors import DataError, FunctionError
from vgraph.ir.topology import Topology

FORMAT, VERSION = "vgraph graphs", 1


def save_graphs(
    filename: str | Path,
    g_list: Graph | Sequence[Graph],
    labels: Mapping[str, Tensor] | None = None,
    formats: Any = None,
) -> None:
    """Writes graphs with all their features, and tensors by name, to one file.

    ``formats`` is no matter: edges are stored as pairs of ends.

    Raises:
        FunctionError: an item is no graph, or a label no tensor.
        DataError: the file cannot be written.

    Source: DGL 1.1, ``dgl.save_graphs``.

    >>> import tempfile, vgraph
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     vgraph.save_graphs(folder + "/graphs.bin", [vgraph.graph(([0], [1]))])
    ...     graphs, labels = vgraph.load_graphs(folder + "/graphs.bin")
    >>> graphs, labels
    ([Graph(num_nodes=2, num_edges=1, ndata={}, edata={})], {})
    """
    graphs = [g_list] if isinstance(g_list, Graph) else list(g_list)
    for index, g in enumerate(graphs):
        if not isinstance(g, Graph):  # pyright: ignore[reportUnnecessaryIsInstance]
            fact = f"item {index} is a {type(g).__name__}, not a graph"
            raise FunctionError(fact, cure="pass a list of graphs", line=user_line())
    found = dict(labels or {})
    wrong = [name for name, label in found.items() if not isinstance(label, Tensor)]  # pyright: ignore[reportUnnecessaryIsInstance]
    if wrong:
        raise FunctionError(
            f"the label {wrong[0]!r} is no tensor", cure="pass torch.as_tensor(label)", line=user_line()
        )
    content = {"format": FORMAT, "version": VERSION, "graphs": [_packed(g) for g in graphs], "labels": _own(found)}
    try:
        torch.save(content, filename)
    except (OSError, RuntimeError) as error:
        raise DataError(f"cannot write {filename}: {error}", cure="check the path", line=user_line()) from error


def load_graphs(filename: str | Path, idx_list: Sequence[int] | None = None) -> tuple[list[Graph], dict[str, Tensor]]:
    """The graphs and labels of a file of ``save_graphs``, or of DGL's.

    ``idx_list`` names the graphs to read; labels are always read whole. The file cannot run code.

    Raises:
        DataError: the file is missing, damaged or of another kind.
        FunctionError: there is no such graph.

    Source: DGL 1.1, ``dgl.load_graphs``.

    >>> import vgraph
    >>> vgraph.load_graphs("nothing.bin")
    Traceback (most recent call last):
    vgraph.errors.DataError: cannot read nothing.bin: No such file or directory
    ...
    """
    if is_dgl_file(filename):
        return read_dgl_file(filename, idx_list)
    content = _read(filename)
    packed = content["graphs"]
    chosen = range(len(packed)) if idx_list is None else idx_list
    wrong = [i for i in chosen if not 0 <= i < len(packed)]
    if wrong:
        fact = f"there is no graph {wrong[0]} in a file of {len(packed)}"
        raise FunctionError(fact, cure=f"pass numbers from 0 to {len(packed) - 1}", line=user_line())
    return [_unpacked(packed[i]) for i in chosen], content["labels"]


def load_labels(filename: str | Path) -> dict[str, Tensor]:
    """The labels of a file of ``save_graphs``.

    Raises:
        DataError: the file is missing, damaged or of another kind.

    Source: DGL 1.1, ``dgl.data.utils.load_labels``.

    >>> import tempfile, torch, vgraph
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     vgraph.save_graphs(folder + "/graphs.bin", [], {"y": torch.tensor([1])})
    ...     vgraph.load_labels(folder + "/graphs.bin")
    {'y': tensor([1])}
    """
    return load_graphs(filename, [])[1]


def _read(filename: str | Path) -> dict[str, Any]:
    try:
        if Path(filename).stat().st_size and not zipfile.is_zipfile(filename):
            raise _damaged(filename)
        content = torch.load(filename, weights_only=True)
    except OSError as error:
        fact = f"cannot read {filename}: {error.strerror or error}"
        raise DataError(fact, cure="check the path", line=user_line()) from error
    except (RuntimeError, pickle.UnpicklingError, EOFError, KeyError) as error:
        raise _damaged(filename) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:  # pyright: ignore[reportUnknownMemberType]
        raise _damaged(filename)
    if content["version"] != VERSION:
        fact = f"{filename} has version {content['version']} of the format"
        raise DataError(fact, cure="read it with the vgraph that wrote it", line=user_line())
    return content  # pyright: ignore[reportUnknownVariableType]


def _damaged(filename: str | Path) -> DataError:
    return DataError(f"{filename} holds no graphs, or is damaged", cure="write it with save_graphs", line=user_line())


def _own(columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors without the rest of the storage that they are views of, and without gradients."""
    return {name: column.detach().clone() for name, column in columns.items()}


def _packed(g: Graph) -> dict[str, Any]:
    def frames(found: Mapping[Any, Frame]) -> list[Any]:
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


def _unpacked(packed: Mapping[str, Any]) -> Graph:
    sizes = None if packed["sizes"] is None else {name: tuple(found) for name, found in packed["sizes"].items()}
    topologies: dict[EdgeType, Topology] = {}
    for key, src, dst, num_src, num_dst in packed["edges"]:
        topologies[tuple(key)] = Topology(src, dst, num_src, num_dst, None if sizes is None else sizes[key[2]])
    device = next(iter(topologies.values())).src.device
    sides: list[dict[str, Frame]] = []
    for found in (packed["src"], packed["dst"]):
        typed = len(found) > 1
        sides.append({key: Frame(n, device, "node", columns, key if typed else "") for key, n, columns in found})
    keys = list(topologies)
    edges = {
        keys[i]: Frame(count, device, "edge", columns, keys[i][1] if len(keys) > 1 else "")
        for i, count, columns in packed["edata"]
    }
    num_graphs = 1 if sizes is None else len(next(iter(sizes.values())))
    gdata = Frame(num_graphs, device, "graph", packed["gdata"])
    return Graph.of_types(topologies, sides[0], sides[1] if packed["is_block"] else None, edges, gdata, sizes)
