"""Archives: what ``torch.save`` wrote, read as data: no class or function of the file's choosing is called.

Takes: a path. Gives: tensors on the CPU, numbers, text, lists and dicts. Runs once per file.
``torch.load(weights_only=True)`` runs no code either, but believes the sizes that a file names, and no checksum.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vgraph.files.content import damage_told, unreadable
from vgraph.files.stack_machine import OPS, Function, Machine

LOCAL_HEADER = struct.Struct("<4s22xHH")
DTYPES = {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16,
    "Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8,
    "Bool": torch.bool, "ComplexFloat": torch.complex64, "ComplexDouble": torch.complex128,
}  # fmt: skip


def read_archive(path: str | Path, cure: str = "write it with torch.save") -> Any:
    """The content of an archive of plain tensors, numbers, text, lists, tuples, sets and dicts.

    Tensors come to the CPU, wherever they were. Those that shared memory share it again.

    Raises:
        DataError: the file is missing, damaged (every checksum is compared), holds objects of other classes, or
            tensors that reach beyond what is stored.
    """
    try:
        with Path(path).open("rb") as file, damage_told(path, cure):
            records = _Records(file, Path(path).stat().st_size)
            return _Reader(records).read(records.named("data.pkl").numpy().tobytes())
    except OSError as error:
        raise unreadable(path, error) from error


class _Records:
    """The members of the zip file, each read once, whole, and compared with its checksum."""

    def __init__(self, file: BufferedReader, length: int) -> None:
        self.file, self.length = file, length
        infos = zipfile.ZipFile(file).infolist()
        if any(info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size for info in infos):
            raise ValueError("its records are compressed")
        if sum(info.file_size for info in infos) > length:
            raise ValueError("its records overlap")
        self.infos = {info.filename.partition("/")[2]: info for info in infos}
        self.read: dict[str, Tensor] = {}
        if "byteorder" in self.infos and self.named("byteorder").numpy().tobytes() != b"little":
            raise ValueError("its numbers are not little-endian")

    def named(self, name: str) -> Tensor:
        """The bytes of a record, uint8."""
        if name not in self.read:
            if name not in self.infos:
                raise ValueError(f"it has no record {name!r}")
            self.read[name] = self._bytes_of(self.infos[name])
        return self.read[name]

    def _bytes_of(self, info: zipfile.ZipInfo) -> Tensor:
        self.file.seek(info.header_offset)
        magic, name_length, extra_length = LOCAL_HEADER.unpack(self.file.read(LOCAL_HEADER.size))
        start = info.header_offset + LOCAL_HEADER.size + name_length + extra_length
        if magic != b"PK\3\4" or start + info.file_size > self.length:
            raise ValueError(f"record {info.filename!r} lies outside the file")
        self.file.seek(start)
        raw = torch.empty(info.file_size, dtype=torch.uint8)
        into = raw.numpy().data
        if self.file.readinto(into) != info.file_size or zlib.crc32(into) != info.CRC:
            raise ValueError(f"the checksum of {info.filename!r} does not fit")
        return raw


Size = tuple[int, ...]
Metadata = Mapping[str, bool] | None


class _Storage(NamedTuple):
    elements: Tensor


class _Kind(NamedTuple):
    """A class of storages: its dtype, or None for one of bytes."""

    dtype: torch.dtype | None


class _Reader(Machine):
    """Pickle with storages, which stand in records of their own."""

    def __init__(self, records: _Records) -> None:
        super().__init__(_NAMES)
        self.records = records

    def storage(self, _: object) -> None:
        named = self.stack.pop()
        word, kind, key, _where, count = named if isinstance(named, tuple) and len(named) == 5 else [None] * 5
        if word != "storage" or not isinstance(kind, _Kind) or type(key) is not str or type(count) is not int:
            raise ValueError("it names a storage in another way than torch does")
        raw = self.records.named(f"data/{key}")
        if kind.dtype == torch.bool:
            raw = raw != 0  # a byte of 7 is no bool; it counts as true once
        elif kind.dtype is not None:
            raw = raw.view(kind.dtype)
        if not 0 <= count <= raw.numel():
            raise ValueError(f"storage {key} holds {raw.numel()} elements, not {count}")
        self.push(_Storage(raw[:count]))


def _tensor(
    storage: _Storage,
    offset: int,
    size: Size,
    stride: Size,
    needs_grad: bool,
    _hooks: object,
    metadata: Metadata = None,
) -> Tensor:
    """A view of stored elements; ValueError: it reaches beyond them."""
    elements = storage.elements
    numbers = (offset, *size, *stride)
    if len(size) != len(stride) or not all(type(n) is int and 0 <= n < 2**62 for n in numbers):
        raise ValueError(f"a tensor has offset, size and stride {numbers}")
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if 0 not in size and last >= elements.numel():
        raise ValueError(f"a tensor of {tuple(size)} reaches beyond the {elements.numel()} elements that are stored")
    made = elements.new_empty(size) if 0 in size else elements.as_strided(size, stride, offset)
    if metadata and metadata.get("conj"):
        made = made.conj().resolve_conj()
    if metadata and metadata.get("neg"):
        made = made.neg()
    return made.requires_grad_() if needs_grad is True else made


def _tensor_of_bytes(storage: _Storage, *geometry: Any) -> Tensor:
    """The same, of bytes; the dtype comes before the metadata."""
    *most, dtype = geometry[:6]
    return _tensor(_Storage(storage.elements.view(dtype)), *most, *geometry[6:])


def _sparse_tensor(layout: torch.layout, data: Any) -> Tensor:
    if layout == torch.sparse_coo:
        indices, values, size = data[:3]
        return torch.sparse_coo_tensor(indices, values, size, check_invariants=True)
    ptr, other, values, size = data
    return torch.sparse_compressed_tensor(ptr, other, values, size, layout=layout, check_invariants=True)


def _ordered(*arguments: Iterable[tuple[Hashable, object]]) -> OrderedDict[Hashable, object]:
    return OrderedDict(*(dict(items) for items in arguments))


_LAYOUTS = {str(kind): kind for kind in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)}
_NAMES: dict[str, object] = {
    "collections OrderedDict": Function(_ordered),
    "torch Size": Function(torch.Size),
    "torch device": Function(torch.device),
    "torch.serialization _get_layout": Function(_LAYOUTS.__getitem__),
    "torch._utils _rebuild_tensor_v2": Function(_tensor),
    "torch._utils _rebuild_tensor_v3": Function(_tensor_of_bytes),
    "torch._utils _rebuild_sparse_tensor": Function(_sparse_tensor),
    "torch._utils _rebuild_parameter": Function(lambda data, needs_grad, _: nn.Parameter(data.detach(), needs_grad)),
    "_codecs encode": Function(lambda text, _: text.encode("latin1")),
    "torch.storage UntypedStorage": _Kind(None),
    **{f"torch {name}Storage": _Kind(dtype) for name, dtype in DTYPES.items()},
    **{f"torch {str(dtype)[6:]}": dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)},
    **{f"{module} set": Function(set) for module in ("__builtin__", "builtins")},
    **{f"{module} complex": Function(complex) for module in ("__builtin__", "builtins")},
}
_Reader.known_ops = {**OPS, "BINPERSID": _Reader.storage}
