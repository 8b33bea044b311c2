"""Known specs: kernels that are kept are found by their KernelSpecs, so that their source need not be printed again.

Takes: KernelSpecs. Gives: compiled functions, or None where none are kept. Runs once per function.
To print a source takes as long as to find out what is to be printed. A file beside the libraries says of specs which
source they became; it is named by all that the printing reads: the specs, and the text of what prints.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import torch

from vgraph.fusion.cpu.build import Compiled, digest_of, find_kept
from vgraph.fusion.kernel_cache import cache_folder, put_whole, read_whole
from vgraph.fusion.widths import vector_bytes
from vgraph.ir.kernel import KernelSpec, Place
from vgraph.ir.program import Op, Rows, Value
from vgraph.user_line import PACKAGE

_PRINTING = ("fusion", "ir", "passes")  # packages whose code decides what a source says
_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, Rows)


def find_known(specs: Sequence[KernelSpec]) -> list[Compiled] | None:
    """The kernels of these specs, if they were compiled before."""
    note = _note_of(specs)
    digest = None if note is None else read_whole(note)
    return None if digest is None else find_kept(digest.decode(), len(specs))


def remember(specs: Sequence[KernelSpec], source: str) -> None:
    """The specs became this source."""
    note = _note_of(specs)
    if note is not None:
        put_whole(digest_of(source).encode(), note)


def _note_of(specs: Sequence[KernelSpec]) -> Path | None:
    """The file that says so; None where there is no folder, or an op has an argument that no text tells."""
    folder, text = cache_folder(), describe(specs)
    if folder is None or text is None:
        return None
    return folder / f"{digest_of(text + _of_printing() + str(vector_bytes()))}.source"


@cache
def _of_printing() -> str:
    """The digest of all code that prints."""
    found = hashlib.sha256(torch.__version__.encode())
    for package in _PRINTING:
        for file in sorted(Path(PACKAGE, package).rglob("*.py")):
            found.update(file.read_bytes())
    return found.hexdigest()


def describe(specs: Sequence[KernelSpec]) -> str | None:
    """All of KernelSpecs that their source depends on: everything but the user's lines.

    Returns:
        The text; None where an op has an argument, such as a tensor, that is no more than an address in it.
    """
    description = _Description()
    try:
        return "\n".join(line for spec in specs for line in description.lines(spec))
    except TypeError:
        return None


class _Description:
    """Values are told in full where they are first named."""

    def __init__(self) -> None:
        self.told = set[int]()

    def lines(self, spec: KernelSpec) -> Iterator[str]:
        yield f"{spec.own} {spec.in_loop} {sorted(spec.given.items())}"
        yield self.leaf(spec.loads)
        yield self.leaf(spec.stores)
        yield from (f"{i}: {self.place(place)}" for i, place in spec.places.items())
        yield from map(self.op, spec.ops)
        for part in spec.parts:
            yield from self.lines(part)

    def place(self, place: Place) -> str:
        return f"{self.leaf(place.base)} {place.end} {place.offset} {place.strides} {place.shape}"

    def op(self, op: Op) -> str:
        flags = f"{op.returns_sequence:d}{op.is_rowwise:d}"
        return f"{self.leaf(op.results)} = {op.target!r} {flags} {self.leaf(op.args)} {self.leaf(op.kwargs)}"

    def leaf(self, leaf: object) -> str:
        if isinstance(leaf, Value):
            return self.value(leaf)
        if isinstance(leaf, (tuple, list)):
            return f"({' '.join(map(self.leaf, leaf))})"
        if isinstance(leaf, _PLAIN):
            return repr(leaf)
        if isinstance(leaf, Mapping):
            return " ".join([f"{key}={self.leaf(value)}" for key, value in leaf.items()])
        raise TypeError(f"{type(leaf).__name__} has no text")

    def value(self, value: Value) -> str:
        if value.id in self.told:
            return f"%{value.id}"
        self.told.add(value.id)
        return f"%{value.id}: {value.space} {value.dtype} {value.shape}"
