"""Archives: what ``torch.save`` wrote, read as data: no class or function of the file's choosing is called.

Takes: a path. Gives: tensors on the CPU, numbers, text, lists and dicts. Runs once per file.
``torch.load(weights_only=True)`` runs no code either, but believes the sizes that a file names, and no checksum.
"""

from __future__ import annotations

import pickletools
import struct
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vgraph.files.content import damage_told, unreadable

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


class _Reader:
    """A stack machine for the part of pickle's language that data need (protocols 2 to 5)."""

    def __init__(self, records: _Records) -> None:
        self.records = records
        self.stack: list[object] = []
        self.marks: list[list[object]] = []
        self.memo: dict[int, object] = {}

    def read(self, program: bytes) -> object:
        for op, argument, place in pickletools.genops(program):
            known = _OPS.get(op.name)
            if known is None:
                raise ValueError(f"{op.name} at byte {place} is no part of data")
            if op.name == "STOP":
                break
            try:
                known(self, argument)
            except IndexError:
                raise ValueError(f"{op.name} at byte {place} finds nothing to work on") from None
        return self.stack.pop()

    def push(self, value: object) -> None:
        self.stack.append(value)

    def to_mark(self) -> list[object]:
        items, self.stack = self.stack, self.marks.pop()
        return items

    def mark(self, _: object) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def put(self, key: int | None) -> None:
        self.memo[len(self.memo) if key is None else key] = self.stack[-1]

    def get(self, key: int) -> None:
        if key not in self.memo:
            raise ValueError(f"it reads {key} before it is written")
        self.push(self.memo[key])

    def make_tuple(self, count: int | None) -> None:
        items = self.to_mark() if count is None else [self.stack.pop() for _ in range(count)][::-1]
        self.push(tuple(items))

    def append(self, items: list[object]) -> None:
        last = self.stack[-1]
        if type(last) is not list:
            raise ValueError("it appends to what is no list")
        last.extend(items)

    def set_items(self, items: list[object]) -> None:
        last = self.stack[-1]
        if not isinstance(last, dict):
            raise ValueError("it sets items of what is no dict")
        last.update(zip(items[::2], items[1::2], strict=True))

    def add_items(self, _: object) -> None:
        items = self.to_mark()
        last = self.stack[-1]
        if type(last) is not set:
            raise ValueError("it adds items to what is no set")
        last.update(items)

    def name(self, words: str | None) -> None:
        if words is None:
            last = self.stack.pop()
            words = f"{self.stack.pop()} {last}"
        if words not in _NAMES:
            raise ValueError(f"it names {words!r}, which no data need")
        self.push(_NAMES[words])

    def call(self, _: object) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, _Function) or type(arguments) is not tuple:
            raise ValueError("it calls what is no function of data")
        self.push(function.run(*arguments))

    def build(self, _: object) -> None:
        """Attributes: of an OrderedDict (which modules' states have) they are left out."""
        self.stack.pop()
        if type(self.stack[-1]) is not OrderedDict:
            raise ValueError("it sets attributes of what has none")

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


class _Function(NamedTuple):
    """What may be called for one of the names."""

    run: Callable[..., object]


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
    "collections OrderedDict": _Function(_ordered),
    "torch Size": _Function(torch.Size),
    "torch device": _Function(torch.device),
    "torch.serialization _get_layout": _Function(_LAYOUTS.__getitem__),
    "torch._utils _rebuild_tensor_v2": _Function(_tensor),
    "torch._utils _rebuild_tensor_v3": _Function(_tensor_of_bytes),
    "torch._utils _rebuild_sparse_tensor": _Function(_sparse_tensor),
    "torch._utils _rebuild_parameter": _Function(lambda data, needs_grad, _: nn.Parameter(data.detach(), needs_grad)),
    "_codecs encode": _Function(lambda text, _: text.encode("latin1")),
    "torch.storage UntypedStorage": _Kind(None),
    **{f"torch {name}Storage": _Kind(dtype) for name, dtype in DTYPES.items()},
    **{f"torch {str(dtype)[6:]}": dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)},
    **{f"{module} set": _Function(set) for module in ("__builtin__", "builtins")},
    **{f"{module} complex": _Function(complex) for module in ("__builtin__", "builtins")},
}

_PUSHED = "BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT BINUNICODE SHORT_BINUNICODE BINBYTES SHORT_BINBYTES".split()
_OPS: dict[str, Callable[[_Reader, Any], None]] = {
    **dict.fromkeys(_PUSHED, _Reader.push),
    **{name: lambda reader, _: None for name in ("PROTO", "FRAME", "STOP")},
    "NONE": lambda reader, _: reader.push(None),
    "NEWTRUE": lambda reader, _: reader.push(True),
    "NEWFALSE": lambda reader, _: reader.push(False),
    "EMPTY_DICT": lambda reader, _: reader.push({}),
    "EMPTY_LIST": lambda reader, _: reader.push([]),
    "EMPTY_SET": lambda reader, _: reader.push(set()),
    "EMPTY_TUPLE": lambda reader, _: reader.push(()),
    "TUPLE1": lambda reader, _: reader.make_tuple(1),
    "TUPLE2": lambda reader, _: reader.make_tuple(2),
    "TUPLE3": lambda reader, _: reader.make_tuple(3),
    "TUPLE": lambda reader, _: reader.make_tuple(None),
    "MARK": _Reader.mark,
    "BINPUT": _Reader.put,
    "LONG_BINPUT": _Reader.put,
    "MEMOIZE": _Reader.put,
    "BINGET": _Reader.get,
    "LONG_BINGET": _Reader.get,
    "APPEND": lambda reader, _: reader.append([reader.stack.pop()]),
    "APPENDS": lambda reader, _: reader.append(reader.to_mark()),
    "SETITEM": lambda reader, _: reader.set_items([reader.stack.pop(), reader.stack.pop()][::-1]),
    "SETITEMS": lambda reader, _: reader.set_items(reader.to_mark()),
    "ADDITEMS": _Reader.add_items,
    "GLOBAL": _Reader.name,
    "STACK_GLOBAL": lambda reader, _: reader.name(None),
    "REDUCE": _Reader.call,
    "BUILD": _Reader.build,
    "BINPERSID": _Reader.storage,
}
