"""Files of MATLAB: arrays and sparse matrices by name.

Takes: a path. Gives: arrays. Runs once per file.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vgraph.files.content import Pickled, damage_told, most_expanded, read_bytes, refuse_expansion
from vgraph.late import late

if TYPE_CHECKING:
    from scipy import io as scipy_io
else:
    scipy_io = late("scipy.io")

HEADER, COMPRESSED = 128, 15
BLOCK = 1 << 20


def read_matlab(path: str | Path, names: Sequence[str]) -> dict[str, Pickled]:
    """Some variables of a .mat file, by name.

    Raises:
        DataError: the file is missing or damaged, lacks one of them, or expands beyond what its length makes likely.
    """
    content = read_bytes(path)
    with damage_told(path, "use the file as it was published", fact="not a readable .mat"):
        refuse_expansion(path, _expanded(content), len(content))
        found = scipy_io.loadmat(io.BytesIO(content), variable_names=list(names))
        missing = [name for name in names if name not in found]
        if missing:
            raise ValueError(f"it has no {missing[0]!r}")
        return {name: found[name] for name in names}


def _expanded(content: bytes) -> int:
    """How many bytes its variables have unpacked, counted until they are too many."""
    total, at = 0, HEADER
    while at + 8 <= len(content):
        kind, length = struct.unpack_from("<II", content, at)
        at += 8
        if kind == COMPRESSED:
            total += _inflated(content[at : at + length], most_expanded(len(content)) + 1 - total)
        if total > most_expanded(len(content)):
            break
        at += length
    return total


def _inflated(packed: bytes, most: int) -> int:
    stream, total = zlib.decompressobj(), 0
    while packed and total < most:
        total += len(stream.decompress(packed, BLOCK))
        packed = stream.unconsumed_tail
    return total
