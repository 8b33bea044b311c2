"""Content: the bytes, the lines and the numbers of a file, each no larger than the file makes likely.

Takes: a path, or what a file says. Gives: bytes, text, numbers, or a DataError that names the place. Runs once per
file. A size that a file names without holding it (vertices without a byte of their own, what a compressed file
expands to) is believed up to a bound that is fixed, or a multiple of the file's own length.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeAlias

from vgraph.errors import DataError, VGraphError

Pickled: TypeAlias = Any  # numbers, text, arrays, and nests of them
NAMED_VERTICES = 1 << 24  # so many a file may name whatever its length: 128 MiB of one number each
VERTICES_A_BYTE = 64
EXPANDED_BYTES = 16 << 20  # so many may come out of any compressed file
LONGEST_LINE = 4 << 20  # of a compressed file, in letters
EXPANSION = 128
_OF_GZIP = b"\x1f\x8b"  # its first bytes
DENSE_BYTES, DENSE_EXPANSION = 128 << 20, 256  # of what is stored sparse and given dense


def read_bytes(path: str | Path) -> bytes:
    """The bytes of a data file; DataError names the path where it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 data file, its line ends as they are; a byte order mark is no part of it."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if data.startswith(_OF_GZIP):
            raise DataError("the file is compressed with gzip", line=str(path), cure="expand it: gunzip") from error
        number = data.count(b"\n", 0, error.start) + 1
        raise _not_utf8(path, number, f"byte {error.start} is not UTF-8") from error


def read_json(path: str | Path) -> Any:
    """What a JSON file says; DataError: it is no JSON, or nested too deeply to be somebody's data."""
    text = read_text(path)
    with damage_told(path, "give a file of JSON"):
        return json.loads(text)


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of UTF-8 text, also of a ``.gz``, without their ends; one is in memory at a time.

    Raises:
        DataError: the file is missing, no gzip, no UTF-8, or expands beyond what its length makes likely.
    """
    if Path(path).suffix != ".gz":
        yield from read_text(path).split("\n")
        return
    try:
        with Path(path).open("rb") as file:
            yield from _expanded_lines(path, file)
    except OSError as error:
        raise unreadable(path, error) from error


def _expanded_lines(path: str | Path, file: BinaryIO) -> Iterator[str]:
    number = 0
    with damage_told(path, "compress UTF-8 text with gzip", fact="not a readable .gz"):
        bounded = Bounded(gzip.GzipFile(fileobj=file), most_expanded(Path(path).stat().st_size))
        text = io.TextIOWrapper(io.BufferedReader(bounded), "utf-8-sig", newline="\n")
        try:
            while line := text.readline(LONGEST_LINE):
                number += 1
                if len(line) == LONGEST_LINE:
                    raise ValueError(f"line {number} has {LONGEST_LINE} letters or more")
                yield line.removesuffix("\n")
        except UnicodeDecodeError as error:
            raise _not_utf8(path, number + 1, "it is not UTF-8, here or in one of the next lines") from error


def _not_utf8(path: str | Path, number: int, fact: str) -> DataError:
    return DataError(fact, line=f"{path}:{number}", cure="convert the file to UTF-8")


def unreadable(path: str | Path, error: OSError) -> DataError:
    """The error for a file that is missing or may not be read."""
    return DataError(
        f"cannot read the data file: {error.strerror or error}",
        line=str(path),
        cure="check the path; vgraph downloads nothing",
    )


@contextmanager
def damage_told(path: str | Path, cure: str, *, fact: str = "the file is damaged") -> Generator[None]:
    """Whatever a library raises while it reads a damaged file is told as the damage that it is."""
    try:
        yield
    except VGraphError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0][:200] or type(error).__name__
        raise DataError(f"{fact}: {reason}", line=str(path), cure=cure) from error


# ---------------------------------------------------------------- what may be believed
def most_vertices(num_bytes: int) -> int:
    """How many vertices a file of so many bytes may name: each costs memory, but perhaps not a byte of the file."""
    return max(NAMED_VERTICES, VERTICES_A_BYTE * num_bytes)


def check_vertices(count: int, num_bytes: int, where: str, cure: str) -> None:
    """DataError: a file of ``num_bytes`` bytes names more vertices than ``most_vertices``."""
    if count > most_vertices(num_bytes):
        fact = f"{num_bytes} bytes name {count} vertices; so few may name {most_vertices(num_bytes)}"
        raise DataError(fact, line=where, cure=cure)


def most_dense(length: int) -> int:
    """How many bytes of dense features may come of sparse ones in a file of ``length`` bytes."""
    return max(DENSE_BYTES, DENSE_EXPANSION * length)


def most_expanded(length: int) -> int:
    """How many bytes a compressed file of ``length`` bytes may hold."""
    return max(EXPANDED_BYTES, EXPANSION * length)


def refuse_expansion(path: str | Path, expanded: int, length: int) -> None:
    """DataError: a compressed file of ``length`` bytes expands to more than any that holds data."""
    if expanded > most_expanded(length):
        fact = f"{length} compressed bytes expand to {expanded} or more"
        raise DataError(fact, line=str(path), cure="unpack it by hand, if it is what it should be")


class Bounded(io.RawIOBase):
    """A file that is read up to a number of bytes; ValueError: it goes on, or a place beyond is asked for."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, most: int) -> None:
        self.file, self.most = file, most

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.file.tell()

    def read(self, size: int = -1) -> bytes:
        left = self.most - self.tell()
        found = self.file.read(left + 1 if size < 0 else min(size, left + 1))
        if len(found) > left:
            raise ValueError(f"it has more than the {self.most} bytes that its length makes likely")
        return found

    def readinto(self, buffer: Any) -> int:
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or offset > self.most:
            raise ValueError(f"it names byte {offset}, beyond the {self.most} that its length makes likely")
        return self.file.seek(offset)
