"""``dgl.frame``: features by name, apart from any graph.

Takes: tensors. Gives: columns, and frames of them. Runs at every call. Graphs themselves have ``vgraph.Frame``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping

import torch
from torch import Tensor

from vgraph.compat.initial import zero_initializer
from vgraph.errors import FeatureError
from vgraph.graphs.frame import Initializer, Scheme

__all__ = ["Column", "Frame", "Scheme", "infer_scheme", "zero_initializer"]

Device = torch.device | str | int


def infer_scheme(tensor: Tensor) -> Scheme:
    """The shape of a row and the dtype."""
    return Scheme(tuple(tensor.shape[1:]), tensor.dtype)


class Column:
    """A feature; rows that are chosen from another column are gathered when they are read."""

    def __init__(self, storage: Tensor, scheme: Scheme | None = None, index: Tensor | None = None) -> None:
        self.storage, self.index = storage, index
        self.scheme = infer_scheme(storage) if scheme is None else scheme

    @staticmethod
    def create(data: Tensor | Column) -> Column:
        """A column of a tensor, or one that begins as another is."""
        return data.clone() if isinstance(data, Column) else Column(data)

    @property
    def data(self) -> Tensor:
        """The rows."""
        if self.index is not None:
            self.storage = self.storage.index_select(0, self.index.to(self.storage.device).long())
            self.index = None
        return self.storage

    @data.setter
    def data(self, val: Tensor) -> None:
        self.storage, self.index = val, None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        return self.scheme.shape

    @property
    def dtype(self) -> torch.dtype:
        """The dtype."""
        return self.scheme.dtype

    def __len__(self) -> int:
        return len(self.storage if self.index is None else self.index)

    def __repr__(self) -> str:
        return repr(self.data)

    def __getitem__(self, rowids: Tensor) -> Tensor:
        return self.data[rowids]

    def __setitem__(self, rowids: Tensor, feats: Tensor) -> None:
        self.update(rowids, feats)

    def update(self, rowids: Tensor, feats: Tensor) -> None:
        """Replaces rows, in a new tensor."""
        self._check(infer_scheme(feats))
        self.data = self.data.index_copy(0, rowids.long(), feats)

    def extend(self, feats: Tensor, feat_scheme: Scheme | None = None) -> None:
        """Appends rows."""
        self._check(infer_scheme(feats) if feat_scheme is None else feat_scheme)
        self.data = torch.cat([self.data, feats])

    def _check(self, scheme: Scheme) -> None:
        if scheme != self.scheme:
            raise FeatureError(f"rows of {scheme} for a column of {self.scheme}", cure="give rows of the same kind")

    def subcolumn(self, rowids: Tensor) -> Column:
        """Some rows, by number."""
        index = rowids if self.index is None else self.index[rowids.to(self.index.device).long()]
        return Column(self.storage, self.scheme, index)

    def to(self, device: Device, non_blocking: bool = False) -> Column:
        """The column on a device."""
        return Column(self.data.to(device, non_blocking=non_blocking))

    def astype(self, new_dtype: torch.dtype) -> Column:
        """The column with another dtype."""
        return Column(self.data.to(new_dtype))

    def clone(self) -> Column:
        """Another column of the same tensor."""
        return Column(self.storage, self.scheme, self.index)

    def deepclone(self) -> Column:
        """Another column of a copy."""
        return Column(self.data.clone())


class Frame(MutableMapping[str, Tensor]):
    """Columns by name, all of the same number of rows; the names are iterated, tensors are read and set."""

    def __init__(self, data: Mapping[str, Tensor | Column] | None = None, num_rows: int | None = None) -> None:
        columns = {name: Column.create(column) for name, column in (data or {}).items()}
        self.num_rows = num_rows if num_rows is not None else next(map(len, columns.values()), 0)
        self._columns: dict[str, Column] = {}
        self._initializers: dict[str | None, Initializer] = {}
        for name, column in columns.items():
            self.update_column(name, column)

    def __getitem__(self, name: str) -> Tensor:
        return self._columns[name].data

    def __setitem__(self, name: str, data: Tensor) -> None:
        self.update_column(name, data)

    def __delitem__(self, name: str) -> None:
        del self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return repr(dict(self))

    @property
    def num_columns(self) -> int:
        """How many columns there are."""
        return len(self._columns)

    @property
    def schemes(self) -> dict[str, Scheme]:
        """What rows of each column look like."""
        return {name: column.scheme for name, column in self._columns.items()}

    def get_initializer(self, column: str | None = None) -> Initializer | None:
        """What fills new rows of a column, if that was said."""
        return self._initializers.get(column, self._initializers.get(None))

    def set_initializer(self, initializer: Initializer, column: str | None = None) -> None:
        """Says what fills new rows: of a column, or of all of which nothing else is said."""
        self._initializers[column] = initializer

    def update_column(self, name: str, data: Tensor | Column) -> None:
        """Adds or replaces a column."""
        column = Column.create(data)
        if len(column) != self.num_rows:
            fact = f"{name!r} has {len(column)} rows where the frame has {self.num_rows}"
            raise FeatureError(fact, cure="give one a row")
        self._columns[name] = column

    def add_column(self, name: str, scheme: Scheme, ctx: Device) -> None:
        """Adds a column that its initializer fills, where there is none of this name."""
        if name not in self._columns:
            self._columns[name] = Column(self._made(name, scheme, ctx, self.num_rows))

    def update_row(self, rowids: Tensor, data: Mapping[str, Tensor]) -> None:
        """Replaces rows of some columns; those that are new are filled first."""
        for name, rows in data.items():
            self.add_column(name, infer_scheme(rows), rows.device)
            self._columns[name].update(rowids, rows)

    def add_rows(self, num_rows: int) -> None:
        """Appends rows that initializers fill."""
        for name, column in self._columns.items():
            column.extend(self._made(name, column.scheme, column.data.device, num_rows))
        self.num_rows += num_rows

    def append(self, other: Mapping[str, Tensor] | Frame) -> None:
        """Appends another frame's rows; what either lacks, initializers fill."""
        given = other if isinstance(other, Frame) else Frame(other)
        for name, column in given._columns.items():
            self.add_column(name, column.scheme, column.data.device)
        for name, column in self._columns.items():
            rows = given.get(name)
            made = self._made(name, column.scheme, column.data.device, given.num_rows) if rows is None else rows
            column.extend(made)
        self.num_rows += given.num_rows

    def _made(self, name: str, scheme: Scheme, ctx: Device, count: int) -> Tensor:
        fill = self.get_initializer(name) or zero_initializer
        place = slice(self.num_rows, self.num_rows + count) if name in self._columns else slice(0, count)
        return fill((count, *scheme.shape), scheme.dtype, torch.device(ctx), place)

    def clear(self) -> None:
        """Removes all columns and rows."""
        self._columns, self.num_rows = {}, 0

    def clone(self) -> Frame:
        """Another frame of the same tensors."""
        return self._of(Column.clone, self.num_rows)

    def deepclone(self) -> Frame:
        """Another frame of copies."""
        return self._of(Column.deepclone, self.num_rows)

    def subframe(self, rowids: Tensor) -> Frame:
        """Some rows, by number."""
        return self._of(lambda column: column.subcolumn(rowids), len(rowids))

    def to(self, device: Device, non_blocking: bool = False) -> Frame:
        """The frame on a device."""
        return self._of(lambda column: column.to(device, non_blocking), self.num_rows)

    def half(self) -> Frame:
        """Floating-point columns as float16."""
        return self._floating(torch.float16)

    def bfloat16(self) -> Frame:
        """Floating-point columns as bfloat16."""
        return self._floating(torch.bfloat16)

    def float(self) -> Frame:
        """Floating-point columns as float32."""
        return self._floating(torch.float32)

    def double(self) -> Frame:
        """Floating-point columns as float64."""
        return self._floating(torch.float64)

    def _floating(self, kind: torch.dtype) -> Frame:
        return self._of(lambda c: c.astype(kind) if c.dtype.is_floating_point else c.clone(), self.num_rows)

    def _of(self, change: Callable[[Column], Column], num_rows: int) -> Frame:
        made = Frame({name: change(column) for name, column in self._columns.items()}, num_rows)
        made._initializers = self._initializers
        return made
