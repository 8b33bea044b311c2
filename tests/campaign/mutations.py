"""Files with something wrong: one to three changes of a valid file, at its surface or inside its archive.

What packs others (zip, gzip) is opened for half of them, changed inside and packed again with checksums that fit:
otherwise nothing but the checksum would ever be tried.
"""

from __future__ import annotations

import gzip
import io
import random
import re
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence

NUMBERS = [-1, 0, 1, 7, 255, 2**16, 2**31 - 1, 2**31, 2**32, 2**32 + 1]
NUMBERS += [2**40, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30]
WORDS = [*map(str, NUMBERS), "nan", "inf", "-inf", "1e400", "1.5", "-0", "1_0", "٣", "²"]
WORDS += ["", "\0", "\ufeff", "\r", "\t", '"', "\\", "../../x", "/x", "\n" * 50]
WORDS += ["(" * 20_000, "[" * 20_000, "{" * 5_000, "9" * 5_000, "x" * 100_000]
LARGE = bytes(20 << 20)


def mutate(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """The same file but for one to three changes; ``others`` give what is spliced in."""
    if draw.random() < 0.6:
        if data[:2] == b"PK":
            return _mutate_zip(draw, data, others)
        if data[:2] == b"\x1f\x8b":
            return gzip.compress(_large_or(draw, lambda: mutate(draw, gzip.decompress(data), others)), 1, mtime=0)
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        data = draw.choice(CHANGES)(draw, data, others)
    return data


def _large_or(draw: random.Random, change: Callable[[], bytes]) -> bytes:
    return LARGE if draw.random() < 0.05 else change()


def _mutate_zip(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
        packing = archive.infolist()[0].compress_type
    one, two = draw.randrange(len(members)), draw.randrange(len(members))
    (name, content), (other, theirs) = members[one], members[two]
    kind = draw.choice(["inside", "inside", "inside", "inside", "swap", "drop", "name", "large", "packing"])
    if kind == "inside":
        members[one] = (name, mutate(draw, content, others))
    elif kind == "swap":
        members[one], members[two] = (name, theirs), (other, content)
    elif kind == "drop":
        del members[one]
    elif kind == "name":
        members[one] = (draw.choice([other, f"../{name}", "/x", "x" * 300, f"{name}/"]), content)
    elif kind == "large":
        members[one], packing = (name, LARGE), zipfile.ZIP_DEFLATED
    else:
        packing = zipfile.ZIP_STORED if packing else zipfile.ZIP_DEFLATED
    return pack(dict(members), packing)


def pack(members: Mapping[str, bytes], packing: int = zipfile.ZIP_STORED) -> bytes:
    """A zip file."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", packing) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)  # its time is always the same
            archive.writestr(info, content, packing, compresslevel=1)
    return made.getvalue()


# ---------------------------------------------------------------- changes
def _span(draw: random.Random, data: bytes) -> tuple[int, int]:
    start = draw.randrange(len(data) + 1)
    return start, min(len(data), start + draw.choice([1, 2, 4, 8, 16, 64, 256]))


def _flip(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]


def _overwrite(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, end = _span(draw, data)
    return data[:start] + draw.choice([draw.randbytes(end - start), bytes(end - start)]) + data[end:]


def _truncate(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _cut(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, end = _span(draw, data)
    return data[:start] + data[end:]


def _double(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, end = _span(draw, data)
    return data[:end] + data[start:end] * draw.choice([1, 1, 1, 20]) + data[end:]


def _splice(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = draw.choice(others)
    start, end = _span(draw, other)
    place = draw.randrange(len(data) + 1)
    return data[:place] + other[start:end] + data[place + draw.choice([0, end - start]) :]


def _number(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A binary number, of 1 to 8 bytes, becomes one that is hard to believe."""
    layout, bits = draw.choice([("<B", 8), ("<H", 16), ("<I", 32), ("<Q", 64), ("<Q", 64), (">I", 32)])
    size = struct.calcsize(layout)
    at = draw.randrange(max(1, len(data) - size))
    at -= at % size if draw.random() < 0.7 else 0
    return data[:at] + struct.pack(layout, draw.choice(NUMBERS) % 2**bits) + data[at + size :]


def _word(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A number in the text, or else any word, becomes another."""
    found = list(re.finditer(rb"-?\d+(?:\.\d+)?" if draw.random() < 0.8 else rb"[^\s,]+", data))
    if not found:
        return _overwrite(draw, data, others)
    place = draw.choice(found)
    return data[: place.start()] + draw.choice(WORDS).encode() + data[place.end() :]


def _lines(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Lines are left out, repeated or exchanged."""
    lines = data.split(b"\n")
    one, two = draw.randrange(len(lines)), draw.randrange(len(lines))
    kind = draw.choice(["drop", "repeat", "exchange"])
    if kind == "drop":
        del lines[one]
    elif kind == "repeat":
        lines.insert(two, lines[one])
    else:
        lines[one], lines[two] = lines[two], lines[one]
    return b"\n".join(lines)


CHANGES = (_flip, _flip, _overwrite, _truncate, _cut, _double, _splice, _number, _number, _word, _word, _word, _lines)
