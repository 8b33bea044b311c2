"""Files of MATLAB: arrays and sparse matrices by name.

Takes: a path. Gives: arrays. Runs once per file. SciPy's reader believes what a file says, and a damaged one ends the
process. Source: MATLAB's MAT-file format, level 5 (what ``scipy.io.savemat`` writes).
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vgraph.files.content import Pickled, damage_told, most_expanded, read_bytes
from vgraph.files.sparse_arrays import SparseMatrix
from vgraph.late import late

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = late("scipy.sparse")

CURE, UNREADABLE = "use the file as it was published", "not a readable .mat"
HEADER = 128
COMPRESSED, MATRIX, SPARSE = 15, 14, 5
# how numbers are stored, and what an array is of: by the numbers of the format
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
COMPLEX = 0x0800
Element = tuple[int, memoryview]


def read_matlab(path: str | Path, names: Sequence[str]) -> dict[str, Pickled]:
    """Some variables of a .mat file of level 5, by name: arrays of numbers, and sparse matrices of them.

    Raises:
        DataError: the file is missing or damaged, lacks one of them, or expands beyond what its length makes likely.
    """
    content = read_bytes(path)
    with damage_told(path, CURE, fact=UNREADABLE):
        found = dict(_variables(content, lambda name, _: name in names))
        missing = [name for name in names if name not in found]
        if missing:
            raise ValueError(f"it has no {missing[0]!r}")
        return {name: found[name] for name in names}


def read_matlab_matrices(path: str | Path) -> dict[str, SparseMatrix]:
    """Every sparse matrix of a .mat file of level 5, by name; what else it holds is not looked at.

    Raises:
        DataError: the file is missing or damaged, or expands beyond what its length makes likely.
    """
    content = read_bytes(path)
    with damage_told(path, "write it with scipy.io.savemat", fact=UNREADABLE):
        return dict(_variables(content, lambda _, kind: kind == SPARSE))


def _variables(content: bytes, is_wanted: Callable[[str, int], bool]) -> Iterator[tuple[str, Pickled]]:
    """The variables that are wanted, by their name and class; ValueError: damage."""
    if len(content) < HEADER or content[124:128] != b"\x00\x01IM":
        raise ValueError("it does not begin as a file of level 5 does, little-endian")
    for kind, data in _unpacked(memoryview(content)[HEADER:], most_expanded(len(content))):
        if kind == MATRIX:
            yield from _variable(data, is_wanted)


def _unpacked(content: memoryview, most: int) -> Iterator[Element]:
    """The elements of a file, those that are compressed as what they hold."""
    left = most
    for kind, data in _elements(content):
        if kind != COMPRESSED:
            yield kind, data
            continue
        plain = zlib.decompressobj().decompress(data, max(left, 1))
        left -= len(plain)
        if left <= 0:
            raise ValueError(f"it expands to more than {most} bytes")
        yield from _elements(memoryview(plain))


def _elements(data: memoryview) -> Iterator[Element]:
    """Type and content of each element; short ones stand in their own tag."""
    at = 0
    while at + 8 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind >> 16:
            kind, length, first, end = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        else:
            first = at + 8
            end = first + length + (0 if kind == COMPRESSED else -length % 8)
        if first + length > len(data) or (first == at + 4 and length > 4):
            raise ValueError(f"an element of {length} bytes does not fit in")
        yield kind, data[first : first + length]
        at = end


def _variable(data: memoryview, is_wanted: Callable[[str, int], bool]) -> Iterator[tuple[str, Pickled]]:
    """A name and what it means, if it is wanted."""
    parts = list(_elements(data))
    if len(parts) < 3:
        raise ValueError("a variable lacks its name")
    flags, shape = _numbers(parts[0]), tuple(_numbers(parts[1]).tolist())
    name = bytes(parts[2][1]).decode("latin1")
    kind, values = int(flags[0]) & 0xFF, parts[3:]
    if not is_wanted(name, kind):
        return
    if int(flags[0]) & COMPLEX or len(values) != (3 if kind == SPARSE else 1) or any(n < 0 for n in shape):
        raise ValueError(f"{name!r} is no array of real numbers")
    if kind == SPARSE:
        yield name, _matrix(values, shape)
        return
    found = _numbers(values[0])
    if kind not in CLASSES or math.prod(shape) != len(found):
        raise ValueError(f"{name!r} of shape {shape} has {len(found)} numbers")
    yield name, found.astype(CLASSES[kind]).reshape(shape, order="F")


def _matrix(values: Sequence[Element], shape: tuple[int, ...]) -> Pickled:
    indices, ptr, numbers = map(_numbers, values)
    if len(shape) != 2 or len(ptr) != shape[1] + 1 or not 0 <= int(ptr[-1]) <= min(len(indices), len(numbers)):
        raise ValueError(f"a sparse matrix of {shape} has {len(ptr)} columns and {len(numbers)} entries")
    count = int(ptr[-1])  # more room than entries may be stored
    made = sparse.csc_matrix((numbers[:count], indices[:count], ptr), shape=shape)
    made.check_format(full_check=True)
    return made


def _numbers(element: Element) -> NDArray[np.generic]:
    kind, data = element
    if kind not in STORED or len(data) % np.dtype(STORED[kind]).itemsize:
        raise ValueError(f"{len(data)} bytes of type {kind} are no numbers")
    return np.frombuffer(data, f"<{STORED[kind]}")
