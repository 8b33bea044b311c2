"""Columns of which some are gathered when they are first read: those of blocks and of other parts of a graph.

Takes: features of a whole graph, and ids. Gives: the rows of these ids. Runs at every step.
Source: DGL 1.1, ``dgl.frame`` (columns with an index); a part of a graph with many features costs what is read of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor

from vgraph.errors import DTypeError, FeatureError
from vgraph.native_part import empty

Value = TypeVar("Value")
Named: TypeAlias = Mapping[str, Value] | Iterable[tuple[str, Value]]  # what ``update`` of a mapping takes


class LazyFeature:
    """Stands for a feature in a graph that a sampler gives, until a loader puts the rows in its place.

    Args:
        name: the feature's name in the graph that is drawn from; None: the name under which this is set.
        id_: the rows' ids there (rows,); None: the feature ``"_ID"`` of the same nodes or edges.

    Source: DGL 1.1, ``dgl.LazyFeature``.
    """

    def __init__(self, name: str | None = None, id_: Tensor | None = None) -> None:
        self.name, self.id_ = name, id_

    def to(self, device: torch.device | str | int, **kwargs: object) -> LazyFeature:
        """Itself: rows are moved when they are there.

        Args:
            device: where to.
            **kwargs: as of ``torch.Tensor.to``.

        Returns:
            The same.
        """
        return self


def gathered(whole: Tensor, ids: Tensor) -> Tensor:
    """Some rows of a feature, (k, ...), differentiably.

    Many of them lie in memory that an earlier batch has left: to be given new one takes about as long as to copy them.
    """
    is_plain = type(whole) is Tensor and whole.device.type == "cpu" and not whole.requires_grad
    if not is_plain or torch.compiler.is_compiling():
        return whole.index_select(0, ids)
    return torch.index_select(whole, 0, ids, out=empty((ids.shape[0], *whole.shape[1:]), whole.dtype))


class Rows:
    """Some rows of a feature, gathered when they are first read; ``ids``: (k,) whole numbers."""

    __slots__ = ("_ids", "_made", "_whole", "device")

    def __init__(self, whole: Tensor, ids: Tensor, device: torch.device | None = None) -> None:
        self._whole, self._ids, self.device = whole, ids, whole.device if device is None else device
        self._made: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._ids.shape[0], *self._whole.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        return self._whole.dtype

    @property
    def _has_gradient(self) -> bool:
        return self._whole.requires_grad

    def read(self) -> Tensor:
        if self._made is not None:
            return self._made
        if self._has_gradient and not torch.is_grad_enabled():
            return self._gathered()  # is not kept: who reads it later may want its gradient
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False):  # a later reader may train on it
                self._made = self._gathered()
        else:
            self._made = self._gathered()
        return self._made

    def _gathered(self) -> Tensor:
        return gathered(self._whole, self._ids.to(self._whole.device)).to(self.device)

    def some(self, ids: Tensor) -> Rows:
        if self._made is not None:
            return Rows(self._made, ids, self.device)
        return Rows(self._whole, self._ids.index_select(0, ids.to(self._ids.device)), self.device)

    def to(self, device: torch.device, *, non_blocking: bool = False) -> Rows | Tensor:
        if self._made is not None:
            return self._made.to(device, non_blocking=non_blocking)
        return Rows(self._whole, self._ids, device)


class Late(Rows):
    """A column that a function makes when it is first read; ``count`` numbers of ``dtype``, on the CPU."""

    __slots__ = ("_count", "_dtype", "_make")

    def __init__(
        self, make: Callable[[], Tensor], count: int, dtype: torch.dtype, device: torch.device | None = None
    ) -> None:
        self._make, self._count, self._dtype, self._made = make, count, dtype, None
        self.device = torch.device("cpu") if device is None else device

    def __reduce__(self) -> tuple[object, ...]:
        """Elsewhere it is there already."""
        return torch.Tensor.detach, (self.read(),)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._count,)

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    @property
    def _has_gradient(self) -> bool:
        return False

    def _gathered(self) -> Tensor:
        return self._make().to(self._dtype).to(self.device)

    def some(self, ids: Tensor) -> Rows:
        return Rows(self.read(), ids, self.device)

    def to(self, device: torch.device, *, non_blocking: bool = False) -> Rows | Tensor:
        if self._made is not None:
            return self._made.to(device, non_blocking=non_blocking)
        return Late(self._make, self._count, self._dtype, device)


Column: TypeAlias = Tensor | Rows | LazyFeature


class LazyColumns(MutableMapping[str, Tensor]):
    """Features by name; reading gathers those that are not there yet, once for this and all its copies."""

    __slots__ = ("_columns",)

    def __init__(self, columns: Mapping[str, Column] | LazyColumns) -> None:
        self._columns = dict(columns._columns if isinstance(columns, LazyColumns) else columns)

    def __getitem__(self, name: str) -> Tensor:
        column = self._columns[name]
        if isinstance(column, Tensor):
            return column
        if isinstance(column, LazyFeature):
            fact = f"the feature {name!r} is a LazyFeature, which no loader has filled in yet"
            raise FeatureError(fact, cure="draw with a DataLoader, or set the feature to a tensor")
        return column.read()

    def __setitem__(self, name: str, value: Tensor) -> None:
        self._columns[name] = value

    def __delitem__(self, name: str) -> None:
        del self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def copy(self) -> LazyColumns:
        """Another one of the same columns: what either reads is there for both."""
        return LazyColumns(self)

    def promise(self, name: str, feature: LazyFeature) -> None:
        """Leaves a column to the loader."""
        self._columns[name] = feature

    def later(self, name: str, column: Late) -> None:
        """A column that is made when it is first read."""
        self._columns[name] = column

    def promised(self) -> dict[str, LazyFeature]:
        """What a loader is to fill in."""
        return {name: column for name, column in self._columns.items() if isinstance(column, LazyFeature)}

    def described(self) -> dict[str, Tensor | Rows]:
        """What has a shape and a dtype; nothing is gathered."""
        return {name: column for name, column in self._columns.items() if not isinstance(column, LazyFeature)}

    def to(self, device: torch.device, *, non_blocking: bool = False) -> LazyColumns:
        """The same on a device; what was not gathered yet is moved when it is read."""
        return LazyColumns({name: one.to(device, non_blocking=non_blocking) for name, one in self._columns.items()})


Columns: TypeAlias = dict[str, Tensor] | LazyColumns


def some_rows(columns: Mapping[str, Tensor | Rows] | LazyColumns, ids: Tensor) -> LazyColumns:
    """Some rows of features, (k,) ids, each gathered when it is first read."""
    given = columns.described() if isinstance(columns, LazyColumns) else columns
    return LazyColumns(
        {name: Rows(one, ids) if isinstance(one, Tensor) else one.some(ids) for name, one in given.items()}
    )


def by_name(features: Named[Value], named: Mapping[str, Value]) -> dict[str, Value]:
    """What ``update`` of features is given; DTypeError: it has no names."""
    try:
        return dict(features, **named)
    except (TypeError, ValueError) as error:
        fact = f"features are a {type(features).__name__}, without names"
        raise DTypeError(fact, cure='give them by name, as in {"h": rows}') from error
