"""Chunked: the format that DGL's dispatcher and GraphStorm read: a metadata.json, and files of edges and features.

Takes: metadata.json. Gives: a ``RawGraph`` over mapped files. Runs once per graph.
Source: DGL 1.1's user guide, section 7.1.1 (chunked graph format).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from vgraph.distributed.partition.raw_graph import EdgeSegment, RawEdges, RawGraph
from vgraph.distributed.partition.whole_graph import EDGES_AT_ONCE, new_array
from vgraph.errors import DataError
from vgraph.files import check_vertices, damage_told, map_array
from vgraph.graphs.data import EdgeType

CURE = "describe the graph as DGL's chunked format does"
TEXT_AT_ONCE = 1 << 24


def read_chunked(path: Path, content: Mapping[str, Any], folder: Path) -> RawGraph:
    """Numbers of nodes by type, pairs of ends by type (CSV or .npy), features (.npy)."""
    with damage_told(path, CURE, fact="it describes no chunks"):
        reader = _Reader(path, folder)
        counts = _counts(content, "node")
        edges = {_edge_type(name): reader.edges(found) for name, found in content["edges"].items()}
        if not counts or any(end not in counts for src, _, dst in edges for end in (src, dst)):
            raise ValueError("its edge types join node types that it does not name")
        nodes = {ntype: reader.features(data) for ntype, data in content.get("node_data", {}).items()}
        others = {_edge_type(name): reader.features(data) for name, data in content.get("edge_data", {}).items()}
        if not nodes.keys() <= counts.keys() or not others.keys() <= edges.keys():
            raise ValueError("it gives features to types that it does not name")
        for ntype, count in counts.items():
            check_vertices(count, reader.num_bytes, str(path), f"count the nodes of {ntype!r}")
        return RawGraph(counts, edges, nodes, others)


def _counts(content: Mapping[str, Any], kind: str) -> dict[str, int]:
    if f"num_{kind}s_per_type" in content:
        counts = content[f"num_{kind}s_per_type"]
    else:
        counts = [sum(chunks) for chunks in content[f"num_{kind}s_per_chunk"]]
    if not all(type(count) is int and 0 <= count < 2**62 for count in counts):
        raise ValueError(f"numbers of {kind}s are {str(counts)[:80]}")
    return dict(zip(content[f"{kind}_type"], counts, strict=True))


def _edge_type(name: str) -> EdgeType:
    parts = name.split(":")
    if len(parts) != 3:
        raise ValueError(f"{name[:80]!r} is no edge type SOURCE:NAME:DESTINATION")
    return parts[0], parts[1], parts[2]


class _Reader:
    """Files by paths from metadata.json; ``num_bytes``: of those that were opened."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.folder, self.num_bytes, self.num_made = path, folder, 0, 0

    def edges(self, found: Mapping[str, Any]) -> RawEdges:
        kind, files = found["format"]["name"], [self._file(name) for name in found["data"]]
        if kind == "csv":
            delimiter = found["format"].get("delimiter", " ")
            pairs = [_parse_pairs(file, delimiter, self._made()) for file in files]
        elif kind == "numpy":
            pairs = [map_array(file) for file in files]
        else:
            raise _unknown(kind, self.path)
        segments: list[EdgeSegment] = []
        for pair, file in zip(pairs, files, strict=True):
            if pair.ndim != 2 or pair.shape[1] != 2:
                raise DataError(f"edges have the shape {tuple(pair.shape)}", line=str(file), cure="give (edges, 2)")
            segments.append(EdgeSegment(pair[:, 0], pair[:, 1], file))
        return RawEdges(segments)

    def features(self, data: Mapping[str, Any]) -> dict[str, Tensor]:
        return {name: self._feature(found) for name, found in data.items()}

    def _feature(self, found: Mapping[str, Any]) -> Tensor:
        if found["format"]["name"] != "numpy":
            raise _unknown(found["format"]["name"], self.path)
        chunks = [map_array(self._file(name)) for name in found["data"]]
        return chunks[0] if len(chunks) == 1 else joined(chunks, self._made)

    def _file(self, name: str) -> Path:
        file = self.path.parent / name
        if not file.is_file():
            raise DataError(f"there is no file {name[:200]!r}", line=str(self.path), cure="check the paths in it")
        self.num_bytes += file.stat().st_size
        return file

    def _made(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.num_made += 1
        return self.folder / f"made-{self.num_made}"


def _unknown(kind: object, path: Path) -> DataError:
    fact = f"it names the format {str(kind)[:40]!r}"
    return DataError(fact, line=str(path), cure="store .npy files (or edges as CSV)")


def joined(chunks: list[Tensor], made: Callable[[], Path]) -> Tensor:
    """Rows of several arrays one after the other, in a file."""
    first = chunks[0]
    for chunk in chunks:
        if not chunk.ndim or chunk.shape[1:] != first.shape[1:] or chunk.dtype != first.dtype:
            raise ValueError(f"chunks of a feature are {tuple(first.shape)} {first.dtype}, and others")
    width = first[:1].numel() if len(first) else int(np.prod(first.shape[1:]))
    rows = sum(len(chunk) for chunk in chunks)
    plain = first.numpy().dtype
    whole = torch.from_numpy(new_array(made(), plain, rows * width)).view(rows, *first.shape[1:])
    at = 0
    for chunk in chunks:
        whole[at : at + len(chunk)] = chunk
        at += len(chunk)
    return whole


def _parse_pairs(file: Path, delimiter: str, made: Path) -> Tensor:
    """Lines of two whole numbers as an array (edges, 2) in a file."""
    count = 0
    with file.open("rb") as text, made.open("wb") as out, damage_told(file, "write a pair of node ids a line"):
        rest = b""
        while block := text.read(TEXT_AT_ONCE):
            lines, newline, rest = (rest + block).rpartition(b"\n")
            if len(rest) > TEXT_AT_ONCE:
                raise ValueError("a line has no end")
            count += _write_pairs(lines + newline, delimiter, out)
        count += _write_pairs(rest, delimiter, out)
    return torch.from_numpy(np.memmap(made, np.int64, "r+", shape=(count, 2))) if count else torch.empty(0, 2).long()


def _write_pairs(lines: bytes, delimiter: str, out: IO[bytes]) -> int:
    rows = [line for line in lines.decode("ascii").splitlines() if line.strip()]
    words = [line.split(delimiter if delimiter.strip() else None) for line in rows]
    if any(len(pair) != 2 for pair in words):
        raise ValueError("a line does not hold two ids")
    pairs = np.array([[int(word) for word in pair] for pair in words], np.int64).reshape(-1, 2)
    for first in range(0, len(pairs), EDGES_AT_ONCE):
        out.write(pairs[first : first + EDGES_AT_ONCE].tobytes())
    return len(pairs)
