"""Program: typed dataflow on rows.

Takes: ops recorded once a function. Gives: the value that every stage reads. Runs once per function.
Source: Cavs section 3.1 (vertex functions), DGL section 3 (message passing).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, wraps
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from vgraph.ir.exchange import Assemble, Fetch, ReplicaMean
from vgraph.ir.moves import AnyMove, Move, OuterSum, Random, RandomPart, SegmentReduce
from vgraph.ir.reductions import ReduceInfo
from vgraph.ir.space import Space

T = TypeVar("T")


@dataclass(frozen=True, eq=False, init=False)
class Rows:
    """A symbolic size: ``times`` entries for each row of ``space``; the row is the slow factor.

    There is one object for each of them, as for spaces.
    """

    space: Space
    times: int = 1

    def __new__(cls, space: Space, times: int = 1) -> Rows:
        found = _sizes.get((space, times))
        if found is None:
            made = object.__new__(cls)
            vars(made).update(space=space, times=times)
            found = _sizes.setdefault((space, times), made)
        return found

    def __reduce__(self) -> tuple[type[Rows], tuple[Space, int]]:
        return Rows, (self.space, self.times)

    def __str__(self) -> str:
        return f"{self.times}*{self.space}" if self.times != 1 else str(self.space)


_sizes: dict[tuple[Space, int], Rows] = {}
Dim = int | Rows


@lru_cache(4096)
def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of rows that lie without gaps."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


@dataclass(frozen=True, eq=False)
class Value:
    """One tensor of a Program; compared by identity."""

    id: int
    space: Space
    dtype: torch.dtype
    shape: tuple[Dim, ...]
    line: str = ""

    @cached_property
    def row_dim(self) -> int | None:
        """The position of the dim that counts rows, or None."""
        for place, size in enumerate(self.shape):
            if isinstance(size, Rows):
                return place
        return None

    @cached_property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row: the factor inside the row dim first, where it is not 1."""
        rows = [d for d in self.shape if isinstance(d, Rows)]
        inner = [r.times for r in rows if r.times != 1]
        return (*inner, *(d for d in self.shape if isinstance(d, int)))

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of one row (of the whole tensor, if SHARED)."""
        return math.prod(self.row_shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"%{self.id}"


class _Argument(Protocol):
    @property
    def name(self) -> str: ...


class _Schema(Protocol):
    @property
    def arguments(self) -> Sequence[_Argument]: ...


class _Packet(Protocol):
    __name__: str


class Aten(Protocol):
    """An operator of torch, or of a library that torch knows, with its overload: ``torch.ops.aten.mm.default``."""

    @property
    def overloadpacket(self) -> _Packet: ...
    @property
    def is_view(self) -> bool: ...
    @property
    def _schema(self) -> _Schema: ...

    def __call__(self, *args: object, **kwargs: object) -> Any: ...


@dataclass(frozen=True, eq=False)
class Routine:
    """A function of the runtime's own among the ops of a phase: what sends a tensor, what waits for one."""

    name: str
    run: Callable[..., Tensor | None]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Op:
    """``results = target(*args, **kwargs)``; args hold Values, Rows and constants, nested."""

    target: Target
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[Value, ...]
    line: str = ""
    returns_sequence: bool = False
    is_rowwise: bool = True  # False: needs all its rows at once, or is not described by TDL

    @cached_property
    def operands(self) -> Callable[[], Iterator[Value]]:
        """Gives every Value among the arguments, in order, repeats included.

        They are looked for once: whoever calls it begins anew to go over a tuple.
        """
        found: list[Value] = []
        _collect(self.args, found)
        if self.kwargs:
            _collect(tuple(self.kwargs.values()), found)
        return tuple(found).__iter__

    @cached_property
    def name(self) -> str:
        """``op_name`` of the target."""
        return op_name(self.target)

    @property
    def reduction(self) -> ReduceInfo:
        """The row of the table, of an op that is a SegmentReduce."""
        assert isinstance(self.target, SegmentReduce)
        return self.target.info

    def mapped(self, function: Callable[[object], object]) -> Op:
        """The same op with every leaf of its arguments replaced, in the order of ``operands``."""
        args = map_leaves(self.args, function)
        kwargs = {key: map_leaves(value, function) for key, value in self.kwargs.items()} if self.kwargs else {}
        return Op(self.target, args, kwargs, self.results, self.line, self.returns_sequence, self.is_rowwise)

    def evaluate(self, function: Callable[[object], object]) -> Any:
        """What the operator gives, called with every leaf of the arguments replaced."""
        assert not isinstance(self.target, Noun), f"{self.target} is not called"
        args = map_leaves(self.args, function)
        return self.target(*args, **{key: map_leaves(value, function) for key, value in self.kwargs.items()})


def _collect(tree: Iterable[object], found: list[Value]) -> None:
    for item in tree:
        if isinstance(item, Value):
            found.append(item)
        elif isinstance(item, (tuple, list)):
            _collect(item, found)


def map_leaves(tree: T, function: Callable[[object], object]) -> T:
    """The same nest of tuples and lists with every leaf replaced; named tuples and torch's own keep their names."""
    found: object = tree
    if not isinstance(found, (tuple, list)):
        return function(found)
    items: list[object] = []
    for item in found:  # one call a nest, none a leaf
        items.append(map_leaves(item, function) if isinstance(item, (tuple, list)) else function(item))
    if isinstance(found, list):
        return items  # pyright: ignore[reportReturnType]
    kind: Callable[..., object] = type(tree)
    return kind(*items) if hasattr(kind, "_fields") else kind(items)  # pyright: ignore[reportCallIssue]


def needed_ops(
    ops: Sequence[Op],
    wanted: Iterable[int],
    given: Container[int] = (),
    reads: Callable[[Op], Iterable[Value]] | None = None,
) -> tuple[Op, ...]:
    """The ops that lead to values of ids ``wanted``, in order; those of ids ``given`` come from elsewhere.

    ``reads``: what an op needs others for; None: all its operands.
    """
    needed, kept = set(wanted), list[Op]()
    for op in reversed(ops):
        for made in op.results:
            if made.id in needed and made.id not in given:
                kept.append(op)
                for value in op.operands() if reads is None else reads(op):
                    needed.add(value.id)
                break
    return tuple(reversed(kept))


@dataclass(frozen=True, eq=False)
class Pointwise:
    """Ops from scalars to a scalar: every Value stands for one number of its dtype."""

    operands: tuple[Value, ...]
    ops: tuple[Op, ...]
    result: Value

    def __str__(self) -> str:
        """The same for the same arithmetic, whoever recorded it."""
        names = {v.id: f"%{i}" for i, v in enumerate([*self.operands, *(v for op in self.ops for v in op.results)])}
        said = [f"{names[v.id]}:{v.dtype}" for v in self.operands]
        for op in self.ops:
            args = [names[a.id] if isinstance(a, Value) else repr(a) for a in op.args]
            args += [f"{key}={names[a.id] if isinstance(a, Value) else a!r}" for key, a in op.kwargs.items()]
            said.append(f"{names[op.results[0].id]}:{op.results[0].dtype} = {op.target}({', '.join(args)})")
        return "\n".join([*said, names[self.result.id]])


@dataclass(frozen=True, eq=False)
class Reduction:
    """``element`` at every position, combined by ``name`` or by ``function``, then ``after``.

    ``name``: a row of ``reductions.py``. A function is associative and need not be commutative: a slice is combined in
    row-major order.
    """

    element: Pointwise
    name: str = ""
    function: Pointwise | None = None
    after: Pointwise | None = None  # of a slice's result, before it is rounded and stored

    def __post_init__(self) -> None:
        assert bool(self.name) != (self.function is not None)

    @cached_property
    def key(self) -> str:
        """The same for reductions that do the same."""
        return f"{self.element}\n| {self.function or self.name}\n| {self.after}"

    @property
    def dtype(self) -> torch.dtype:
        """Of elements and results."""
        return self.element.result.dtype

    @property
    def is_ordered(self) -> bool:
        return self.function is not None


@dataclass(frozen=True, eq=False)
class RowSum:
    """The target of an Op of a Program: ``reduction`` over ``dims``, rows among them, of what operands broadcast to.

    ``ops`` compute the same elements from ``operands``, stored.
    """

    reduction: Reduction
    dims: tuple[int, ...]
    keepdim: bool
    operands: tuple[Value, ...]
    ops: tuple[Op, ...]

    def __str__(self) -> str:
        return "_".join(["sum_of", *dict.fromkeys(op_name(op.target).strip("_") for op in self.ops)])


Noun = AnyMove | Random | RandomPart | OuterSum | RowSum | Fetch | Assemble | ReplicaMean | Routine
Target = Aten | Noun
_names: dict[int, tuple[Aten, str]] = {}  # by id, for hashing an operator is slow; held, so that ids stay its own


def op_name(target: Target) -> str:
    """``mm`` for ``aten.mm.default``; the printed form for a noun of ``ir``.

    ``view_dtype`` is a tensor's bits read as another dtype: torch calls it ``view``, but it is no reshape.
    """
    found = _names.get(id(target))
    if found is not None:
        return found[1]
    if isinstance(target, Noun):
        return str(target)
    name = "view_dtype" if target is torch.ops.aten.view.dtype else target.overloadpacket.__name__
    _names[id(target)] = (target, name)
    return name


def takes(target: Aten, name: str) -> bool:
    """Whether an operator has an argument of this name."""
    return any(argument.name == name for argument in target._schema.arguments)  # pyright: ignore[reportPrivateUsage]


@dataclass(frozen=True, eq=False)
class Carry:
    """``source`` feeds ``target`` along the edges, through ``move``: what makes frontiers."""

    source: Value
    target: Value
    move: Move


@dataclass(frozen=True, eq=False)
class Input:
    """A Value given from outside: by the caller, or by the topology (a name that begins with $)."""

    value: Value
    name: str

    @property
    def is_topological(self) -> bool:
        return self.name.startswith("$")


@dataclass(frozen=True, eq=False)
class Program:
    """Inputs, ops in an order that respects dataflow, outputs (None: no such value) and carries."""

    name: str
    inputs: tuple[Input, ...]
    ops: tuple[Op, ...]
    outputs: tuple[Value | None, ...]
    carries: tuple[Carry, ...] = ()

    def producers(self) -> dict[int, Op]:
        """Value id to the op that makes it."""
        return {value.id: op for op in self.ops for value in op.results}


_Given = TypeVar("_Given")
_Found = TypeVar("_Found")


def once_each(find: Callable[[_Given], _Found]) -> Callable[[_Given], _Found]:
    """Whoever asks again gets what was found of a Program or a KernelSpec, for as long as that is alive."""
    known: WeakKeyDictionary[_Given, _Found] = WeakKeyDictionary()

    @wraps(find)
    def found(given: _Given) -> _Found:
        if given not in known:
            known[given] = find(given)
        return known[given]

    return found
