"""JSON item by item, each with the line where it begins, so that what is wrong with one is told with its line.

Takes: a path. Gives: what its items say. Runs once per file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

from vgraph.errors import DataError
from vgraph.files.content import read_text

CURE = "give a list of JSON, or a value a line (JSON Lines), in UTF-8"
LARGEST = 2**63 - 1
BLANKS = re.compile(r"[ \t\r\n]*")


def read_json_items(path: str | Path) -> Iterator[tuple[int, object]]:
    """The line and the value of each item: of a list, or of values one after another (JSON Lines).

    Raises:
        DataError: the file is missing, no JSON, cut short, has a key twice in one object, or a number that is not
            finite or beyond 64 bits.
    """
    text = _Text(read_text(path).removeprefix("\ufeff"), path)
    if not text.takes("["):
        while text.is_left():
            yield text.item()
        return
    while not text.takes("]"):
        yield text.item()
        if not text.takes(",") and not text.is_at("]"):
            raise text.wrong("the list is not closed, or lacks a comma")
    if text.is_left():
        raise text.wrong("something follows the list")


class _Text:
    """A text, and how far it was read: never is a blank the next letter."""

    def __init__(self, text: str, path: str | Path) -> None:
        self.text, self.path, self.at, self.line = text, path, 0, 1
        self.decoder = json.JSONDecoder(
            object_pairs_hook=_object, parse_int=_whole, parse_float=_real, parse_constant=_real
        )
        self._move_to(0)

    def is_left(self) -> bool:
        return self.at < len(self.text)

    def is_at(self, sign: str) -> bool:
        return self.text.startswith(sign, self.at)

    def takes(self, sign: str) -> bool:
        """Whether the next letter is this one, which is read then."""
        found = self.is_at(sign)
        if found:
            self._move_to(self.at + 1)
        return found

    def item(self) -> tuple[int, object]:
        line = self.line
        try:
            value, end = self.decoder.raw_decode(self.text, self.at)
        except json.JSONDecodeError as error:
            raise DataError(f"no JSON: {error.msg}", line=f"{self.path}:{error.lineno}", cure=CURE) from None
        except RecursionError:
            raise self.wrong("it is nested too deeply to be data") from None
        except ValueError as error:
            raise self.wrong(str(error)) from None
        self._move_to(end)
        return line, value

    def wrong(self, fact: str) -> DataError:
        return DataError(fact, line=f"{self.path}:{self.line}", cure=CURE)

    def _move_to(self, place: int) -> None:
        blanks = BLANKS.match(self.text, place)
        end = blanks.end() if blanks else place
        self.line += self.text.count("\n", self.at, end)
        self.at = end


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {twice[:80]!r} stands twice in one object")
    return made


def _whole(word: str) -> int:
    # Python refuses to convert thousands of digits with an error of its own
    if len(word) > 20 or abs(int(word)) > LARGEST:
        raise ValueError(f"the number {word[:80]} is beyond 64 bits")
    return int(word)


def _real(word: str) -> float:
    value = float(word)
    if not math.isfinite(value):
        raise ValueError(f"the number {word[:80]} is not finite")
    return value
