"""Arrays: .npy and .npz files, whose headers are compared with what the file holds before memory is asked for.

Takes: paths. Gives: plain arrays. Runs once per file. Nothing is unpickled.
Source: NumPy's format of arrays (NEP 1).
"""

from __future__ import annotations

import math
import re
import shutil
import struct
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from vgraph.errors import DataError
from vgraph.files.content import damage_told, refuse_expansion, unreadable

CURE = "store plain arrays with numpy.savez"
KINDS = "biufcSU"  # of dtypes: bool, integers, floats, complex numbers, text
BLOCK = 1 << 24
LONGEST_HEADER = 10_000
MAGIC = b"\x93NUMPY"


def read_arrays(path: str | Path, names: Collection[str] | None = None) -> dict[str, NDArray[np.generic]]:
    """Every array of an .npz, by name; of some ``names``, those that are there, and the others are not looked at.

    Raises:
        DataError: the file is missing, is no .npz, is cut short, holds objects, or names sizes that it does not hold.
    """
    try:
        # zipfile leaves a file that it opened itself open when it is no archive
        with Path(path).open("rb") as file:
            if file.read(6) == MAGIC:
                raise DataError("one array, not an .npz of named arrays", line=str(path), cure=CURE)
            return _read_members(path, file, names)
    except OSError as error:
        raise unreadable(path, error) from error


def read_array(path: str | Path) -> NDArray[np.generic]:
    """The array of a .npy file, read whole.

    Raises:
        DataError: the file is missing, is no array, is cut short, or holds objects.
    """
    try:
        with Path(path).open("rb") as file, damage_told(path, CURE, fact="not a readable .npy"):
            return _read_array(file, Path(path).stat().st_size, "it")
    except OSError as error:
        raise unreadable(path, error) from error


def _opened(path: str | Path, file: IO[bytes]) -> zipfile.ZipFile:
    """An archive that is not much larger unpacked than it makes likely."""
    archive = zipfile.ZipFile(file)
    refuse_expansion(path, sum(info.file_size for info in archive.infolist()), Path(path).stat().st_size)
    return archive


def _read_members(path: str | Path, file: IO[bytes], names: Collection[str] | None) -> dict[str, NDArray[np.generic]]:
    with damage_told(path, CURE, fact="not a readable .npz"):
        archive = _opened(path, file)
        found: dict[str, NDArray[np.generic]] = {}
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if names is not None and name not in names:
                continue
            with archive.open(info) as member:
                found[name] = _read_array(member, info.file_size, name)
        return found


def extract_arrays(path: str | Path, folder: Path) -> dict[str, Path]:
    """Writes every array of an .npz to a .npy file of its own below ``folder``, a block at a time; their paths by name.

    Raises:
        DataError: as of ``read_arrays``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Path] = {}
    try:
        with Path(path).open("rb") as file, damage_told(path, CURE, fact="not a readable .npz"):
            archive = _opened(path, file)
            for number, info in enumerate(archive.infolist()):
                name = info.filename.removesuffix(".npy")
                with archive.open(info) as member:
                    check_header(member, info.file_size, name)
                with archive.open(info) as member, (folder / f"{number}.npy").open("wb") as out:
                    shutil.copyfileobj(member, out, BLOCK)  # the checksum is compared at its end
                found[name] = folder / f"{number}.npy"
    except OSError as error:
        raise unreadable(path, error) from error
    return found


def _read_array(file: IO[bytes], length: int, name: str) -> NDArray[np.generic]:
    dtype, shape, is_fortran, offset = check_header(file, length, name)
    raw = file.read(length - offset)
    if len(raw) != length - offset or file.read(1):
        raise ValueError(f"{name!r} is cut short")
    flat = np.frombuffer(bytearray(raw), dtype)
    if dtype.kind == "b":  # a byte of 7 is no bool; it counts as true once
        flat = flat.view(np.uint8) != 0
    array = flat.reshape(shape[::-1]).T if is_fortran else flat.reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)


def check_header(file: IO[bytes], length: int, name: str) -> tuple[np.dtype[np.generic], tuple[int, ...], bool, int]:
    """The dtype, the shape, whether columns come first, and where data begin, of an array of ``length`` bytes in all.

    ValueError: it is no array of plain numbers or text, or its shape takes other bytes than there are.
    """
    magic = file.read(8)
    if magic[:6] != MAGIC or magic[6] not in (1, 2, 3):
        raise ValueError(f"{name!r} does not begin as an array")
    layout = "<H" if magic[6] == 1 else "<I"
    (size,) = struct.unpack(layout, file.read(struct.calcsize(layout)))
    if size > LONGEST_HEADER:
        raise ValueError(f"the header of {name!r} has {size} bytes")
    descr, is_fortran, shape = _read_header(file.read(size).decode("latin1"))
    dtype = np.dtype(descr)
    if dtype.kind not in KINDS or dtype.itemsize == 0:
        raise ValueError(f"{name!r} holds {dtype}, no plain numbers; nothing is unpickled")
    offset = 8 + struct.calcsize(layout) + size
    needed = math.prod(shape) * dtype.itemsize
    if needed != length - offset:
        raise ValueError(f"{name!r} of shape {shape} takes {needed} bytes, and there are {length - offset}")
    return dtype, shape, is_fortran, offset


def _read_header(header: str) -> tuple[str, bool, tuple[int, ...]]:
    found = _HEADER.fullmatch(header)
    if found is None:
        raise ValueError(f"a header is {header.strip()[:80]!r}")
    shape = tuple(int(word) for word in found["shape"].split(",") if word.strip())
    return found["descr"], found["fortran"] == "True", shape


_HEADER = re.compile(
    r"\{\s*'descr':\s*'(?P<descr>[<>|=]?[a-zA-Z][0-9]{0,9})',\s*'fortran_order':\s*(?P<fortran>True|False),"
    r"\s*'shape':\s*\((?P<shape>[0-9, ]{0,400})\),?\s*\}\s*"
)
