"""Files of graphs that DGL wrote (its second format, since 0.5), read without DGL.

Takes: a path. Gives: Graphs and labels; tempo: once a file.
The layout was established from files that DGL 1.1.3 wrote: 4,096 bytes of header, labels, then the graphs.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vgraph.api.frame import Frame
from vgraph.api.graph import Graph
from vgraph.api.relations import EdgeType
from vgraph.api.tracer import user_line
from vgraph.errors import DataError, FunctionError
from vgraph.ir.topology import Topology

FILE = 0xDD2E4FF046B4A13F
ARRAY, GRAPH, TYPED, META, UNIT = (
    0xDD5E40F096B4A13F, 0xDD589FBE35224ABF, 0xDD3C5FFE20046ABF, 0xDD6CD31205DFF127, 0xDD2E60F0F6B4A127,
)  # fmt: skip
COO, CSR = 0xDD61FFD305DFF127, 0xDD6CD31205DFF127
COO_FORMAT, CSR_FORMAT, CSC_FORMAT = 1, 2, 4
HEADER_BYTES = 4096
DTYPES = {
    (0, 8): np.int8, (0, 16): np.int16, (0, 32): np.int32, (0, 64): np.int64,
    (1, 1): np.bool_, (1, 8): np.uint8, (2, 16): np.float16, (2, 32): np.float32, (2, 64): np.float64,
}  # fmt: skip


def is_dgl_file(path: str | Path) -> bool:
    """Whether a file begins as those of DGL do."""
    try:
        with Path(path).open("rb") as file:
            return file.read(8) == struct.pack("<Q", FILE)
    except OSError:
        return False


def read_dgl_file(path: str | Path, idx_list: Sequence[int] | None) -> tuple[list[Graph], dict[str, Tensor]]:
    """Graphs and labels; DataError: the file is truncated, or of a format that is not known."""
    reader = _Reader(path)
    version, kind, count = (reader.number() for _ in range(3))
    if (version, kind) != (2, 2):
        raise reader.wrong(f"is of DGL's format {version}.{kind}")
    reader.at = HEADER_BYTES
    start = reader.number()
    labels = reader.named_arrays()
    reader.at = start
    chosen = range(count) if idx_list is None else idx_list
    if any(not 0 <= i < count for i in chosen):
        fact = f"there is no graph {next(i for i in chosen if not 0 <= i < count)} in a file of {count}"
        raise FunctionError(fact, cure=f"pass numbers from 0 to {count - 1}", line=user_line())
    # graphs lie one after the other, with no index that says where
    graphs = [reader.graph() for _ in range(max(chosen, default=-1) + 1)]
    return [graphs[i] for i in chosen], labels


class _Reader:
    def __init__(self, path: str | Path) -> None:
        self.path, self.at = path, 8
        self.data = Path(path).read_bytes()

    def wrong(self, what: str) -> DataError:
        cure = "load it with DGL and write arrays that others can read"
        return DataError(f"{self.path} {what} (byte {self.at})", cure=cure, line=user_line())

    def take(self, layout: str) -> tuple[Any, ...]:
        size = struct.calcsize(layout)
        if self.at + size > len(self.data):
            raise self.wrong("is truncated")
        found = struct.unpack_from(layout, self.data, self.at)
        self.at += size
        return found

    def number(self) -> int:
        return self.take("<Q")[0]

    def expect(self, *magics: int) -> None:
        for magic in magics:
            if self.number() != magic:
                raise self.wrong("is not laid out as expected")

    def text(self) -> str:
        size = self.number()
        return self.take(f"<{size}s")[0].decode()

    def array(self) -> Tensor:
        self.expect(ARRAY)
        self.take("<Qii")  # reserved; the device it was on
        ndim, code, bits, lanes = self.take("<iBBH")
        shape = self.take(f"<{ndim}q")
        size = self.take("<q")[0]
        dtype = DTYPES.get((code, bits))
        if dtype is None or lanes != 1:
            raise self.wrong(f"has an array of kind {code}, {bits} bits")
        raw = self.take(f"<{size}s")[0]
        return torch.from_numpy(np.frombuffer(raw, dtype).reshape(shape).copy())

    def named_arrays(self) -> dict[str, Tensor]:
        return {self.text(): self.array() for _ in range(self.number())}

    def compressed(self) -> tuple[int, int, Tensor, Tensor, Tensor]:
        """Rows, columns, pointers, indices and edge ids."""
        self.expect(CSR)
        num_rows, num_cols = self.number(), self.number()
        found = (num_rows, num_cols, self.array(), self.array(), self.array())
        self.take("<?")  # whether indices are sorted
        return found

    def topology(self) -> Topology:
        self.expect(UNIT)
        layout, _, _, _ = self.take("<iiii")
        self.expect(TYPED)
        self.compressed()  # the two types that this one joins
        if layout == COO_FORMAT:
            self.expect(COO)
            num_src, num_dst = self.number(), self.number()
            src, dst, ids = self.array(), self.array(), self.array()
            self.take("<??")
        else:
            rows, cols, ptr, other, ids = self.compressed()
            own = torch.repeat_interleave(torch.arange(rows, dtype=other.dtype), (ptr[1:] - ptr[:-1]).long())
            src, dst = (own, other) if layout == CSR_FORMAT else (other, own)
            num_src, num_dst = (rows, cols) if layout == CSR_FORMAT else (cols, rows)
        if ids.numel():
            order = torch.argsort(ids)
            src, dst = src[order], dst[order]
        return Topology(src, dst, num_src, num_dst)

    def graph(self) -> Graph:
        self.expect(GRAPH, TYPED)
        _, _, ptr, ends, numbers = self.compressed()
        starts = torch.repeat_interleave(torch.arange(ptr.shape[0] - 1), (ptr[1:] - ptr[:-1]).long()).tolist()
        joined = {int(n): (start, int(end)) for n, start, end in zip(numbers, starts, ends, strict=True)}
        topologies = [self.topology() for _ in range(self.number())]
        counts = [self.number() for _ in range(self.number())]
        ndata = [self.named_arrays() for _ in range(self.number())]
        edata = [self.named_arrays() for _ in range(self.number())]
        ntypes, etypes = ([self.text() for _ in range(self.number())] for _ in range(2))
        keys: list[EdgeType] = [(ntypes[joined[i][0]], name, ntypes[joined[i][1]]) for i, name in enumerate(etypes)]
        cpu, is_typed = torch.device("cpu"), len(ntypes) > 1 or len(etypes) > 1
        nodes = {
            name: Frame(n, cpu, "node", columns, name if is_typed else "")
            for name, n, columns in zip(ntypes, counts, ndata, strict=True)
        }
        edges = {
            key: Frame(t.num_edges, cpu, "edge", columns, key[1] if is_typed else "")
            for key, t, columns in zip(keys, topologies, edata, strict=True)
        }
        return Graph.of_types(dict(zip(keys, topologies, strict=True)), nodes, None, edges)
