"""Numbers and places as people read them: counts of things, bytes, operations, lines of a program.

Takes: numbers, ``file:line``. Gives: words. Runs once.
"""

from __future__ import annotations

import linecache
from pathlib import Path


def plural(count: int, word: str, words: str = "") -> str:
    """A count with its word, in the singular where it is 1."""
    return f"{count} {word if count == 1 else words or word + 's'}"


def bytes_text(count: int) -> str:
    """A number of bytes for people."""
    return readable(count, "bytes", ("kB", "MB", "GB", "TB"))


def readable(count: float, unit: str, larger: tuple[str, ...] = ("thousand", "million", "billion")) -> str:
    """A number for people.

    >>> bytes_text(12), bytes_text(3_400_000), readable(4200, "operations")
    ('12 bytes', '3.4 MB', '4.2 thousand operations')
    """
    suffix = "" if unit == "bytes" else f" {unit}"
    if count < 1000:
        return f"{count} {unit}"
    for word in larger:
        count /= 1000
        if count < 999.5 or word == larger[-1]:
            return f"{count:.3g} {word}{suffix}"
    return ""


def shown_line(line: str) -> str:
    """``file:line`` with the text there."""
    path, _, number = line.rpartition(":")
    text = linecache.getline(path, int(number)).strip() if number.isdigit() else ""
    return f"{Path(path).name}:{number}  {text}".rstrip()
