"""Frame: features by name, one row a node, an edge or a graph.

Takes: tensors and ids. Gives: the same tensors, checked. Runs at every step.
Source: DGL section 3 (graphs with features), with nothing written in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar, overload

import numpy as np
import torch
from torch import Tensor

from vgraph.errors import DeviceError, DTypeError, FeatureError, GraphError, NameLookupError, VGraphError
from vgraph.graphs.lazy_columns import Columns, Late, LazyColumns, LazyFeature, Named, Rows, by_name, some_rows

# (shape, dtype, device, the rows that are new) -> their features
Initializer: TypeAlias = Callable[[tuple[int, ...], torch.dtype, torch.device, slice], Tensor]
Default = TypeVar("Default")


class Origin(Protocol):
    """What is told that a feature is replaced."""

    intact: bool


class Scheme(NamedTuple):
    """What rows of a feature look like, as ``Graph.node_attr_schemes`` gives it.

    Attributes:
        shape: the shape of a row.
        dtype: the dtype.

    Source: DGL 1.1, ``dgl.frame.Scheme``.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.ones(3, 4)
        >>> g.node_attr_schemes()["h"]
        Scheme(shape=(4,), dtype=torch.float32)
    """

    shape: tuple[int, ...]
    dtype: torch.dtype


class Frame(MutableMapping[str, Tensor]):
    """Features by name, as in ``Graph.ndata``: tensors of ``num_rows`` rows on one device.

    A feature is replaced, never written to, so what autograd has saved stays as it was.

    Raises:
        FeatureError: a feature has another number of rows, or is on another device.
        DTypeError: a feature is no tensor, or its name no string.
        NameLookupError: there is no feature of that name.

    Source: DGL 1.1, ``dgl.frame.Frame``.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.ones(3, 4)
        >>> g.ndata
        {'h': float32 (3, 4)}
    """

    # `columns` may be read by whoever is in a hurry; what is set goes through the frame
    # `is_shared`: another graph has this frame, too, so that no rows may come or go
    __slots__ = ("columns", "device", "initializers", "is_shared", "kind", "num_rows", "origin", "type_name")

    def __init__(
        self,
        num_rows: int,
        device: torch.device,
        kind: str = "node",
        columns: Mapping[str, Tensor] | None = None,
        type_name: str = "",
    ) -> None:
        self.num_rows, self.device, self.kind, self.type_name = num_rows, device, kind, type_name
        self.columns: Columns = columns.copy() if isinstance(columns, LazyColumns) else dict(columns or ())
        self.initializers: Mapping[str | None, Initializer] | None = None
        self.origin: Origin | None = None
        self.is_shared = False

    def __getitem__(self, name: str) -> Tensor:
        try:
            return self.columns[name]
        except KeyError:
            raise self._missing(name) from None
        except TypeError:  # what has no hash is no name
            if name in self:
                raise
            raise self._missing(name) from None

    def __setitem__(self, name: object, value: object) -> None:
        if not isinstance(name, str) or not self._takes(value):
            raise self._misfit(name, value)
        if isinstance(value, LazyFeature):
            columns = self.columns if isinstance(self.columns, LazyColumns) else LazyColumns(self.columns)
            columns.promise(name, value)
            self.columns = columns
        elif isinstance(value, Tensor):
            self.columns[name] = value
            if self.origin is not None:
                self.origin.intact = False

    def _takes(self, value: object) -> bool:
        if not isinstance(value, Tensor):
            return isinstance(value, LazyFeature)
        is_rows = not value.is_nested and bool(value.ndim)
        return is_rows and value.shape[0] == self.num_rows and value.device == self.device

    def update(self, features: Named[Tensor] = (), /, **named: Tensor) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Sets several features: all of them, or none, where one does not fit.

        Args:
            features: a mapping of names to tensors (rows, ...), or pairs of these.
            **named: features by name, (rows, ...) each.

        Raises:
            FeatureError: a feature has another number of rows, or is on another device.
            DTypeError: a feature is no tensor, or its name no string.
        """
        given = by_name(features, named)
        for name, value in given.items():
            if not isinstance(name, str) or not self._takes(value):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise self._misfit(name, value)
        for name, value in given.items():
            self[name] = value

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise self._missing(name)
        del self.columns[name]
        if self.origin is not None:
            self.origin.intact = False

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.columns

    @overload
    def get(self, name: str) -> Tensor | None: ...
    @overload
    def get(self, name: str, default: Tensor | Default) -> Tensor | Default: ...
    def get(self, name: str, default: object = None) -> object:
        """A feature, or a default where there is none.

        Args:
            name: the feature's name.
            default: what to give in its place.

        Returns:
            A tensor (rows, ...), or ``default``.
        """
        return self.columns[name] if name in self else default

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{name!r}: {text}" for name, text in feature_texts(self).items()) + "}"

    def schemes(self) -> dict[str, Scheme]:
        """The row shape and the dtype of every feature.

        Returns:
            A dict of names; each entry has ``shape`` (without the rows) and ``dtype``.
        """
        return {name: Scheme(tuple(c.shape[1:]), c.dtype) for name, c in _described(self.columns).items()}

    def promised(self) -> Mapping[str, LazyFeature]:
        """The features that a loader is to fill in.

        Returns:
            What was set, by the name under which it was set.
        """
        return self.columns.promised() if isinstance(self.columns, LazyColumns) else {}

    def copy(self) -> Frame:
        """Another frame with the same tensors.

        Returns:
            A Frame; what is set in one is not in the other.
        """
        return self._like(self.num_rows, self.device, self.columns)

    def empty(self) -> Frame:
        """Another frame of as many rows without features.

        Returns:
            A Frame with the same initializers.
        """
        return self._like(self.num_rows, self.device, None)

    def _like(self, num_rows: int, device: torch.device, columns: Mapping[str, Tensor] | None) -> Frame:
        made = Frame(num_rows, device, self.kind, columns, self.type_name)
        made.initializers = self.initializers
        return made

    def to(self, device: torch.device, *, non_blocking: bool = False) -> Frame:
        """A frame with every feature moved to a device.

        Args:
            device: where to.
            non_blocking: as of ``torch.Tensor.to``.

        Returns:
            A Frame; features that are there already are shared.
        """
        if isinstance(self.columns, LazyColumns):
            return self._like(self.num_rows, device, self.columns.to(device, non_blocking=non_blocking))
        moved = {k: c.to(device, non_blocking=non_blocking) for k, c in self.columns.items()}
        return self._like(self.num_rows, device, moved)

    def take(self, ids: Tensor) -> Frame:
        """A frame with some of the rows, differentiably.

        Args:
            ids: (k,) whole numbers.

        Returns:
            A Frame of k rows, in the order of ``ids``.
        """
        if isinstance(self.columns, LazyColumns):
            return self.lazily(ids)
        taken = {name: column.index_select(0, ids) for name, column in self.columns.items()}
        return self._like(ids.shape[0], self.device, taken)

    def lazily(self, ids: Tensor | None = None) -> Frame:
        """A frame with some of the rows, each feature of which is gathered when it is first read.

        Args:
            ids: (k,) whole numbers, in range; None: all rows. What is taken of the frame is gathered so in any case.

        Returns:
            A Frame of k rows, in the order of ``ids``.
        """
        if ids is None:
            return self._like(self.num_rows, self.device, LazyColumns(self.columns))
        return self._like(ids.shape[0], self.device, some_rows(self.columns, ids))

    def later(self, name: str, column: Late) -> None:
        """Sets a feature that is made when it is first read.

        Args:
            name: the feature's name.
            column: what makes it.
        """
        if not isinstance(self.columns, LazyColumns):
            self.columns = LazyColumns(self.columns)
        self.columns.later(name, column)

    def initial(self, name: str, like: Tensor, rows: slice | None = None) -> Tensor:
        """Rows of a feature that are not there yet, as the initializer gives them (zeros).

        Args:
            name: the feature's name.
            like: a tensor of the row shape and dtype wanted.
            rows: which rows, from one to another; None: all.

        Returns:
            (rows, ...).

        Raises:
            FeatureError: the initializer has given something else.
        """
        rows = slice(0, self.num_rows) if rows is None else rows
        shape = (rows.stop - rows.start, *like.shape[1:])
        chosen = self.initializers or {}
        initializer = chosen.get(name, chosen.get(None))
        if initializer is None or like.device != self.device:
            return like.new_zeros(shape)
        return self._checked(name, initializer(shape, like.dtype, self.device, rows), shape)

    def _checked(self, name: str, made: object, shape: tuple[int, ...]) -> Tensor:
        """What an initializer has given; FeatureError: it is no tensor of that shape here."""
        if isinstance(made, Tensor) and (made.shape, made.device) == (shape, self.device):
            return made
        given = describe(made) if isinstance(made, Tensor) else f"a {type(made).__name__}"
        fact = f"the initializer of the {self._words} {name!r} gave {given}, not a tensor of shape {shape}"
        raise FeatureError(fact, cure="return torch.zeros(shape, dtype=dtype, device=device), or the like")

    def other_rows(self, name: str, new: Tensor, old: Tensor) -> FeatureError:
        """The error where some rows of a feature do not fit the others.

        Args:
            name: the feature's name.
            new: the rows that do not fit.
            old: the feature.

        Returns:
            A FeatureError, which is not raised.
        """
        return FeatureError(
            f"rows of {self.kind} feature {name!r} are {describe(new)}; the feature is {describe(old)}",
            cure="give rows of the same shape and dtype, or replace the whole feature",
        )

    def split(self, sizes: Sequence[int]) -> list[Frame]:
        """The frame in pieces, one after the other.

        Args:
            sizes: the number of rows of every piece.

        Returns:
            A list of Frames whose features are views of this one's.
        """
        columns = zip(*(column.split(list(sizes)) for column in self.columns.values()), strict=True)
        parts = list(columns) if self.columns else [()] * len(sizes)
        return [
            self._like(size, self.device, dict(zip(self.columns, part, strict=True)))
            for size, part in zip(sizes, parts, strict=True)
        ]

    def part(self, start: int, count: int) -> Frame:
        """Some neighbouring rows.

        Args:
            start: the first row.
            count: how many.

        Returns:
            A Frame whose features are views of this one's.
        """
        return self._like(count, self.device, {name: c.narrow(0, start, count) for name, c in self.columns.items()})

    def rows_alone(self, count: int) -> Frame:
        """A frame of another number of rows without features.

        Args:
            count: how many rows.

        Returns:
            A Frame with the same initializers.
        """
        return self._like(count, self.device, None)

    def rows(self, names: Sequence[str] | None) -> list[dict[str, Tensor]]:
        """The named features, row by row.

        Args:
            names: the features' names; None: none.

        Returns:
            A dict of views for every row.

        Raises:
            NameLookupError: there is no such feature.
        """
        named = [(name, self[name].unbind(0)) for name in names or ()]
        return [{name: rows[i] for name, rows in named} for i in range(self.num_rows)]

    # ------------------------------------------------------------ what can be wrong
    @property
    def _access(self) -> str:
        return f"graph.{self.kind}s[{self.type_name!r}].data" if self.type_name else f"graph.{self.kind[0]}data"

    @property
    def _words(self) -> str:
        return f"{self.kind} feature" + (f" of type {self.type_name!r}" if self.type_name else "")

    def _missing(self, name: object) -> VGraphError:
        there = ", ".join(map(repr, self.columns)) or "none"
        return NameLookupError(
            f"there is no {self._words} {name!r}; there is: {there}",
            cure=f"set it first, as in {self._access}[{name!r}] = tensor",
        )

    def _misfit(self, name: object, value: object) -> VGraphError:
        what, kind = f"{self._words} {name!r}", self.kind
        if not isinstance(name, str):
            return DTypeError(f"the name of {what} is no string", cure="name it")
        if not isinstance(value, Tensor):
            cure = "pass torch.as_tensor(value)"
            return DTypeError(f"{what} is a {type(value).__name__}, not a tensor", cure=cure)
        if value.is_nested:
            cure = "pad them, as torch.nested.to_padded_tensor(value, 0.0) does"
            return FeatureError(f"{what} is a nested tensor, whose rows have several shapes", cure=cure)
        if value.ndim and value.shape[0] == self.num_rows:
            cure = "move one of them with .to(device)"
            fact = f"{what} is on {value.device}; the graph is on {self.device}"
            return FeatureError(fact, cure=cure)
        rows = f"{value.shape[0]} rows" if value.ndim else "no rows (it is a scalar)"
        fact = f"{what} has {rows} where {self.num_rows} are needed"
        return FeatureError(fact, cure=f"give one row a {kind}, in order of ids")


# ---------------------------------------------------------------- rows come and go, with the graph's


def add_rows(frame: Frame, count: int, data: Mapping[str, Tensor] | None = None) -> None:
    """Appends rows; what ``data`` (count, ...) leaves out comes from the initializer, which gives zeros.

    Raises:
        FeatureError: ``data`` has other rows than ``count``, or of another shape than there are.
    """
    if not (data is None or isinstance(data, Mapping)):  # pyright: ignore[reportUnnecessaryIsInstance]
        fact = f"the features of new rows are a {type(data).__name__}"
        raise FeatureError(fact, cure='give them by name, as in {"h": rows}')
    fresh, old_count = frame.rows_alone(count), frame.num_rows
    fresh.update(data or {})
    columns: dict[str, Tensor] = {}
    for name in dict.fromkeys([*frame.columns, *fresh]):
        new, old = fresh.get(name), frame.columns.get(name)
        if old is None:
            assert new is not None
            old = frame.initial(name, new)
        elif new is None:
            new = frame.initial(name, old, slice(old_count, old_count + count))
        if _key(new) != _key(old):
            raise frame.other_rows(name, new, old)
        columns[name] = torch.cat([old, new])
    frame.columns, frame.num_rows = columns, old_count + count


def keep_rows(frame: Frame, ids: Tensor) -> None:
    """Drops all rows but those of ``ids`` (k,), in their order."""
    frame.columns, frame.num_rows = frame.take(ids).columns, ids.shape[0]


def concat_frames(frames: Sequence[Frame]) -> Frame:
    """One frame with the rows of all, one after the other, differentiably.

    Raises:
        FeatureError: a feature is missing in some, or differs in dtype, row shape or device.
            A frame without rows and features fits any.
    """
    first = frames[0]
    num_rows, columns = sum([frame.num_rows for frame in frames]), [frame.columns for frame in frames]
    joined: dict[str, Tensor] = {}
    if any(columns):
        full = [(i, frame) for i, frame in enumerate(frames) if frame.num_rows or frame.columns]
        joined = {name: _concat(name, full) for name in _common_names(full)}
    return Frame(num_rows, first.device, first.kind, joined, first.type_name)


def _common_names(frames: Sequence[tuple[int, Frame]]) -> list[str]:
    origin, first = frames[0]
    names = first.columns.keys()
    for index, frame in [(i, frame) for i, frame in frames if frame.columns.keys() != names]:
        lost = next((name for name in names if name not in frame), None)
        name = next(n for n in frame if n not in first) if lost is None else lost
        having, lacking = (index, origin) if lost is None else (origin, index)
        raise FeatureError(
            f"graph {lacking} has no {first.kind} feature {name!r}, which graph {having} has",
            cure="give every graph of the batch the same features",
        )
    return list(names)


def _concat(name: str, frames: Sequence[tuple[int, Frame]]) -> Tensor:
    columns = [frame.columns[name] for _, frame in frames]
    if len({column.dtype for column in columns}) == 1:
        try:
            return torch.cat(columns)
        except RuntimeError:
            pass  # torch says which sizes differ, not whose
    origin, first = frames[0]
    for index, frame in frames:
        if _key(frame[name]) != _key(first[name]):
            raise FeatureError(
                f"{first.kind} feature {name!r} of graph {index} is {describe(frame[name])}; "
                f"of graph {origin} it is {describe(first[name])}",
                cure="give every graph of the batch features of one dtype, row shape and device",
            )
    return torch.cat(columns)


def _key(column: Tensor) -> tuple[object, ...]:
    return column.dtype, column.device, column.shape[1:]


def feature_texts(frame: Frame) -> dict[str, str]:
    """What a line of text says of every feature, by name; nothing is gathered."""
    return {name: describe(column) for name, column in _described(frame.columns).items()}


def _described(columns: Columns) -> Mapping[str, Tensor | Rows]:
    """What has a shape and a dtype, without gathering."""
    return columns.described() if isinstance(columns, LazyColumns) else columns


def describe(tensor: Tensor | Rows) -> str:
    where = "" if tensor.device.type == "cpu" else f" on {tensor.device}"
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}{where}"


# ---------------------------------------------------------------- ids


def as_ids(values: object, what: str) -> Tensor:
    """Whole numbers as a tensor (k,), int32 if so given, else int64; ``what`` names it in an error.

    Raises:
        DTypeError: they are floats, booleans or no numbers, or sparse.
        GraphError: they have more than one dim, or do not fit int64.
    """
    plain = getattr(values, "as_tensor", None) if type(values) is not Tensor else None
    if plain is not None:  # ids in a class of PyG's, which wraps them
        values = plain()
    tensor = values.resolve_neg() if isinstance(values, Tensor) else _from_array(values, what)
    if tensor.layout != torch.strided:
        cure = f"pass {what} as a dense tensor"
        raise DTypeError(f"{what} is laid out as {tensor.layout}; ids are dense", cure=cure)
    if tensor.dtype in (torch.int32, torch.int64) and tensor.ndim == 1:
        return tensor
    if tensor.dtype == torch.bool or tensor.is_floating_point() or tensor.is_complex():
        wrong = tensor.flatten()
        value = f", which begins with {wrong[0].item()}," if wrong.numel() else ""
        fact = f"{what}{value} has dtype {tensor.dtype}; ids are whole numbers"
        raise DTypeError(fact, cure=f"pass {what} as int64 or int32")
    if tensor.ndim != 1:
        fact = f"{what} has shape {tuple(tensor.shape)}; ids have one dim"
        raise GraphError(fact, cure=f"flatten {what}")
    if tensor.dtype == torch.uint64 and tensor.numel() and int(tensor.long().min()) < 0:
        raise GraphError(f"{what} has an id from 2^63 up", cure="ids are below 2^63")
    return tensor.long()


def refuse_meta(ids: Tensor, what: str) -> None:
    """DeviceError: ids without numbers."""
    if ids.is_meta:
        fact = f"{what} is on the meta device, where there are no ids"
        raise DeviceError(fact, cure="pass them on the CPU or a GPU")


def _from_array(values: object, what: str) -> Tensor:
    try:
        if hasattr(values, "__dlpack__") and not isinstance(values, np.ndarray):
            return torch.from_dlpack(values)
        array = np.asarray(values)
        empty = array.size == 0 and not isinstance(values, np.ndarray)
        return torch.tensor(array, dtype=torch.int64 if empty else None, device="cpu")
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        fact, cure = f"{what} is no array of whole numbers: {error}", "pass a tensor, an array or a list"
        first = next(iter(values), None) if isinstance(values, Iterable) else None
        if isinstance(first, (str, bytes)):
            fact = f"{what} begins with {str(first)!r}, which is a name; ids are whole numbers"
            cure = "number the names, as names, numbers = numpy.unique(all_of_them, return_inverse=True) does"
        raise DTypeError(fact, cure=cure) from error


def resolve_ids(ids: object, count: int, device: torch.device, kind: str = "node") -> Tensor:
    """The rows meant by an int, a list, an array, a tensor, a slice or a mask: (k,) int64.

    Raises:
        GraphError: an id is not in [0, count).
        DTypeError: ids are not whole numbers.
    """
    if isinstance(ids, slice):
        return torch.arange(*_bounds(ids, count, kind), device=device)
    found = ids.resolve_neg() if isinstance(ids, Tensor) else _from_array(ids, f"{kind} ids")
    refuse_meta(found, f"{kind} ids")
    if found.dtype == torch.bool and found.shape == (count,):
        return found.to(device).nonzero().squeeze(1)
    _refuse_mask(found, count, kind)
    found = as_ids(found if found.ndim else found.reshape(1), f"{kind} ids").to(device, torch.int64)
    check_ids(found, count, f"{kind} ids", f"{kind}s")
    return found


def _bounds(ids: slice, count: int, kind: str) -> tuple[int, int, int]:
    """What a slice means of so many rows; DTypeError: a bound is no whole number, or the step is 0."""
    try:
        return ids.indices(count)
    except (TypeError, ValueError) as error:
        raise DTypeError(f"{kind} ids are {ids}: {error}", cure="give whole numbers") from None


def _refuse_mask(ids: Tensor, count: int, kind: str) -> None:
    """DTypeError: truth values, of which there are more or fewer than rows."""
    if ids.dtype != torch.bool or not ids.numel():
        return
    shape = ids.shape[0] if ids.ndim == 1 else tuple(ids.shape)
    fact = f"{kind} ids, which begins with {ids.flatten()[0].item()}, has dtype torch.bool; ids are whole numbers"
    raise DTypeError(fact, cure=f"pass ids, or a mask of {count}, one for each {kind}; this has {shape}")


def check_ids(ids: Tensor, count: int, what: str, rows: str) -> None:
    """GraphError naming the first id (k,) that is not in [0, count)."""
    if not ids.numel():
        return
    low, high = torch.aminmax(ids)
    if int(low) >= 0 and int(high) < count:
        return
    first = int(((ids < 0) | (ids >= count)).nonzero()[0])
    value = int(ids[first])
    fact = f"{what}[{first}] is {value}, " + ("which is negative" if value < 0 else f"where there are {count} {rows}")
    raise GraphError(fact, cure=f"{rows} are numbered from 0 to {count - 1}")
