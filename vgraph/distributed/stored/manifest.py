"""Manifest: what ``graph.json`` says of a partitioned graph, every number compared with the others.

Takes: the text of graph.json, or what a partitioner found. Gives: a ``Manifest``, or a DataError. Runs once per graph.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import torch

from vgraph.distributed.stored.file_names import MANIFEST
from vgraph.errors import DataError, DTypeError
from vgraph.files import damage_told, read_bytes
from vgraph.graphs.data import EdgeType
from vgraph.graphs.frame import Scheme

FORMAT, VERSION = "vgraph partitions", 1
CURE = "partition the graph again, or copy the folder again"
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
        torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool,
    )
}  # fmt: skip


@dataclass(frozen=True)
class NodeType:
    """Nodes of one type: part p has the new ids from ``bounds[p]`` to ``bounds[p + 1] - 1``."""

    bounds: tuple[int, ...]
    features: Mapping[str, Scheme]


@dataclass(frozen=True)
class EdgeEnds:
    """Edges of one type: part p has those from ``bounds[p]`` on, in the order of their destinations.

    ``out_bounds``: the same of out-edges, in the order of their sources; () where they are not stored.
    """

    bounds: tuple[int, ...]
    cut: int  # edges whose source is in another part
    out_bounds: tuple[int, ...]
    features: Mapping[str, Scheme]


@dataclass(frozen=True)
class FileRecord:
    """The length of a file in bytes, and its SHA-256."""

    num_bytes: int
    digest: str


@dataclass(frozen=True)
class Manifest:
    """A partitioned graph without its arrays; ``files`` by path below the folder.

    ``balance``: what was balanced beside nodes. ``loads``: how much of "nodes", "edges", "train" (where nodes have a
    "train_mask") and of whatever was balanced every part has.
    """

    num_parts: int
    method: str
    seed: int
    balance: tuple[str, ...]
    halo_rows: int  # of all parts and types of nodes
    loads: Mapping[str, tuple[int, ...]]
    nodes: Mapping[str, NodeType]
    edges: Mapping[EdgeType, EdgeEnds]
    files: Mapping[str, FileRecord] = field(repr=False)

    @property
    def num_nodes(self) -> int:
        """Of all types."""
        return sum(found.bounds[-1] for found in self.nodes.values())

    @property
    def num_edges(self) -> int:
        """Of all types."""
        return sum(ends.bounds[-1] for ends in self.edges.values())

    @property
    def cut(self) -> int:
        """Edges whose source is in another part than their destination."""
        return sum(ends.cut for ends in self.edges.values())

    @property
    def checksum(self) -> str:
        """The SHA-256 of all that graph.json says."""
        return sha256(json.dumps(self._content(), separators=(",", ":")).encode()).hexdigest()

    def text(self) -> str:
        """What graph.json holds."""
        return json.dumps({**self._content(), "checksum": self.checksum}, separators=(",", ":")) + "\n"

    def _content(self) -> dict[str, object]:
        nodes = {t: {"bounds": n.bounds, "features": _schemes_out(n.features)} for t, n in self.nodes.items()}
        edges = [
            {
                "type": t,
                "bounds": e.bounds,
                "cut": e.cut,
                "out_bounds": e.out_bounds,
                "features": _schemes_out(e.features),
            }
            for t, e in self.edges.items()
        ]
        return {
            "format": FORMAT,
            "version": VERSION,
            "num_parts": self.num_parts,
            "method": self.method,
            "seed": self.seed,
            "balance": self.balance,
            "halo_rows": self.halo_rows,
            "loads": self.loads,
            "nodes": nodes,
            "edges": edges,
            "files": {name: [r.num_bytes, r.digest] for name, r in sorted(self.files.items())},
        }


def read_manifest(folder: Path) -> tuple[Manifest, str]:
    """The manifest of a folder, and the SHA-256 of its text: two graphs are the same if theirs are.

    Raises:
        DataError: there is none, or its numbers do not fit together.
    """
    path = folder / MANIFEST
    data = read_bytes(path)
    with damage_told(path, CURE, fact="it describes no partitioned graph"):
        text = data.decode("utf-8")
        content = _dict(json.loads(text))
        manifest = read_content(content, path)
        if content.get("checksum") != manifest.checksum or text != manifest.text():
            _refuse("it is not what was written: the checksum differs")
        return manifest, sha256(data).hexdigest()


def read_content(said: object, path: Path) -> Manifest:
    """What graph.json says, without its checksum; ValueError, TypeError, KeyError: its numbers do not fit together."""
    content = _dict(said)
    if content.get("format") != FORMAT:
        _refuse("it is of another kind")
    if content["version"] != VERSION:
        fact = f"{path} has version {content['version']} of the format"
        raise DataError(fact, line=str(path), cure="read it with the vgraph that wrote it")
    num_parts = _count(content["num_parts"], "num_parts")
    nodes = {_text(t): _node_type(_dict(found), num_parts) for t, found in _dict(content["nodes"]).items()}
    edges: dict[EdgeType, EdgeEnds] = {}
    for found in map(_dict, _list(content["edges"])):
        etype = _edge_type(found["type"], nodes)
        if etype in edges:
            _refuse(f"the edge type {etype} is there twice")
        edges[etype] = _edge_ends(found, num_parts)
    if not num_parts or not nodes or not edges:
        _refuse("it has no parts, no nodes or no edge types")
    return Manifest(
        num_parts=num_parts,
        method=_text(content["method"]),
        seed=_count(content["seed"], "seed"),
        balance=tuple(map(_text, _list(content["balance"]))),
        halo_rows=_count(content["halo_rows"], "halo_rows"),
        loads={_text(word): _loads(found, num_parts) for word, found in _dict(content["loads"]).items()},
        nodes=nodes,
        edges=edges,
        files={_text(name): _file_record(found) for name, found in _dict(content["files"]).items()},
    )


def _node_type(found: Mapping[object, object], num_parts: int) -> NodeType:
    return NodeType(_bounds(found["bounds"], num_parts), _schemes_in(found["features"]))


def _edge_ends(found: Mapping[object, object], num_parts: int) -> EdgeEnds:
    bounds, cut = _bounds(found["bounds"], num_parts), _count(found["cut"], "cut")
    if cut > bounds[-1]:
        _refuse(f"{cut} of {bounds[-1]} edges are cut")
    out_bounds = _bounds(found["out_bounds"], num_parts) if found["out_bounds"] else ()
    if out_bounds and out_bounds[-1] != bounds[-1]:
        _refuse(f"there are {bounds[-1]} in-edges and {out_bounds[-1]} out-edges")
    return EdgeEnds(bounds, cut, out_bounds, _schemes_in(found["features"]))


def _edge_type(found: object, nodes: Mapping[str, NodeType]) -> EdgeType:
    names = tuple(map(_text, _list(found)))
    if len(names) != 3 or names[0] not in nodes or names[2] not in nodes:
        _refuse(f"{names} is no type of edges between its nodes")
    return names


def _bounds(found: object, num_parts: int) -> tuple[int, ...]:
    bounds = tuple(_count(number, "a bound") for number in _list(found))
    if len(bounds) != num_parts + 1 or bounds[0] or list(bounds) != sorted(bounds):
        _refuse(f"bounds of {num_parts} parts are {str(bounds)[:80]}")
    return bounds


def _loads(found: object, num_parts: int) -> tuple[int, ...]:
    loads = tuple(_count(number, "a load") for number in _list(found))
    return loads if len(loads) == num_parts else _refuse(f"{len(loads)} of {num_parts} parts have loads")


def _schemes_out(features: Mapping[str, Scheme]) -> dict[str, object]:
    return {name: [dtype_name(s.dtype, name), *s.shape] for name, s in features.items()}


def _schemes_in(found: object) -> dict[str, Scheme]:
    features: dict[str, Scheme] = {}
    for name, said in _dict(found).items():
        dtype, *shape = _list(said)
        if dtype not in DTYPES:
            _refuse(f"the feature {name!r} is of dtype {dtype!r}")
        features[_text(name)] = Scheme(tuple(_count(n, "a width") for n in shape), DTYPES[_text(dtype)])
    return features


def _file_record(found: object) -> FileRecord:
    num_bytes, digest = _list(found)
    return FileRecord(_count(num_bytes, "a length"), _text(digest))


def dtype_name(dtype: torch.dtype, feature: str) -> str:
    """How a manifest writes a dtype; DTypeError: it is none that is stored."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise DTypeError(f"the feature {feature!r} is {name}", cure=f"convert it to one of {', '.join(DTYPES)}")
    return name


# ---------------------------------------------------------------- JSON is anything
def _refuse(fact: str) -> NoReturn:
    raise ValueError(fact)


def _count(found: object, what: str) -> int:
    if type(found) is not int or not 0 <= found < 2**62:
        _refuse(f"{what} is {str(found)[:40]!r}")
    return found


def _text(found: object) -> str:
    if not isinstance(found, str):
        _refuse(f"{str(found)[:40]} is no name")
    found.encode()  # what has no UTF-8 is no name of a file, either
    return found


def _list(found: object) -> Sequence[object]:
    return found if isinstance(found, list) else _refuse(f"{str(found)[:40]} is no list")


def _dict(found: object) -> Mapping[object, object]:
    return found if isinstance(found, dict) else _refuse(f"{str(found)[:40]} is no object")
