"""Kept halos: rows of sources that are the same at every step travel once.

Takes: columns that messages read of sources. Gives: those with the rows of other ranks, where they came before. Runs
at every call. All ranks keep the same columns: what one of them has changed, all exchange again.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from vgraph.runtime.distributed.ranks import Ranks

ROOM = 2**28  # bytes of a rank where nobody says how many
_PATIENCE = 2  # how often a column may have changed before it is no longer kept
Key = tuple[str, str, tuple[int, ...], torch.dtype, torch.device]


@dataclass(eq=False)
class _Kept:
    """A column as it was, and its rows on all sources; None: nobody has the column any more."""

    of: ReferenceType[Tensor]
    version: int
    rows: Tensor | None
    size: int
    changes: int

    def is_of(self, column: Tensor) -> bool:
        return self.rows is not None and self.of() is column and self.version == column._version


@dataclass(eq=False)
class KeptHalos:
    """What ranks have kept. ``room``: bytes of a rank; ``prefers``: also where less than the column would travel.

    All that decides is alike on all ranks: they ask for the same columns, and tell each other what has changed.
    """

    ranks: Ranks
    room: int = ROOM
    prefers: bool = False
    _kept: dict[Key, _Kept] = field(default_factory=dict["Key", "_Kept"])
    _restless: set[Key] = field(default_factory=set["Key"])

    def here(self, ntype: str, columns: Mapping[str, Tensor]) -> frozenset[str]:
        """Names of columns that have come before, and are the same on every rank. All ranks ask."""
        able = {name: column for name, column in sorted(columns.items()) if _is_able(column)}
        known = {name: self._kept[key] for name, one in able.items() if (key := _key(ntype, name, one)) in self._kept}
        if not known:
            return frozenset()
        differ = [not kept.is_of(able[name]) for name, kept in known.items()]
        told = self.ranks.max(torch.tensor(differ, device="cpu").to(torch.uint8), f"kept {','.join(known)}")
        return frozenset(name for name, changed in zip(known, told.tolist(), strict=True) if not changed)

    def wants(self, ntype: str, name: str, column: Tensor, num_rows: int) -> bool:
        """Whether a column would be kept; ``num_rows``: of the rank that has most.

        Not without gradients: hidden layers have none then, and change.
        """
        key = _key(ntype, name, column)
        if key in self._restless or not (_is_able(column) and torch.is_grad_enabled()):
            return False
        taken = sum(kept.size for other, kept in self._kept.items() if other != key)
        return taken + num_rows * _row_bytes(column) <= self.room

    def rows(self, ntype: str, name: str, column: Tensor) -> Tensor:
        """Those of what is ``here``."""
        rows = self._kept[_key(ntype, name, column)].rows
        assert rows is not None
        return rows

    def keep(self, ntype: str, name: str, column: Tensor, rows: Tensor, num_rows: int) -> None:
        """Keeps what has come, for as long as somebody has the column; not if it has changed too often."""
        key = _key(ntype, name, column)
        before = self._kept.pop(key, None)
        changes = 0 if before is None else before.changes + 1
        if changes > _PATIENCE:
            self._restless.add(key)
            return

        def forget(_: object) -> None:
            kept.rows = None

        kept = _Kept(ref(column, forget), column._version, rows, num_rows * _row_bytes(column), changes)
        self._kept[key] = kept


def _is_able(column: Tensor) -> bool:
    return not (column.requires_grad or column.is_inference())


def _key(ntype: str, name: str, column: Tensor) -> Key:
    return ntype, name, tuple(column.shape[1:]), column.dtype, column.device


def _row_bytes(column: Tensor) -> int:
    return column.shape[1:].numel() * column.element_size()


@dataclass(eq=False)
class ExchangedOnce:
    """Rows that have come while messages of several relations are passed: those that read one column share it."""

    readers: Mapping[str, int] = field(default_factory=dict[str, int])
    _found: dict[tuple[object, ...], tuple[Tensor, Tensor]] | None = None

    @contextmanager
    def during(self, readers: Mapping[str, int]) -> Generator[None]:
        """``readers``: by type of node how many relations begin there."""
        if self._found is not None:  # within another such call
            yield
            return
        self.readers, self._found = dict(readers), {}
        try:
            yield
        finally:
            self.readers, self._found = {}, None

    @property
    def is_on(self) -> bool:
        """Whether messages of several relations are passed."""
        return self._found is not None

    def find(self, ntype: str, column: Tensor) -> Tensor | None:
        found = (self._found or {}).get(_place(ntype, column))
        return None if found is None else found[1]

    def note(self, ntype: str, column: Tensor, rows: Tensor) -> None:
        if self._found is not None:
            self._found[_place(ntype, column)] = column, rows  # with the column, so that its id stays its own


def _place(ntype: str, column: Tensor) -> tuple[object, ...]:
    version = 0 if column.is_inference() else column._version
    return ntype, id(column), version, torch.is_grad_enabled()
