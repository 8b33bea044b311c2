"""Tracer: records what a function does to example tensors of two different numbers of rows.

Takes: a running Python function. Gives: records of aten ops and Moves; tempo: once a function.
Two recordings that differ only in sizes show which numbers count rows: no symbolic shapes needed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vgraph.ir.moves import Random
from vgraph.ir.program import EDGE, GRAPH, SHARED, SLOT, SOURCE, VERTEX, Space, map_leaves
from vgraph.ir.tdl import op_name


class CaptureError(Exception):
    """The function cannot be captured; the reason and the user's line."""

    def __init__(self, reason: str, line: str = "") -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line


# Prime sizes: no size or product of one recording is a multiple of another's by the same factor.
SIZES: tuple[dict[Space, int], dict[Space, int]] = (
    {VERTEX: 13, EDGE: 17, SOURCE: 19, GRAPH: 23},
    {VERTEX: 31, EDGE: 37, SOURCE: 41, GRAPH: 43},
)
SLOT_SIZES = (17, 37)
SUBSET_SIZES = ((53, 97), (59, 101), (61, 103), (67, 107), (71, 109), (73, 113), (79, 127))


def sizes_for(
    mailbox: bool | int, subsets: tuple[Space, ...] = (), *, one_vertex_set: bool = False
) -> tuple[dict[Space, int], dict[Space, int]]:
    """Both recordings' sizes; ``mailbox``: False none, True a slot dim, a number that degree.

    ``one_vertex_set``: edges join vertices of one set, so rows of sources are rows of vertices.
    """
    both = (dict(SIZES[0]), dict(SIZES[1]))
    if one_vertex_set:
        for sizes in both:
            sizes[SOURCE] = sizes[VERTEX]
    for sizes, num_slots in zip(both, SLOT_SIZES, strict=True):
        if mailbox is True:
            sizes[SLOT] = num_slots
            sizes[EDGE] = sizes[VERTEX] * num_slots
        elif mailbox is not False:
            sizes[EDGE] = sizes[VERTEX] * mailbox
    for space, pair in zip(subsets, SUBSET_SIZES, strict=False):
        both[0][space], both[1][space] = pair
    return both


@dataclass(frozen=True)
class Ref:
    """A recorded tensor, by number."""

    index: int


@dataclass(frozen=True, eq=False)
class Record:
    """One op as it ran: Refs for tensors, the numbers of this recording for everything else."""

    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[Ref, ...]
    returns_sequence: bool
    line: str


@dataclass
class _Cell:
    """What a tensor object stands for now; an in-place op changes it for all its aliases."""

    ref: Ref


@dataclass(eq=False)
class Recording:
    """Everything one run left behind."""

    sizes: Mapping[Space, int]
    records: list[Record] = field(default_factory=list[Record])
    tensors: list[Tensor] = field(
        default_factory=list[Tensor]
    )  # by Ref.index; also keeps ids unique
    inputs: dict[str, Ref] = field(default_factory=dict[str, Ref])
    lifted: list[tuple[Tensor, Ref]] = field(default_factory=list[tuple[Tensor, Ref]])
    constants: set[Ref] = field(
        default_factory=set[Ref]
    )  # made from Python numbers inside the function
    num_randoms: int = 0


_ALIASES = frozenset({"detach", "alias", "lift", "_reshape_alias"})
_BASE_SPACES = (VERTEX, EDGE, SOURCE, GRAPH)
_HERE = str(Path(__file__).resolve().parents[1])
_TORCH = str(Path(torch.__file__).resolve().parent)


def user_line() -> str:
    """``file:line`` of the innermost frame outside torch and vgraph, or nothing."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_HERE, _TORCH, "<frozen", "<string")):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _geometry(tensor: Tensor) -> Any:
    """Equal for two tensor objects over the same elements (``as_subclass`` makes such twins)."""
    if type(tensor) is not Tensor:
        tensor = tensor.as_subclass(Tensor)  # a subclass may hand out sizes that notice comparisons
    if tensor.layout != torch.strided or tensor.numel() == 0:
        return id(tensor)
    return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)


class Tracer(TorchDispatchMode):
    """Records every aten op below autograd, so that what autograd does is recorded too."""

    def __init__(self, sizes: Mapping[Space, int]) -> None:
        super().__init__()
        self.recording = Recording(sizes)
        self._cells: dict[int, _Cell] = {}
        self._by_geometry: dict[Any, Tensor] = {}
        self._paused = False
        self._storages: dict[int, set[int]] = {}

    # ------------------------------------------------------------ what enters
    def new_input(
        self,
        name: str,
        space: Space,
        row_shape: tuple[int, ...],
        dtype: torch.dtype,
        grad: bool = False,
    ) -> Tensor:
        """An example tensor for rows of ``space`` that come from outside under ``name``."""
        with self.paused():
            size = self.recording.sizes.get(space)
            shape = row_shape if size is None else (size, *row_shape)
            tensor = (torch.ones if dtype.is_floating_point else torch.zeros)(shape, dtype=dtype)
            tensor.requires_grad_(grad)
        return self.add_input(name, tensor)

    def add_input(self, name: str, tensor: Tensor) -> Tensor:
        """Lets an example stand for the input of this name."""
        self.recording.inputs[name] = self._bind(tensor)
        return tensor

    def ref(self, tensor: Tensor) -> Ref:
        """What a tensor stands for; one not seen before was reached by the function: an input."""
        if not self.is_known(tensor):
            found = self._bind(tensor)
            self.recording.lifted.append((tensor, found))
            return found
        return self._cells[id(tensor)].ref

    def is_known(self, tensor: Tensor) -> bool:
        """Whether it was recorded, perhaps as another object over the same elements."""
        if id(tensor) in self._cells:
            return True
        twin = self._by_geometry.get(_geometry(tensor))
        if twin is not None:
            self._alias(tensor, twin)
        return twin is not None

    def _bind(self, tensor: Tensor) -> Ref:
        ref = Ref(len(self.recording.tensors))
        self.recording.tensors.append(tensor)
        self._cells[id(tensor)] = _Cell(ref)
        self._by_geometry[_geometry(tensor)] = tensor
        self._note_storage(tensor)
        return ref

    def _alias(self, tensor: Tensor, of: Tensor) -> None:
        if id(of) not in self._cells:
            self.ref(of)
        self._cells[id(tensor)] = self._cells[id(of)]
        self.recording.tensors.append(tensor)
        self._note_storage(tensor)

    def _note_storage(self, tensor: Tensor) -> None:
        if tensor.layout == torch.strided:
            cells = self._storages.setdefault(tensor.untyped_storage().data_ptr(), set())
            cells.add(id(self._cells[id(tensor)]))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Runs torch without recording."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    # ------------------------------------------------------------ what happens
    def record(
        self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any
    ) -> Any:
        """Notes one op whose result is ``out`` (a tensor, or a list or tuple of them)."""
        refs = map_leaves((args, tuple(kwargs.values())), self._to_ref)
        named = dict(zip(kwargs, refs[1], strict=True))
        many = isinstance(out, (tuple, list))
        items: list[Any] = list(out) if many else [out]
        results = tuple(self._bind(t) for t in items if isinstance(t, Tensor))
        if len(results) == len(items):
            self.recording.records.append(
                Record(target, refs[0], named, results, many, user_line())
            )
        return out

    def _to_ref(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return self.ref(leaf)
        return int(leaf) if isinstance(leaf, int) and type(leaf) is not bool else leaf

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if self._paused:
            return func(*args, **named)
        name = op_name(func)
        if name in _ALIASES or name == "lift_fresh":
            if name == "lift_fresh" and not self.is_known(args[0]):
                self.recording.constants.add(self.ref(args[0]))
            out = func(*args, **named)
            self._alias(out, args[0])
            return out
        if (
            torch.Tag.data_dependent_output in func.tags
            or torch.Tag.dynamic_output_shape in func.tags
        ):
            raise CaptureError(f"{name} looks at the data of a tensor", user_line())
        if torch.Tag.nondeterministic_seeded in func.tags:
            return self._random(name, func, args, named)
        if func._schema.is_mutable:
            return self._in_place(name, func, args, named)
        return self.record(func, args, named, func(*args, **named))

    # ------------------------------------------------------------ in place
    def _in_place(
        self, name: str, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Records the functional twin and lets the written tensor stand for its result."""
        written = args[0] if args else None
        twin = getattr(getattr(torch.ops.aten, name.rstrip("_"), None), func._overloadname, None)
        if not isinstance(written, Tensor) or not name.endswith("_") or twin is None:
            raise CaptureError(f"{name} writes to its arguments", user_line())
        self.check_writable(written)
        target, before = self._cells[id(written)], len(self.recording.records)
        with self.paused():
            out = twin(*args, **kwargs)
        self.record(twin, args, kwargs, out)
        assert len(self.recording.records) == before + 1
        with self.paused(), torch.no_grad():
            func(*args, **kwargs)
        target.ref = self._cells[id(out)].ref
        return written

    def check_writable(self, written: Tensor) -> None:
        """Refuses writes that something outside, or another view, would see."""
        known = self._cells.get(id(written))
        outside = {ref for _, ref in self.recording.lifted} | set(self.recording.inputs.values())
        if known is None or known.ref in outside:
            raise CaptureError(
                "a tensor from outside the function is written in place", user_line()
            )
        if len(self._storages.get(written.untyped_storage().data_ptr(), ())) > 1:
            raise CaptureError(
                "a tensor is written in place while a view of it is alive", user_line()
            )

    # ------------------------------------------------------------ random
    def _random(
        self, name: str, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Replaces torch's generator by one that is keyed by rows."""
        if name not in _RANDOM:
            raise CaptureError(f"{name} has no counterpart that is keyed by rows", user_line())
        distribution, writes = _RANDOM[name]
        if kwargs.get("generator") is not None:
            raise CaptureError(f"{name} draws from a generator of its own", user_line())
        if writes:
            self.check_writable(args[0])
        like = args[0] if args and isinstance(args[0], Tensor) else None
        shape = tuple(like.shape) if like is not None else tuple(args[0])
        dtype = kwargs.get("dtype") or (
            like.dtype if like is not None else torch.get_default_dtype()
        )
        extra = (
            tuple(args[1:])
            if name not in ("normal_", "uniform_", "exponential_")
            else tuple(args[1:3])
        )
        if name == "bernoulli" and not extra:
            distribution, extra = "bernoulli_tensor", (args[0],)
        with self.paused():
            out = torch.ones(shape, dtype=dtype)
        target = Random(distribution, self.recording.num_randoms)
        self.recording.num_randoms += 1
        self.record(target, (shape, dtype, extra), {"seed": self.seed()}, out)
        if not writes:
            return out
        self._cells[id(like)].ref = self._cells[id(out)].ref
        return like

    def seed(self) -> Tensor:
        """The number drawn once a call, on which all random numbers depend."""
        known = self.recording.inputs.get("$seed")
        if known is not None:
            return self.recording.tensors[known.index]
        return self.new_input("$seed", SHARED, (), torch.int64)


_RANDOM = {
    "bernoulli_": ("bernoulli", True),
    "bernoulli": ("bernoulli", False),
    "rand_like": ("uniform", False),
    "rand": ("uniform", False),
    "uniform_": ("uniform", True),
    "randn_like": ("normal", False),
    "randn": ("normal", False),
    "normal_": ("normal", True),
    "exponential_": ("exponential", True),
}
