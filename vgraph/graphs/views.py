"""Views: ``g.nodes``, ``g.edges``, ``g.ndata`` of several types, and local scopes.

Takes: frames, ids and names of types. Gives: features to read and set. Runs at every step.
Source: DGL section 3; nothing is written in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from vgraph.errors import DTypeError, NameLookupError
from vgraph.graphs.frame import Frame, feature_texts, resolve_ids
from vgraph.graphs.lazy_columns import Named, by_name
from vgraph.graphs.types import EdgeType

Key = TypeVar("Key", str, EdgeType)  # the name of a type


class RowsView(MutableMapping[str, Tensor]):
    """The features of some rows: reading copies them, writing replaces the whole feature.

    A feature that is not there yet is zero in all other rows. ``ids``: (k,) int64.
    """

    __slots__ = ("_frame", "_ids")

    def __init__(self, frame: Frame, ids: Tensor) -> None:
        self._frame, self._ids = frame, ids

    def __getitem__(self, name: str) -> Tensor:
        return self._frame[name].index_select(0, self._ids)

    def __setitem__(self, name: str, value: Tensor) -> None:
        self._frame[name] = self._whole(name, value)

    def update(self, features: Named[Tensor] = (), /, **named: Tensor) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Sets several features in these rows: all of them, or none, where one does not fit."""
        self._frame.update({name: self._whole(name, rows) for name, rows in by_name(features, named).items()})

    def _whole(self, name: str, value: Tensor) -> Tensor:
        """The feature with these rows replaced, checked."""
        frame, ids = self._frame, self._ids
        # checked as a frame of its own, so that one rule has one message
        Frame(ids.shape[0], frame.device, frame.kind)[name] = value
        old = frame[name] if name in frame else frame.initial(name, value)
        if old.shape[1:] != value.shape[1:] or old.dtype != value.dtype:
            raise frame.other_rows(name, value, old)
        return old.index_copy(0, ids, value)

    def __delitem__(self, name: str) -> None:
        raise DTypeError("some rows of a feature cannot be removed", cure="remove the whole feature")

    def __iter__(self) -> Iterator[str]:
        return iter(self._frame)

    def __len__(self) -> int:
        return len(self._frame)

    def __repr__(self) -> str:
        return repr(self._frame.take(self._ids))


class TypedData(MutableMapping[str, dict[Key, Tensor]]):
    """Features of several types: names to tensors by type, as in ``g.ndata["h"]["user"]``."""

    __slots__ = ("_frames", "_type")

    def __init__(self, frames: Mapping[Key, Frame], find_type: Callable[[Any], Key]) -> None:
        self._frames, self._type = frames, find_type

    def __getitem__(self, name: str) -> dict[Key, Tensor]:
        found = {key: frame[name] for key, frame in self._frames.items() if name in frame}
        if not found:
            there = ", ".join(map(repr, self)) or "none"
            fact = f"no type has a feature {name!r}; there is: {there}"
            raise NameLookupError(fact, cure="set it first, for one type or more")
        return found

    def __setitem__(self, name: str, value: object) -> None:
        self.update({name: value})

    def update(self, features: Named[object] = (), /, **named: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Sets several features, each by type: all of them, or none, where one does not fit."""
        changed: dict[Key, dict[str, Tensor]] = {key: {} for key in self._frames}
        for name, value in by_name(features, named).items():
            for key, rows in self._by_type(name, value):
                changed[key][name] = rows
        for key, own in changed.items():
            self._frames[key].empty().update(own)  # checked before anything is set
        for key, own in changed.items():
            self._frames[key].update(own)

    def _by_type(self, name: str, value: object) -> list[tuple[Key, Tensor]]:
        if not isinstance(value, Mapping):
            fact = f"{name!r} is a {type(value).__name__} where there are {len(self._frames)} types"
            cure = "pass tensors by type, as in {" + repr(next(iter(self._frames))) + ": tensor}"
            raise DTypeError(fact, cure=cure)
        return [(self._type(key), tensor) for key, tensor in value.items()]

    def __delitem__(self, name: str) -> None:
        _ = self[name]
        for frame in self._frames.values():
            frame.columns.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for frame in self._frames.values() for name in frame))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        found = {name: dict[Key, str]() for name in self}
        for key, frame in self._frames.items():
            for name, text in feature_texts(frame).items():
                found[name][key] = text
        shown = (f"{n!r}: {{{', '.join(f'{k!r}: {text}' for k, text in own.items())}}}" for n, own in found.items())
        return "{" + ", ".join(shown) + "}"


class Selection(NamedTuple):
    """Some nodes or edges; ``data`` maps feature names to their rows."""

    data: MutableMapping[str, Tensor]


class FeatureView:
    """What ``Graph.nodes`` and ``Graph.edges`` give: called, all of them; indexed by ids or a type, some.

    A key is ids (k,) (also a mask or a slice), the name of a type, or both. Reading ``data`` of some rows copies
    them; writing it replaces the whole feature, and a feature that is not there yet is zero in all other rows.

    Source: DGL 1.1, ``dgl.view.HeteroNodeView``.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.nodes[[2]].data["h"] = torch.ones(1)
        >>> g.ndata["h"]
        tensor([0., 0., 1.])
    """

    __slots__ = ("_call", "_frame", "split")

    def __init__(
        self, frame: Callable[..., Frame], call: Callable[..., Any], split: Callable[[object], tuple[object, object]]
    ) -> None:
        self._frame, self._call, self.split = frame, call, split

    def __call__(self, *args: object, **named: object) -> Any:
        return self._call(*args, **named)

    def __getitem__(self, key: object) -> Selection:
        ids, name = self.split(key)
        frame = self._frame(name)
        if ids is None:
            return Selection(frame)
        return Selection(RowsView(frame, resolve_ids(ids, frame.num_rows, frame.device, frame.kind)))


def typed(frames: Mapping[Key, Frame], find_type: Callable[[Any], Key]) -> Any:
    """The only frame, or features by type."""
    return TypedData(frames, find_type) if len(frames) > 1 else next(iter(frames.values()))


def is_full(key: object) -> bool:
    """Whether a key in brackets is ``:``."""
    return isinstance(key, slice) and key == slice(None)


def split_node_key(key: object) -> tuple[object, object]:
    """The ids and the type that a key in brackets names; None: all, and the only one."""
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], str):
        return key[0], key[1]
    return (None, key) if isinstance(key, str) else (None if is_full(key) else key, None)


class LocalScope:
    """The context of ``Graph.local_scope``: at its end features and edges are again what they were at its beginning.

    Source: DGL 1.1, ``dgl.DGLGraph.local_scope``.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> with g.local_scope():
        ...     g.add_nodes(1)
        >>> g.num_nodes()
        3
    """

    __slots__ = ("_frames", "_graph", "_saved", "_structure")

    def __init__(self, graph: dict[str, object], frames: Sequence[Frame]) -> None:
        self._graph, self._frames = graph, frames

    def __enter__(self) -> None:
        # a frame stays the same object, so that a reference to it sees the scope end as well
        self._structure = self._graph.copy()
        self._saved = [(frame.columns, frame.num_rows, frame.initializers) for frame in self._frames]
        for frame in self._frames:
            frame.columns = frame.columns.copy()

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._graph.update(self._structure)
        for frame, saved in zip(self._frames, self._saved, strict=True):
            frame.columns, frame.num_rows, frame.initializers = saved


class AllOrNothing(LocalScope):
    """The context of a call that changes a graph: where it raises, features and edges are again what they were."""

    __slots__ = ()

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            super().__exit__(kind, *error)
