"""What meta.yaml says of a folder of tables: which holds what, and how its columns of ids are called.

Takes: a path. Gives: a Meta. Runs once per set. Source: DGL 1.1, ``dgl.data.CSVDataset``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from vgraph.errors import DataError
from vgraph.files import read_text
from vgraph.graphs.types import EdgeType

_KINDS: Mapping[str, tuple[str, object]] = {
    "node_data": ("ntype", "_V"),
    "edge_data": ("etype", ["_V", "_E", "_V"]),
    "graph_data": ("graphs", ""),
}
_IDS: Mapping[str, Mapping[str, str]] = {
    "node_data": {"node_id_field": "node_id", "graph_id_field": "graph_id"},
    "edge_data": {"src_id_field": "src_id", "dst_id_field": "dst_id", "graph_id_field": "graph_id"},
    "graph_data": {"graph_id_field": "graph_id"},
}


@dataclass(frozen=True)
class Entry:
    """One table: ``kind`` of its nodes or edges, ``ids``: the columns of ids by their use."""

    file: str
    kind: str | EdgeType
    ids: Mapping[str, str]


@dataclass(frozen=True)
class Meta:
    """The tables of a folder by what they hold."""

    path: Path
    name: str
    separator: str
    tables: Mapping[str, Sequence[Entry]]

    @classmethod
    def of(cls, path: Path) -> Meta:
        """What a file says; DataError: it is missing or malformed."""
        if not path.exists():
            raise DataError(f"{path.name!r} is not in {path.parent}", cure="name there the tables of nodes and edges")
        given = _read(path)
        if given.get("version", "1.0.0") != "1.0.0":
            raise _wrong(path, f"version is {given['version']!r}", "write version: 1.0.0")
        tables = {part: tuple(_entries(path, part, given.get(part))) for part in _IDS}
        for part in ("node_data", "edge_data"):
            kinds = [entry.kind for entry in tables[part]]
            if not kinds or len(set(kinds)) != len(kinds):
                fact = f"{part} names {'a type twice' if kinds else 'no table'}"
                raise _wrong(path, fact, "name one table for each type")
        name, separator = given.get("dataset_name"), given.get("separator", ",")
        if not isinstance(name, str) or not isinstance(separator, str) or len(separator) != 1:
            cure = "write dataset_name: NAME, and one letter as separator"
            raise _wrong(path, "dataset_name or separator is not given so", cure)
        return cls(path, name, separator, tables)


def _read(path: Path) -> Mapping[str, object]:
    try:
        yaml = importlib.import_module("yaml")
    except ImportError as error:
        raise DataError("meta.yaml is read by PyYAML, which is not installed", cure="pip install pyyaml") from error
    try:
        given = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = str(path) if mark is None else f"{path}:{mark.line + 1}"
        raise DataError(f"it is no YAML: {getattr(error, 'problem', error)}", line=at, cure="mend it") from error
    if not isinstance(given, dict):
        raise _wrong(path, "it has no names", "write dataset_name, node_data and edge_data")
    return cast("Mapping[str, object]", given)


def _entries(path: Path, part: str, given: object) -> Iterator[Entry]:
    several = [given] if part == "graph_data" and given is not None else given or []
    if not isinstance(several, list):
        raise _wrong(path, f"{part} is no list", f"write a list of tables below {part}")
    key, usual = _KINDS[part]
    for one in cast("list[object]", several):
        fields = cast("Mapping[str, object]", one if isinstance(one, dict) else {})
        ids = {use: fields.get(use, name) for use, name in _IDS[part].items()}
        kind = fields.get(key) or usual
        kinds = cast("list[object]", kind if isinstance(kind, list) else [kind])
        file = fields.get("file_name")
        is_whole = len(kinds) == (3 if part == "edge_data" else 1)
        if not isinstance(file, str) or not is_whole or not all(isinstance(n, str) for n in (*ids.values(), *kinds)):
            cure = "write file_name, and etype as a list of three names"
            raise _wrong(path, f"an entry of {part} is not whole", cure)
        known = cast("EdgeType", tuple(kinds)) if part == "edge_data" else cast("str", kind)
        yield Entry(file, known, cast("Mapping[str, str]", ids))


def _wrong(path: Path, fact: str, cure: str) -> DataError:
    return DataError(fact, line=str(path), cure=cure)
