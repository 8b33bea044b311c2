"""Tables of nodes, edges or graphs: ids, and columns of numbers.

Takes: what meta.yaml says of a table. Gives: a Table. Runs once per table. Source: DGL 1.1, ``dgl.data.CSVDataset``.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.compat.datasets.csv_meta import Entry, Meta
from vgraph.data.lines import LARGEST_FLOAT, Line, Record, records_of
from vgraph.errors import DataError
from vgraph.files import read_text

Parser = Callable[[object], Mapping[str, Sequence[object]]]  # of a DataFrame of pandas: columns by name
Id = int | str
Columns = dict[str, Tensor]
_WORDS = {"true": True, "false": False}
_SHOWN = 80


@dataclass(frozen=True)
class Table:
    """``graphs``: to which graph each line belongs; ``made``: columns that are no ids."""

    entry: Entry
    records: Sequence[Record]
    graphs: Sequence[Id]
    made: Mapping[str, NDArray[np.generic]]

    @classmethod
    def of(cls, meta: Meta, entry: Entry, parser: Parser | None) -> Table:
        """A table as it lies on the disk; DataError: it is missing or malformed."""
        path = meta.path.parent / entry.file
        column = entry.ids["graph_id_field"]
        needed = [name for name in entry.ids.values() if name != column or len(entry.ids) == 1]
        records = list(records_of(read_text(path), path, needed, meta.separator))
        graphs = _ids([(one.line, one.fields[column]) for one in records if column in one.fields])
        made = _columns(records, entry) if parser is None else _parsed(parser, meta, entry)
        for name, rows in made.items():
            if len(rows) != len(records):
                fact = f"{name!r} has {len(rows)} rows, of {len(records)} lines"
                raise DataError(fact, line=str(path), cure="let the parser give a row for every line")
        return cls(entry, records, graphs or [0] * len(records), made)

    def line(self, row: int) -> Line:
        """Where a row stands."""
        return self.records[row].line

    def ids(self, use: str) -> list[Id]:
        """Those of one column."""
        column = self.entry.ids[use]
        return _ids([(one.line, one.fields[column]) for one in self.records])

    def by_graph(self) -> Iterator[tuple[Id, list[int]]]:
        """Which rows belong to each graph, in order of their ids."""
        found: dict[Id, list[int]] = {}
        for row, graph in enumerate(self.graphs):
            found.setdefault(graph, []).append(row)
        yield from sorted(found.items(), key=lambda one: (isinstance(one[0], str), one[0]))

    def columns(self, rows: Collection[int]) -> Columns:
        """What some rows hold besides ids; float32 in the place of float64."""
        chosen = np.fromiter(rows, np.int64, len(rows))
        found = {name: torch.from_numpy(np.ascontiguousarray(column[chosen])) for name, column in self.made.items()}
        return {name: rows.float() if rows.dtype == torch.float64 else rows for name, rows in found.items()}


Cells = Sequence[tuple[Line, str]]


def _ids(cells: Cells) -> list[Id]:
    """Whole numbers, where all of them are."""
    words = [word.strip() for _, word in cells]
    if all(word.isascii() and word.removeprefix("-").isdigit() and len(word) < 19 for word in words):
        return [int(word) for word in words]
    return list(words)


def _columns(records: Sequence[Record], entry: Entry) -> dict[str, NDArray[np.generic]]:
    """Those that have a name and are no ids."""
    ids = set(entry.ids.values())
    names = [name for name in (records[0].fields if records else ()) if name and name not in ids]
    return {name: _numbers([(one.line, one.fields[name]) for one in records]) for name in names}


def _numbers(cells: Cells) -> NDArray[np.generic]:
    """Numbers, truth values or lists of numbers, whatever all cells are."""
    rows = [_number(line, word) for line, word in cells]
    lengths = [len(cast("Sequence[object]", row)) if isinstance(row, (list, tuple)) else -1 for row in rows]
    for (line, _), length in zip(cells, lengths, strict=True):
        if length != lengths[0]:
            raise line.wrong("it has not as many numbers as the first line", "write as many in every line")
    made = np.array(rows)
    if made.dtype.kind not in "bif":
        raise cells[0][0].wrong("a column is not of numbers that fit into one array", "write numbers, or pass a parser")
    if made.dtype.kind == "f":
        beyond = np.isfinite(made) & (np.abs(made) > LARGEST_FLOAT)
        for row in beyond.reshape(len(made), -1).any(1).nonzero()[0][:1]:
            line, word = cells[row]
            raise line.wrong(f"{word[:_SHOWN]!r} is beyond float32, in which it would be infinite", "scale the column")
    return made


def _number(line: Line, word: str) -> object:
    text = word.strip()
    if not text:
        return float("nan")
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        pass
    try:
        return cast("object", ast.literal_eval(text))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        cure = "write numbers, lists of them in quotes, or pass a parser"
        raise line.wrong(f"{word[:_SHOWN]!r} is no number", cure) from None


def _parsed(parser: Parser, meta: Meta, entry: Entry) -> dict[str, NDArray[np.generic]]:
    """What a program's own parser makes of a table without its ids."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError as error:
        fact = "a parser is given a DataFrame of pandas, which is not installed"
        raise DataError(fact, cure="pip install pandas") from error
    frame = pandas.read_csv(meta.path.parent / entry.file, sep=meta.separator)
    made = parser(frame.drop(columns=[name for name in entry.ids.values() if name in frame]))
    return {name: np.asarray(rows) for name, rows in made.items()}
