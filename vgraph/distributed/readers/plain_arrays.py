"""Plain arrays: OGB's data.npz, SciPy's sparse matrices, and .npy files side by side.

Takes: paths. Gives: a ``RawGraph`` over mapped files. Runs once per graph.
Source: Hu et al. 2020 (OGB) and ``scipy.sparse.save_npz`` for names of arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vgraph.distributed.partition.raw_graph import EdgeSegment, RawEdges, RawGraph
from vgraph.distributed.partition.whole_graph import EDGES_AT_ONCE, blocks_of_rows, new_array
from vgraph.errors import DataError
from vgraph.files import check_vertices, extract_arrays, map_array, read_array, read_lines
from vgraph.graphs.data import NODE, UNTYPED

NAMES = 'give "edge_index" (2, edges) or "src" and "dst" (edges,), and features as "node_NAME" and "edge_NAME"'
SPLITS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}


def read_npz(path: Path, folder: Path) -> RawGraph:
    """OGB's data.npz (with node-label.npz and split/ beside it), or a sparse matrix of SciPy's."""
    files = extract_arrays(path, folder / "data")
    layout = bytes(read_array(files.pop("format")).astype("S")).rstrip(b"\0") if "format" in files else b""
    arrays = {name: map_array(file) for name, file in files.items()}
    if "shape" in arrays:
        return _sparse_matrix(path, arrays, layout == b"csc", folder)
    labels = path.with_name("node-label.npz")
    if labels != path and labels.is_file():
        arrays |= {name: map_array(file) for name, file in extract_arrays(labels, folder / "labels").items()}
    graph = _of_arrays(path, arrays, path.stat().st_size)
    return _with_masks(graph, path.parent.parent / "split")


def read_array_folder(path: Path, folder: Path) -> RawGraph:
    """A folder of .npy files, or that of one of OGB's graphs."""
    for packed in (path / "data.npz", path / "raw" / "data.npz"):
        if packed.is_file():
            return read_npz(packed, folder)
    files = sorted(path.glob("*.npy"))
    if not files:
        raise DataError("it holds no arrays", line=str(path), cure=NAMES)
    arrays = {file.stem: map_array(file) for file in files}
    return _of_arrays(path, arrays, sum(file.stat().st_size for file in files))


def read_array_file(path: Path) -> RawGraph:
    """A .npy of (2, edges) or (edges, 2)."""
    found = map_array(path)
    if found.ndim == 2 and found.shape[0] != 2 and found.shape[1] == 2:
        found = found.t()
    return _of_arrays(path, {"edge_index": found}, path.stat().st_size)


def _of_arrays(path: Path, arrays: Mapping[str, Tensor], num_bytes: int) -> RawGraph:
    src, dst = _ends(path, arrays)
    edges = RawEdges([EdgeSegment(src, dst, path)])
    nodes = {name[5:]: found for name, found in arrays.items() if name.startswith("node_")}
    others = {name[5:]: found for name, found in arrays.items() if name.startswith("edge_") and name != "edge_index"}
    data = {UNTYPED: {name: found for name, found in others.items() if found.ndim and len(found) == len(src)}}
    count = _num_nodes(path, arrays, nodes, edges)
    check_vertices(count, num_bytes, str(path), "number nodes from 0, without gaps")
    return RawGraph({NODE: count}, {UNTYPED: edges}, {NODE: nodes}, data)


def _ends(path: Path, arrays: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    if "edge_index" in arrays:
        pair = arrays["edge_index"]
        if pair.ndim != 2 or pair.shape[0] != 2:
            raise DataError(f"edge_index has the shape {tuple(pair.shape)}", line=str(path), cure=NAMES)
        return pair[0], pair[1]
    if "src" not in arrays or "dst" not in arrays:
        raise DataError(f"there are no edges, but {sorted(arrays)[:8]}", line=str(path), cure=NAMES)
    src, dst = arrays["src"], arrays["dst"]
    if src.ndim != 1 or src.shape != dst.shape:
        fact = f"src has the shape {tuple(src.shape)}, dst {tuple(dst.shape)}"
        raise DataError(fact, line=str(path), cure=NAMES)
    return src, dst


def _num_nodes(path: Path, arrays: Mapping[str, Tensor], nodes: Mapping[str, Tensor], edges: RawEdges) -> int:
    """What the file says; else rows of features; else one more than the largest end."""
    said = arrays.get("num_nodes_list", arrays.get("num_nodes"))
    if said is not None:
        if said.numel() != 1 or said.is_floating_point():
            fact = f"it holds {said.numel()} numbers of nodes"
            raise DataError(fact, line=str(path), cure="give one graph in a file")
        return int(said.reshape(()))
    rows = {found.shape[0] for found in nodes.values() if found.ndim}
    if rows:
        return max(rows)
    ends = [int(end.max()) for segment in edges.segments for end in (segment.src, segment.dst) if end.numel()]
    return 1 + max(ends, default=-1)


def _with_masks(graph: RawGraph, splits: Path) -> RawGraph:
    """With the nodes that OGB trains, validates and tests on, where there is one split."""
    folders = [one for one in sorted(splits.glob("*")) if one.is_dir()] if splits.is_dir() else []
    count, masks = graph.num_nodes[NODE], dict[str, Tensor]()
    for name, feature in SPLITS.items() if len(folders) == 1 else ():
        path = folders[0] / f"{name}.csv.gz"
        if path.is_file():
            masks[feature] = _mask(path, count)
    return RawGraph(graph.num_nodes, graph.edges, {NODE: {**graph.node_data[NODE], **masks}}, graph.edge_data)


def _mask(path: Path, count: int) -> Tensor:
    mask = torch.zeros(count, dtype=torch.bool)
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        if not line.strip().isascii() or not line.strip().isdigit() or int(line[:20]) >= count:
            raise DataError(f"{line[:40]!r} is no node", line=f"{path}:{number}", cure=f"name nodes below {count}")
        mask[int(line)] = True
    return mask


def _sparse_matrix(path: Path, arrays: Mapping[str, Tensor], is_csc: bool, folder: Path) -> RawGraph:
    """Rows are sources, columns destinations; values that are not all 1 are the feature "weight" of edges."""
    shape = arrays["shape"].reshape(-1).tolist()
    if len(shape) != 2 or shape[0] != shape[1]:
        raise DataError(f"a matrix of shape {shape} is no graph", line=str(path), cure="give a square matrix")
    check_vertices(shape[0], path.stat().st_size, str(path), "give a smaller matrix")
    if {"row", "col"} <= arrays.keys():
        src, dst = arrays["row"], arrays["col"]
    elif {"indptr", "indices"} <= arrays.keys():
        own, other = _expanded(path, arrays["indptr"], arrays["indices"], folder), arrays["indices"]
        src, dst = (other, own) if is_csc else (own, other)
    else:
        raise DataError(f"it holds {sorted(arrays)[:8]}", line=str(path), cure="store it as CSR, CSC or COO")
    if src.ndim != 1 or src.shape != dst.shape:
        raise DataError("rows and columns are of different numbers", line=str(path), cure="store it with save_npz")
    edges = RawEdges([EdgeSegment(src, dst, path)])
    values = arrays.get("data")
    is_weight = values is not None and values.shape == src.shape and not bool((values == 1).all())
    data = {UNTYPED: {"weight": values}} if values is not None and is_weight else {}
    return RawGraph({NODE: shape[0]}, {UNTYPED: edges}, {}, data)


def _expanded(path: Path, ptr: Tensor, indices: Tensor, folder: Path) -> Tensor:
    """The row of every entry, in a file."""
    ascends = ptr.ndim == 1 and len(ptr) and int(ptr[0]) == 0 and not bool((ptr[1:] < ptr[:-1]).any())
    if not ascends or int(ptr[-1]) != indices.shape[0]:
        fact = f"its pointers do not ascend from 0 to {indices.shape[0]}"
        raise DataError(fact, line=str(path), cure="store it with scipy.sparse.save_npz")
    folder.mkdir(parents=True, exist_ok=True)
    rows = new_array(folder / "rows", np.int64, indices.shape[0])
    for first, last in blocks_of_rows(ptr, EDGES_AT_ONCE):
        counts = torch.diff(ptr[first : last + 1]).long()
        rows[int(ptr[first]) : int(ptr[last])] = torch.arange(first, last).repeat_interleave(counts).numpy()
    return torch.from_numpy(rows)
