"""Lines of text that know where they stand: whatever is wrong on one is told with file and line.

Takes: text. Gives: its lines, records of tables with a header, and the numbers in them. Runs once per file.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vgraph.errors import DataError

LARGEST_FLOAT = float(np.finfo(np.float32).max)
SHOWN = 80  # letters of what is wrong


class Line(NamedTuple):
    """A line of a text, without its end."""

    text: str
    path: str | Path
    number: int

    @property
    def at(self) -> str:
        """``file:line``."""
        return f"{self.path}:{self.number}"

    def wrong(self, fact: str, cure: str) -> DataError:
        """The error that names this line."""
        return DataError(fact, line=self.at, cure=cure)

    def whole(self, word: str, what: str, limit: int, cure: str, numbered: str = "write 0, 1, 2, ...") -> int:
        """A word as a number from 0 to ``limit``; DataError: it is none, or above (then with this ``cure``)."""
        if not (word.isascii() and word.isdigit()):
            raise self.wrong(f"{word[:SHOWN]!r} is not a {what}", numbered)
        digits = word.lstrip("0") or "0"
        # Python refuses to convert thousands of digits with an error of its own
        if len(digits) > 19 or int(digits) > limit:
            raise self.wrong(f"{what} {word[:SHOWN]} is above {limit}", cure)
        return int(digits)

    def real(self, word: str, what: str) -> float:
        """A word as a finite number that float32 holds."""
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not abs(value) <= LARGEST_FLOAT or "_" in word:
            raise self.wrong(f"{word[:SHOWN]!r} is not a {what}", "give a finite number that float32 holds")
        return value


def lines_of(text: str, path: str | Path) -> Iterator[Line]:
    """The lines of a text; the carriage returns that Windows writes are no part of them."""
    for number, line in enumerate(text.split("\n"), 1):
        yield Line(line.removesuffix("\r"), path, number)


class Record(NamedTuple):
    """One record of a table: its fields by the names of the header, and the line where it begins."""

    line: Line
    fields: dict[str, str]


def records_of(text: str, path: str | Path, needed: Collection[str] = (), separator: str = ",") -> Iterator[Record]:
    """The records below the header of text separated by commas, or so; empty lines count for nothing.

    Raises:
        DataError: there is no header, it lacks one of the ``needed`` columns or has one twice, a record has more or
            fewer fields, or a quotation does not end.
    """
    reader = csv.reader((f"{line.text}\n" for line in lines_of(text, path)), delimiter=separator, strict=True)
    header: list[str] = []
    line = Line("", path, 1)
    try:
        for fields in reader:
            begin, line = line, Line("", path, reader.line_num + 1)
            if not fields:
                continue
            if not header:
                header = _header(fields, needed, begin)
            elif len(fields) != len(header):
                fact = f"there are {len(fields)} fields, and the header names {len(header)}"
                raise begin.wrong(fact, "write every column in every line, and quote what holds a comma")
            else:
                yield Record(begin, dict(zip(header, fields, strict=True)))
    except csv.Error as error:
        raise line.wrong(f"no comma-separated text: {error}", "quote as RFC 4180 does") from None
    if not header:
        raise Line("", path, 1).wrong("the file is empty", "begin with a line that names the columns")


def _header(fields: list[str], needed: Collection[str], line: Line) -> list[str]:
    names = [name.strip() for name in fields]
    missing = [name for name in needed if name not in names]
    if missing:
        shown = ", ".join(names)[:SHOWN]
        raise line.wrong(f"there is no column {missing[0]!r}; the header names {shown}", "name it in the first line")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise line.wrong(f"the header names {twice[0][:SHOWN]!r} more than once", "give each column a name of its own")
    return names
