"""Pickles of others: arrays of numbers, sparse matrices, lists and dicts, as research code has left them.

Takes: a path. Gives: what the pickle holds, and nothing that it would run. Runs once per file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vgraph.files.content import Pickled, damage_told, read_bytes
from vgraph.files.stack_machine import OPS, Function, Machine
from vgraph.late import late

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = late("scipy.sparse")

_SHORT = re.compile(r"[<>=|]?[biuf][1248]")
_SPARSE = {"csr_matrix": ("data", "indices", "indptr"), "csc_matrix": ("data", "indices", "indptr")}
_PLACES = {"coo_matrix": ("data", "row", "col")}


def read_pickle(path: str | Path, cure: str = "use the file as it was published") -> Pickled:
    """What a pickle of numbers, text, lists, dicts, NumPy arrays and SciPy's sparse matrices holds.

    Raises:
        DataError: the file is missing or damaged, or names anything else.
    """
    program = read_bytes(path)
    with damage_told(path, cure):
        return _Values().of(_PickleReader(_NAMES).read(program))


class _DType:
    """A dtype that its state completes."""

    def __init__(self, word: str) -> None:
        if not _SHORT.fullmatch(word):
            raise ValueError(f"an array of {word!r}, which is no plain number")
        self.word, self.order = word, ""

    def build(self, state: Pickled) -> None:
        if type(state) is not tuple or len(state) < 2 or state[1] not in ("<", ">", "=", "|"):
            raise ValueError("a dtype has a state that no dtype has")
        self.order = state[1]

    def made(self) -> np.dtype[np.generic]:
        return np.dtype(self.order + self.word.lstrip("<>=|") if self.order else self.word)


class _Array:
    """An array that its state completes."""

    def __init__(self, *_: object) -> None:
        self.state: tuple[Pickled, ...] = ()

    def build(self, state: Pickled) -> None:
        if type(state) is not tuple or len(state) != 5:
            raise ValueError("an array has a state that no array has")
        self.state = state

    def made(self) -> NDArray[np.generic]:
        _, shape, dtype, is_fortran, raw = self.state or (None,) * 5
        if type(shape) is not tuple or not isinstance(dtype, _DType) or not isinstance(raw, (bytes, str)):
            raise ValueError("an array lacks a shape, a dtype or its numbers")
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        flat = np.frombuffer(bytearray(raw), dtype.made())
        made = flat.reshape(shape[::-1]).T if is_fortran else flat.reshape(shape)
        return made.astype(made.dtype.newbyteorder("="), copy=False)


class _Matrix:
    """A sparse matrix that its state completes."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.state: Mapping[str, Pickled] = {}

    def build(self, state: Pickled) -> None:
        if not isinstance(state, dict):
            raise ValueError("a sparse matrix has a state that none has")
        self.state = state

    def made(self, values: _Values) -> Pickled:
        shape = values.of(self.state["_shape"])
        state = self.state
        if self.kind in _PLACES and "coords" in state:  # as SciPy has written them since 1.13
            row, col = state["coords"]
            state = {**state, "row": row, "col": col}
        parts = [values.of(state[name]) for name in (_SPARSE | _PLACES)[self.kind]]
        numbers = (parts[0], tuple(parts[1:]))
        found = getattr(sparse, self.kind)(numbers if self.kind in _PLACES else tuple(parts), shape=shape)
        if self.kind in _SPARSE:
            found.check_format(full_check=True)
        return found


class _Values:
    """What stands for arrays and matrices is replaced by them, once each."""

    def __init__(self) -> None:
        self.known: dict[int, Pickled] = {}

    def of(self, thing: Pickled) -> Pickled:
        if not isinstance(thing, (list, tuple, dict, _Array, _Matrix, _DType)):
            return thing
        if id(thing) not in self.known:
            self.known[id(thing)] = self._made(thing)
        return self.known[id(thing)]

    def _made(self, thing: Pickled) -> Pickled:
        if isinstance(thing, dict):
            return {self.of(key): self.of(value) for key, value in thing.items()}
        if isinstance(thing, (list, tuple)):
            return type(thing)(self.of(item) for item in thing)
        return thing.made(self) if isinstance(thing, _Matrix) else thing.made()


class _PickleReader(Machine):
    """Pickle with objects of the classes above."""

    def build_object(self, _: object) -> None:
        state, last = self.stack.pop(), self.stack[-1]
        if not isinstance(last, (_Array, _DType, _Matrix)):
            raise ValueError("it sets attributes of what has none")
        last.build(state)

    def make_dict(self, _: object) -> None:
        items = self.to_mark()
        self.push(dict(zip(items[::2], items[1::2], strict=True)))

    def new(self, _: object) -> None:
        arguments, kind = self.stack.pop(), self.stack.pop()
        if arguments != () or not isinstance(kind, str) or kind not in _SPARSE | _PLACES:
            raise ValueError("it makes an object of a class that data do not need")
        self.push(_Matrix(kind))


def _of_bytes(raw: object, dtype: object, shape: object, order: object) -> _Array:
    """An array as NumPy's protocol 5 has it."""
    made = _Array()
    made.build((1, shape, dtype, order == "F", bytes(raw) if isinstance(raw, (bytes, bytearray)) else raw))
    return made


def _old_object(kind: object, *_: object) -> _Matrix:
    if not isinstance(kind, str) or kind not in _SPARSE | _PLACES:
        raise ValueError("it makes an object of a class that data do not need")
    return _Matrix(kind)


_OLD = {f"scipy.sparse.{name.partition('_')[0]} {name}": name for name in _SPARSE | _PLACES}
_NEW = {f"scipy.sparse._{name.partition('_')[0]} {name}": name for name in _SPARSE | _PLACES}
_NAMES: dict[str, object] = {
    **_OLD,
    **_NEW,
    "numpy ndarray": "ndarray",
    "numpy dtype": Function(lambda word, *_: _DType(word)),
    "collections defaultdict": Function(lambda *_: {}),
    "_codecs encode": Function(lambda text, _: text.encode("latin1")),
    **{f"{module} _reconstructor": Function(_old_object) for module in ("copy_reg", "copyreg")},
    **{f"{module} {name}": name for module in ("__builtin__", "builtins") for name in ("list", "object", "int")},
    **{f"numpy.{core}.multiarray _reconstruct": Function(_Array) for core in ("core", "_core")},
    **{f"numpy.{core}.numeric _frombuffer": Function(_of_bytes) for core in ("core", "_core")},
}
_PUSHED = "INT LONG STRING UNICODE FLOAT BINSTRING SHORT_BINSTRING BINBYTES8 BINUNICODE8 BYTEARRAY8".split()
_PickleReader.known_ops = {
    **OPS,
    **dict.fromkeys(_PUSHED, _PickleReader.push),
    "PUT": _PickleReader.put,
    "GET": _PickleReader.get,
    "LIST": lambda reader, _: reader.push(reader.to_mark()),
    "DICT": _PickleReader.make_dict,
    "BUILD": _PickleReader.build_object,
    "NEWOBJ": _PickleReader.new,
}
