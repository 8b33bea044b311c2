"""Files of graphs that DGL wrote, read without DGL: its second format, since 0.5, and the first.

Takes: a path. Gives: Graphs and labels. Runs once per file.
The second layout was established from files that DGL 1.1.3 wrote: 4,096 bytes of header, labels, then the graphs. In
the first, where each graph begins, how many nodes and edges it has, and labels lie ahead of the graphs.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vgraph.api.build.stored_graph import Misfit, StoredGraph, checked_ids, chosen_graphs, refuse
from vgraph.api.graph import Graph
from vgraph.errors import DataError

FILE, TENSORS = 0xDD2E4FF046B4A13F, 0xDD5A9FBE3FA2443F
ARRAY, GRAPH, TYPED, META, UNIT = (
    0xDD5E40F096B4A13F, 0xDD589FBE35224ABF, 0xDD3C5FFE20046ABF, 0xDD6CD31205DFF127, 0xDD2E60F0F6B4A127,
)  # fmt: skip
COO, CSR = 0xDD61FFD305DFF127, 0xDD6CD31205DFF127
COO_FORMAT, CSR_FORMAT, CSC_FORMAT = 1, 2, 4
HEADER_BYTES, MOST_DIMS = 4096, 32
DTYPES = {
    (0, 8): np.int8, (0, 16): np.int16, (0, 32): np.int32, (0, 64): np.int64,
    (1, 1): np.bool_, (1, 8): np.uint8, (2, 16): np.float16, (2, 32): np.float32, (2, 64): np.float64,
}  # fmt: skip


def is_dgl_file(path: str | Path) -> bool:
    """Whether a file begins as those of DGL do; OSError: it cannot be read."""
    with Path(path).open("rb") as file:
        return file.read(8) == struct.pack("<Q", FILE)


def read_dgl_file(path: str | Path, idx_list: Sequence[int] | None) -> tuple[list[Graph], dict[str, Tensor]]:
    """Graphs and labels; DataError: the file is truncated, damaged, or of a format that is not known."""
    reader = _Reader(path)
    try:
        version, kind, count = (reader.number() for _ in range(3))
        reader.at = HEADER_BYTES
        if (version, kind) == (1, 1):
            return reader.first_format(idx_list)
        if (version, kind) != (2, 2):
            refuse(f"is of DGL's format {version}.{kind}")
        start = reader.number()
        labels = reader.named_arrays()
        reader.at = start
        if count > len(reader.data):
            refuse(f"says that it holds {count} graphs")
        chosen = chosen_graphs(idx_list, count)
        # graphs lie one after the other, with no index that says where
        graphs = [reader.graph() for _ in range(max(chosen, default=-1) + 1)]
    except (Misfit, UnicodeDecodeError) as error:
        cure = "load it with DGL and write arrays that others can read"
        raise DataError(f"{path} {error} (byte {reader.at})", cure=cure) from error
    return [graphs[i] for i in chosen], labels


def read_dgl_tensors(path: str | Path) -> dict[str, Tensor]:
    """Tensors by name as ``dgl.data.utils.save_tensors`` writes them; DataError: the file is missing or damaged."""
    try:
        reader = _Reader(path, at=0)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}", cure="check the path") from error
    try:
        reader.expect(TENSORS)
        reader.number()  # as many as the next number says
        return reader.named_arrays()
    except (Misfit, UnicodeDecodeError) as error:
        fact, cure = f"{path} {error} (byte {reader.at})", "write it with dgl.data.utils.save_tensors"
        raise DataError(fact, cure=cure) from error


class _Reader:
    def __init__(self, path: str | Path, at: int = 8) -> None:
        self.data, self.at = Path(path).read_bytes(), at

    def bytes(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            refuse("is truncated")
        self.at += size
        return self.data[self.at - size : self.at]

    def take(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack(layout, self.bytes(struct.calcsize(layout)))

    def number(self) -> int:
        return self.take("<Q")[0]

    def numbers(self) -> tuple[int, ...]:
        """As many as the first of them says."""
        count = self.number()
        return self.take(f"<{count}Q") if count <= len(self.data) else refuse("is truncated")

    def expect(self, *magics: int) -> None:
        for magic in magics:
            if self.number() != magic:
                refuse("is not laid out as expected")

    def text(self) -> str:
        return self.bytes(self.number()).decode()

    def array(self) -> Tensor:
        self.expect(ARRAY)
        self.take("<Qii")  # reserved; the device it was on
        ndim, code, bits, lanes = self.take("<iBBH")
        if not 0 <= ndim <= MOST_DIMS:
            refuse(f"has an array of {ndim} dims")
        shape = self.take(f"<{ndim}q")
        (size,) = self.take("<q")
        dtype = DTYPES.get((code, bits))
        if dtype is None or lanes != 1:
            refuse(f"has an array of kind {code}, {bits} bits")
        if min(shape, default=0) < 0 or math.prod(shape) * np.dtype(dtype).itemsize != size:
            refuse(f"has an array of shape {shape} in {size} bytes")
        raw = np.frombuffer(self.bytes(size), np.uint8)
        array = raw != 0 if dtype is np.bool_ else raw.view(dtype)
        return torch.from_numpy(array.reshape(shape).copy())

    def named_arrays(self) -> dict[str, Tensor]:
        return {self.text(): self.array() for _ in range(self.number())}

    def compressed(self) -> tuple[int, int, Tensor, Tensor, Tensor]:
        """Rows, columns, pointers, indices and edge ids, which fit one another."""
        self.expect(CSR)
        num_cols, num_rows = self.number(), self.number()  # in this order
        ptr, other, ids = self.array(), self.array(), self.array()
        self.take("<?")  # whether indices are sorted
        _check_pointers(ptr, other, num_rows, num_cols)
        return num_rows, num_cols, ptr, other, _numbering(ids, other.numel())

    def topology(self) -> tuple[Tensor, Tensor, int, int]:
        """Sources, destinations, and how many nodes there are of either."""
        self.expect(UNIT)
        layout, _, _, _ = self.take("<iiii")
        self.expect(TYPED)
        self.compressed()  # the two types that this one joins
        if layout == COO_FORMAT:
            self.expect(COO)
            num_dst, num_src = self.number(), self.number()  # columns, then rows
            src, dst, ids = self.array(), self.array(), self.array()
            ids = _numbering(ids, src.numel())
            self.take("<??")
        else:
            rows, cols, ptr, other, ids = self.compressed()
            own = _rows_of(ptr, other)
            src, dst = (own, other) if layout == CSR_FORMAT else (other, own)
            num_src, num_dst = (rows, cols) if layout == CSR_FORMAT else (cols, rows)
        if ids.numel() and src.shape == dst.shape == ids.shape:
            order = torch.argsort(ids)
            src, dst = src[order], dst[order]
        return src, dst, num_src, num_dst

    def first_format(self, idx_list: Sequence[int] | None) -> tuple[list[Graph], dict[str, Tensor]]:
        """Graphs of one type of nodes, each found by where it begins."""
        count = self.number()
        starts, nodes, edges = self.numbers(), self.numbers(), self.numbers()
        labels = self.named_arrays()
        if not count == len(starts) == len(nodes) == len(edges):
            refuse(f"says that it holds {count} graphs, and where {len(starts)} begin")
        return [self.graph_by_destination(starts[i]) for i in chosen_graphs(idx_list, count)], labels

    def graph_by_destination(self, start: int) -> Graph:
        self.at = start
        ptr, src, ids = self.array(), self.array(), self.array()
        count = ptr.numel() - 1
        _check_pointers(ptr, src, count, count)
        dst, ids = _rows_of(ptr, src), _numbering(ids, src.numel())
        order = torch.argsort(ids) if ids.numel() else torch.arange(src.numel(), device="cpu")
        nodes, edges = self.named_arrays(), self.named_arrays()
        part = (("_N", "_E", "_N"), src[order], dst[order], count, count, edges)
        return StoredGraph([part], {"_N": (count, nodes)}).build(len(self.data))

    def graph(self) -> Graph:
        self.expect(GRAPH, TYPED)
        _, _, ptr, ends, numbers = self.compressed()
        starts = torch.repeat_interleave(
            torch.arange(ptr.shape[0] - 1, device="cpu"), (ptr[1:] - ptr[:-1]).long()
        ).tolist()
        order = numbers.tolist() if numbers.numel() else range(len(starts))
        joined = dict(zip(order, zip(starts, ends.tolist(), strict=True), strict=True))
        edges = [self.topology() for _ in range(self.number())]
        counts = [self.number() for _ in range(self.number())]
        ndata = [self.named_arrays() for _ in range(self.number())]
        edata = [self.named_arrays() for _ in range(self.number())]
        ntypes, etypes = ([self.text() for _ in range(self.number())] for _ in range(2))
        if len({len(ntypes), len(set(ntypes)), len(counts), len(ndata), ptr.shape[0] - 1}) > 1:
            refuse("names, counts and features of its node types are of different numbers")
        if len({len(etypes), len(edges), len(edata), len(joined)}) > 1:
            refuse("names, edges and features of its edge types are of different numbers")
        keys = [(ntypes[joined[i][0]], name, ntypes[joined[i][1]]) for i, name in enumerate(etypes)]
        nodes = {name: (count, columns) for name, count, columns in zip(ntypes, counts, ndata, strict=True)}
        parts = [(key, *edge, columns) for key, edge, columns in zip(keys, edges, edata, strict=True)]
        return StoredGraph(parts, nodes).build(len(self.data))


def _check_pointers(ptr: Tensor, other: Tensor, num_rows: int, num_cols: int) -> None:
    """What is compressed by rows: where each begins, ascending, and columns that are there."""
    checked_ids(ptr, other.numel() + 1, "pointers")
    checked_ids(other, num_cols, "indices")
    ends = (int(ptr[0]), int(ptr[-1])) if ptr.numel() else None
    if ptr.numel() != num_rows + 1 or ends != (0, other.numel()) or bool((ptr[1:] < ptr[:-1]).any()):
        refuse(f"has pointers that do not ascend from 0 to {other.numel()}")


def _rows_of(ptr: Tensor, other: Tensor) -> Tensor:
    """The row of every entry."""
    return torch.repeat_interleave(
        torch.arange(ptr.numel() - 1, dtype=other.dtype, device="cpu"), (ptr[1:] - ptr[:-1]).long()
    )


def _numbering(ids: Tensor, count: int) -> Tensor:
    """Edge ids, each once, or none at all."""
    if ids.numel():
        checked_ids(ids, count, "edge ids")
        if ids.numel() != count or torch.unique(ids).numel() != count:
            refuse(f"has edge ids that do not number {count} edges")
    return ids
