"""RowTensor: a tensor that knows what its rows are, and moves them when rows of two kinds meet.

Takes: calls of torch functions. Gives: the same calls on rows of one space. Runs while a function is traced.
Source: Cavs section 3.1 (a vertex's own value meets its children's).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar, overload

import torch
from torch import Tensor

from vgraph.capture.errors import CaptureError
from vgraph.capture.record.aliases import leaves_of
from vgraph.capture.record.row_counts import as_count, count_of, plain_arguments
from vgraph.capture.rows.batched_matmul import contracted, multiplied
from vgraph.capture.rows.row_mixing import over_rows
from vgraph.capture.rows.row_writing import check_whole, check_written
from vgraph.capture.rows.slot_reductions import (
    KEEPS_SLOTS,
    PLACES,
    REDUCERS,
    STEPWISE,
    Context,
    move_rows,
    reduce_slots,
    reducer_names,
    takes_complex,
)
from vgraph.capture.rows.torch_overrides import EVERYWHERE, STAND_INS
from vgraph.errors import FunctionError
from vgraph.ir.moves import Gather
from vgraph.ir.program import map_leaves
from vgraph.ir.space import EDGE, GRAPH, SHARED, VERTEX, Space
from vgraph.user_line import recorded_line

T = TypeVar("T")
TorchFunction = Callable[..., Any]
_REDUCERS = reducer_names()
_DEFAULT_OVERRIDE: object = Tensor.__torch_function__.__func__
# What a subclass may override; others are in every class.
_OF_TENSORS = frozenset(dir(Tensor)) - set("__module__ __doc__ __annotations__ __dict__ __weakref__ __new__".split())


class RowContext(Context, Protocol):
    """A Context in which a function runs.

    ``mailbox``: sizes of vertices and slots, where slots are dim 1 beside the vertices.
    ``row_sizes``: sizes that count rows, or slots that stand for any degree; comparing them is noticed.
    ``widens``: states of unknown width are one column wide and widen where a matrix meets them.
    ``guesses_whole``: states of unknown dtype are whole numbers, if nothing speaks against it.
    ``per_vertex``: a vertex function, in which nothing may mix its rows.
    """

    @property
    def mailbox(self) -> tuple[int, int] | None: ...
    @property
    def row_sizes(self) -> frozenset[int]: ...
    @property
    def widens(self) -> bool: ...
    @property
    def guesses_whole(self) -> bool: ...
    @property
    def per_vertex(self) -> bool: ...

    def note_branch(self) -> None:
        """A number of rows was compared: the recording holds for that number alone."""
        ...

    def note_look(self, name: str) -> None:
        """A method of a tensor looks at its numbers."""
        ...

    def note_whole(self, name: str) -> None:
        """A function of torch joins dims of rows with those of features, and keeps rows apart all the same."""
        ...

    def note_mixed(self, error: FunctionError) -> None:
        """All rows of vertices were reduced to one number: of one vertex alone that is right, of many the error."""
        ...

    def note_count(self) -> None:
        """``len``, ``int`` or a text made a plain number of rows, which notices no comparison."""
        ...

    def is_numbering(self, numbers: Tensor) -> bool:
        """Whether the recording has made of its number of rows what ``torch.arange`` gives."""
        ...


class RowTensor(Tensor):
    """Rows of one space; behaves as a plain tensor otherwise."""

    vg_space: Space
    vg_context: RowContext

    @classmethod
    def __torch_function__(
        cls,
        func: TorchFunction,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        args, named = plain_arguments(args, kwargs)
        rows = [leaf for leaf in leaves_of((args, tuple(named.values()))) if isinstance(leaf, RowTensor)]
        if rows and func in _LOOKS and rows[0].vg_context.per_vertex:
            rows[0].vg_context.note_look(func.__name__)
        if not rows or func in PLAIN:
            out = super().__torch_function__(func, types, args, named)
            return watched(func, out, rows[0].vg_context) if rows else out
        context, space = rows[0].vg_context, finest(row.vg_space for row in rows)
        if func in _RECURRENT:
            _refuse_slots_in_turn(func.__name__, context, args)
        if context.per_vertex and func in _AMONG_ROWS and not _is_of_one_place(func, args):
            context.note_whole(func.__name__)
        instead = _in_other_words(func, context, args, named)
        if instead is not None:
            return instead
        name = _REDUCERS.get(func)
        if name is not None and not (name in PLACES and context.mailbox is None):
            reduced = _reduce(name, context, space, args, named)
            if reduced is not None:
                return reduced
            error = _mixing(name, args, named) if context.per_vertex else None
            if error is not None:
                if space == EDGE or args[1:] or named.keys() - {"dtype"}:
                    raise error
                context.note_mixed(error)  # perhaps for a branch alone, which is taken one vertex at a time
                return func(plain(args[0]), **named)
        check_written(func, args, named, space)
        args, values = map_leaves((args, tuple(named.values())), lambda leaf: lift(leaf, space))
        if context.widens and func in _MATRIX_PRODUCTS:
            args = (_widened(args[0], args[1], func), *args[1:])
        named = dict(zip(named, values, strict=True))
        out = by_place(func, args, named)
        out = super().__torch_function__(func, types, args, named) if out is None else out
        if out is NotImplemented:
            out = super().__torch_function__(func, _without_plain_subclasses(types, context), args, named)
        out = map_leaves(out, lambda leaf: as_rows(leaf, space, context) if isinstance(leaf, Tensor) else leaf)
        if context.guesses_whole:
            check_whole(args, named, out)
        return out

    def bare(self) -> Tensor:
        """The tensor itself, without the knowledge of rows."""
        return self.as_subclass(Tensor)

    def seen_as(self, space: Space, context: RowContext) -> RowTensor:
        """The same rows, seen as rows of ``space``."""
        out = self.as_subclass(RowTensor) if hasattr(self, "vg_space") else self
        out.vg_space, out.vg_context = space, context
        return out

    def brought_to(self, space: Space) -> RowTensor:
        """The rows in a finer space: graph or subset to vertex, vertex to edge."""
        context, rows, at = self.vg_context, plain(self), self.vg_space
        if at != VERTEX:
            rows = move_rows(context, Gather("graph" if at == GRAPH else at.key), rows)
        if space == EDGE:
            rows = move_rows(context, Gather("dst"), rows)
        return as_rows(rows, EDGE if space == EDGE else VERTEX, context)

    def num_rows(self) -> int:
        """The size of the leading dim; the user's code has not asked for it."""
        return self.as_subclass(Tensor).shape[0]

    def row_shape(self) -> tuple[int, ...]:
        """The sizes of the other dims; the user's code has not asked for them."""
        return tuple(self.as_subclass(Tensor).shape[1:])


def _without_plain_subclasses(types: Iterable[type], context: RowContext) -> list[type]:
    """The classes of tensors that say themselves what becomes of them beside rows.

    A subclass without ``__torch_function__`` of its own does not, and torch joins no two unrelated classes. A vertex
    function computes with it as with a plain tensor.

    Raises:
        CaptureError: it overrides a method of Tensor, or torch can run this function, with results of that class.
    """
    found: list[type] = []
    for kind in types:
        override = getattr(kind, "__torch_function__", None)
        if getattr(override, "__func__", None) is not _DEFAULT_OVERRIDE:
            found.append(kind)
            continue
        own = {name for each in kind.__mro__[: kind.__mro__.index(Tensor)] for name in vars(each)}
        if not context.per_vertex or own & _OF_TENSORS:
            raise CaptureError(
                f"it computes with a tensor of the class {kind.__name__}, which rows do not become",
                recorded_line(),
                cure="use it as a plain tensor: .as_subclass(torch.Tensor)",
            )
    return found


def _is_of_one_place(func: TorchFunction, args: tuple[Any, ...]) -> bool:
    """Whether this is attention of rows (1, rows, features) among themselves, which is recorded as it stands."""
    is_attention = func is torch.nn.functional.multi_head_attention_forward
    return is_attention and all(plain(arg).dim() == 3 and plain(arg).shape[0] == 1 for arg in args[:3])


def _in_other_words(
    func: TorchFunction, context: RowContext, args: tuple[object, ...], named: Mapping[str, object]
) -> Tensor | None:
    """What a function gives, made by others that keep rows apart; None: it runs itself."""
    if func is Tensor.__getitem__:
        return _one_of_each_row(*args) if context.per_vertex else None
    stand_in = STAND_INS.get(func) if context.per_vertex or func in EVERYWHERE else None
    return None if stand_in is None else stand_in(*args, **named)


def _one_of_each_row(rows: object, index: object) -> Tensor | None:
    """``rows[torch.arange(len(rows)), ids]`` as a ``gather`` along dim 1, which reads each row alone; else None."""
    if not isinstance(rows, RowTensor) or not isinstance(index, tuple) or len(index) != 2:
        return None
    numbers, ids = index
    if not isinstance(numbers, Tensor) or not isinstance(ids, RowTensor) or ids.vg_space != rows.vg_space:
        return None
    if numbers.dtype != torch.int64 or ids.dtype != torch.int64 or plain(numbers).shape != (rows.num_rows(),):
        return None
    if ids.dim() != 1 or rows.dim() < 2 or not rows.vg_context.is_numbering(plain(numbers)):
        return None
    ones = (1,) * (rows.dim() - 1)
    places = torch.where(ids < 0, ids + rows.row_shape()[0], ids).view(-1, *ones)
    return rows.gather(1, places.expand(-1, 1, *rows.row_shape()[1:])).squeeze(1)


def _refuse_slots_in_turn(name: str, context: RowContext, args: tuple[Any, ...]) -> None:
    """CaptureError: a recurrent network reads the slots of mailboxes, in either order of the first two dims."""
    leading = tuple(plain(args[0]).shape[:2])
    if context.mailbox is not None and context.mailbox in (leading, leading[::-1]):
        raise CaptureError(f"{name} reads the slots of a mailbox in turn, which torch does at once", recorded_line())


def _over_slots(name: str, of_torch: TorchFunction) -> Callable[..., Tensor]:
    """A method that reduces (normalises) the slots of each vertex where it is given no dim, as torch's must be."""

    def method(self: RowTensor, dim: object = None, *args: object, **kwargs: object) -> Tensor:
        return _without_dim(self, name) if dim is None else of_torch(self, dim, *args, **kwargs)

    return method


OVER_SLOTS = ("softmax", "log_softmax", "logsumexp")
for _name in OVER_SLOTS:
    setattr(RowTensor, _name, _over_slots(_name, getattr(torch, _name)))

PROPERTIES = [
    getattr(Tensor, name).__get__ for name in "shape dtype device requires_grad ndim layout is_sparse".split()
]
PLAIN = frozenset[TorchFunction](
    {
        *PROPERTIES,
        Tensor.size,
        Tensor.dim,
        Tensor.numel,
        Tensor.nelement,
        Tensor.__len__,
        Tensor.is_floating_point,
        Tensor.__repr__,
    }
)
# Calls that look at the numbers of a tensor, some of them in ways that no recording sees.
_LOOKS = frozenset[TorchFunction](
    getattr(Tensor, name)
    for name in "item tolist numpy __bool__ __float__ __int__ __index__ __array__ __complex__".split()
)
_FINENESS = {SHARED: 0, GRAPH: 1, VERTEX: 3, EDGE: 4}


# Networks that torch runs over a whole sequence; recorded, they would be some ops for each step of each degree.
_RECURRENT = frozenset[TorchFunction]({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})
# Functions that compute with rows and features as one dim; recorded, they would look as if they mixed rows.
_AMONG_ROWS = _RECURRENT | {torch.nn.functional.multi_head_attention_forward, torch.nn.functional.embedding_bag}
_MATRIX_PRODUCTS = frozenset(
    {
        torch.nn.functional.linear,
        torch.matmul,
        torch.mm,
        Tensor.matmul,
        Tensor.mm,
        Tensor.__matmul__,
    }
)


def _widened(x: Tensor, matrix: Tensor, func: TorchFunction) -> Tensor:
    width = matrix.shape[-1 if func is torch.nn.functional.linear or matrix.dim() == 1 else -2]
    return x if plain(x).shape[-1] != 1 else x.expand(*plain(x).shape[:-1], width)


def by_place(func: TorchFunction, args: tuple[Any, ...], named: Mapping[str, object]) -> Tensor | None:
    """Rows of several places times a matrix that all share; None for other calls (see ``batched_matmul.py``)."""
    if func not in _MATRIX_PRODUCTS and func is not torch.einsum:
        return None
    at = 1 if func is torch.einsum else 0
    if len(args) < at + 1 or not isinstance(args[at], RowTensor):
        return None
    if any(getattr(leaf, "vg_space", SHARED) != SHARED for leaf in (*args[at + 1 :], *named.values())):
        return None
    mailbox = args[at].vg_context.mailbox
    lead = 2 if mailbox is not None and tuple(plain(args[at]).shape[:2]) == mailbox else 1
    args, named = tuple(map(plain, args)), {name: plain(leaf) for name, leaf in named.items()}
    if func is torch.einsum:
        return contracted(lead, *args) if not named else None
    return multiplied(lead, is_linear=func is torch.nn.functional.linear, args=args, named=named)


def watched(func: TorchFunction, out: Any, context: RowContext) -> object:
    """Numbers of rows and slots that the user asked for, made to notice comparisons."""
    if isinstance(out, torch.Size):
        return torch.Size([as_count(size, context) for size in out])
    if func is Tensor.numel or func is Tensor.nelement:
        return count_of(out, context) if context.row_sizes else out
    if func is Tensor.__len__:
        context.note_count()
    return as_count(out, context) if type(out) is int and func is Tensor.size else out


def finest(spaces: Iterator[Space]) -> Space:
    """Where values of several spaces meet: edges before vertices before graphs; some vertices and others at all."""
    several = set(spaces)
    found = max(several, key=lambda space: _FINENESS.get(space, 2))
    return VERTEX if 0 < _FINENESS.get(found, 2) < _FINENESS[VERTEX] and len(several - {SHARED}) > 1 else found


def as_rows(tensor: Tensor, space: Space, context: RowContext) -> RowTensor:
    """A tensor seen as rows of ``space``."""
    return (tensor if isinstance(tensor, RowTensor) else tensor.as_subclass(RowTensor)).seen_as(space, context)


@overload
def plain(leaf: Tensor) -> Tensor: ...
@overload
def plain(leaf: T) -> T: ...
def plain(leaf: object) -> object:
    """The tensor itself, without the knowledge of rows."""
    return leaf.bare() if isinstance(leaf, RowTensor) else leaf


def num_rows(tensor: Tensor) -> int:
    """The size of the leading dim."""
    return tensor.num_rows() if isinstance(tensor, RowTensor) else tensor.shape[0]


def row_shape(tensor: Tensor) -> tuple[int, ...]:
    """The sizes of the dims behind the leading one."""
    return tensor.row_shape() if isinstance(tensor, RowTensor) else tuple(tensor.shape[1:])


@overload
def lift(leaf: Tensor, space: Space) -> Tensor: ...
@overload
def lift(leaf: object, space: Space) -> object: ...
def lift(leaf: object, space: Space) -> object:
    """Brings a row tensor into a finer space: graph or subset to vertex, vertex to edge."""
    if not isinstance(leaf, RowTensor) or leaf.vg_space in (space, SHARED):
        return leaf
    return leaf.brought_to(space)


def _without_dim(x: RowTensor, name: str) -> Tensor:
    reduced = _reduce(name, x.vg_context, x.vg_space, (x,), {})
    if reduced is None:
        raise FunctionError(
            f"{name} without a dim normalises over slots, but these rows are vertices",
            cure=f"give the feature dim: {name}(-1)",
        )
    return reduced


def _mixing(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> FunctionError | None:
    """Why a reduction over vertices, or over slots by their dim, is refused."""
    x, rest = args[0], args[1:]
    dim = rest[0] if rest else kwargs.get("dim")
    if isinstance(dim, Tensor) or "other" in kwargs:  # the elementwise max of two tensors
        return None
    over = "slots" if isinstance(x, RowTensor) and x.vg_space == EDGE else "vertices"
    return over_rows(name, dim, plain(x).dim(), over)


def _reduce(name: str, context: RowContext, space: Space, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The reduction over slots that this call asks for, or None if it is about features."""
    x = args[0]
    if not isinstance(x, RowTensor) or x.vg_space != space:
        return None
    if x.is_complex() and not takes_complex(name, in_mailbox=context.mailbox is not None):
        return None
    if context.mailbox is not None:
        return _reduce_mailbox(name, context, x, args[1:], kwargs)
    if space != EDGE or len(args) > 1 or kwargs.keys() - {"unbiased", "correction", "dtype"}:
        return None
    out = reduce_slots(name, context, plain(x), **_spread_options(name, kwargs))
    if isinstance(out, tuple):  # max and min over slots give values alone
        return as_rows(out[0], VERTEX, context)
    return as_rows(out, EDGE if name in KEEPS_SLOTS else VERTEX, context)


def _spread_options(name: str, kwargs: Mapping[str, Any]) -> dict[str, float]:
    if name not in ("var", "std"):
        return {}
    correction = kwargs.get("correction")
    return {"correction": (1 if kwargs.get("unbiased", True) else 0) if correction is None else correction}


def _reduce_mailbox(
    name: str, context: RowContext, x: RowTensor, rest: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> object:
    """A torch call that reduces dim 1 of (vertices, slots, ...) alone."""
    assert context.mailbox is not None
    dim = rest[0] if rest else kwargs.get("dim")
    dims = [dim] if isinstance(dim, int) and not isinstance(dim, bool) else dim
    bare, (vertex, slot) = plain(x), context.mailbox
    if not isinstance(dims, (tuple, list)) or any(isinstance(x, torch.dtype) for x in (*rest, kwargs.get("dtype"))):
        return None
    shape = tuple(bare.shape)
    if shape[:2] == (vertex, slot):
        at = 1
    elif shape[:1] == (vertex,) and shape.count(slot) == 1:  # transposed: slots are further back
        at = shape.index(slot)
    else:
        return None
    wanted = {int(d) % bare.dim() for d in dims}
    if at not in wanted or 0 in wanted or (len(wanted) > 1 and name not in STEPWISE):
        return None
    place = _PLACE_OF_KEEPDIM.get(name, len(rest))
    keepdim = bool(kwargs.get("keepdim", rest[place] if len(rest) > place else False))
    if name in ("var", "std") and len(rest) > 1:
        kwargs = {**kwargs, "unbiased": rest[1]}
    others = sorted(wanted - {at})
    if others:
        bare = getattr(torch, name)(bare, others, keepdim=True)
    slotted = bare.movedim(at, 1)
    edges = slotted.flatten(0, 1)
    out = reduce_slots(name, context, edges, **_spread_options(name, kwargs))
    if name in KEEPS_SLOTS:
        return as_rows(out.reshape(slotted.shape).movedim(1, at), VERTEX, context)
    return _as_mailbox_result(name, context, out, at, others, keepdim)


_PLACE_OF_KEEPDIM = {  # among what follows the tensor; before it var and std have ``unbiased``
    **dict.fromkeys(REDUCERS.keys() - KEEPS_SLOTS, 1),
    "var": 2,
    "std": 2,
}


def _as_mailbox_result(name: str, context: RowContext, out: Any, at: int, others: list[int], keepdim: bool) -> object:
    """Without the slot dim (at ``at`` before) and the other reduced dims, or with sizes of 1."""

    def shaped(part: Tensor) -> Tensor:
        part = part.unsqueeze(1).movedim(1, at)
        gone = () if keepdim else sorted([*others, at], reverse=True)
        for dim in gone:
            part = part.squeeze(dim)
        return as_rows(part, VERTEX, context)

    if not isinstance(out, tuple):
        return shaped(out)
    return getattr(torch.return_types, name)(tuple(shaped(part) for part in out))
