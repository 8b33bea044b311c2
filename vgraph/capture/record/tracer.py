"""Tracer: records what a function does to example tensors of two different numbers of rows.

Takes: a running Python function. Gives: records of aten ops and Moves. Runs once per function.
Two recordings that differ only in sizes show which numbers count rows: no symbolic shapes needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,  # pyright: ignore[reportPrivateUsage]  # docs/adr/0004
    _pop_mode,  # pyright: ignore[reportPrivateUsage]
)

from vgraph.capture.errors import CaptureError, OutsideWriteError
from vgraph.capture.record.aliases import (
    Aliases,
    Cell,
    Ref,
    bare,
    geometry_of,
    leaves_of,
    share_memory,
    view_step,
)
from vgraph.capture.record.device_check import refuse_elsewhere
from vgraph.capture.record.drawing import DRAW_BEFORE, Draws, drawing_of
from vgraph.capture.record.function_mode import Border, beneath, runs_no_others
from vgraph.capture.record.op_tables import UNSAFE_VIEWS, Kwargs, Overload, facts_of, functional_twin, takes_mask
from vgraph.capture.record.profiler import unseen
from vgraph.capture.record.row_counts import plain_arguments, plain_number
from vgraph.ir.moves import Random
from vgraph.ir.program import Noun, Op, Target, Value, map_leaves, op_name
from vgraph.ir.space import SHARED, Space
from vgraph.user_line import recorded_line

T = TypeVar("T")


@dataclass(eq=False, slots=True)  # frozen ones take four times as long to make, and there are many
class Record:
    """One op as it ran: Refs for tensors, the numbers of this recording for everything else."""

    target: Target
    args: tuple[Any, ...]
    kwargs: Kwargs
    results: tuple[Ref, ...]
    returns_sequence: bool
    line: str

    def operands(self) -> list[Ref]:
        """Every tensor among the arguments, in order, repeats included."""
        return [leaf for leaf in leaves_of((self.args, tuple(self.kwargs.values()))) if isinstance(leaf, Ref)]

    def as_op(self, value: Callable[[Ref], Value], line: str | None = None, target: Target | None = None) -> Op:
        """The same op on Values; ``line`` and ``target`` instead of its own."""
        args, named = map_leaves(
            (self.args, tuple(self.kwargs.values())), lambda leaf: value(leaf) if isinstance(leaf, Ref) else leaf
        )
        results = tuple(value(ref) for ref in self.results)
        kwargs = dict(zip(self.kwargs, named, strict=True))
        line = self.line if line is None else line
        return Op(target or self.target, args, kwargs, results, line, self.returns_sequence)


@dataclass(eq=False)
class Recording:
    """Everything one run left behind."""

    sizes: Mapping[Space, int]
    records: list[Record] = field(default_factory=list[Record])
    tensors: list[Tensor] = field(default_factory=list[Tensor])  # by Ref.index; also keeps ids unique
    inputs: dict[str, Ref] = field(default_factory=dict[str, Ref])
    lifted: list[tuple[Tensor, Ref]] = field(default_factory=list[tuple[Tensor, Ref]])
    constants: set[Ref] = field(default_factory=set[Ref])  # made from Python numbers inside the function
    num_randoms: int = 0


_transpose, _clone = torch.ops.aten.transpose.int, torch.ops.aten.clone.default
_WINDOWS = "take windows by Tensor.unfold: torch.stft is torch.fft.rfft(x.unfold(-1, n_fft, hop_length) * window).mT"
_WRITE_WHOLE = "write to the whole tensor: torch.where(mask, new, old)"
ALIASES = frozenset({"detach", "alias", "lift", "_reshape_alias"})
DETERMINANTS = frozenset({"_linalg_det", "_linalg_slogdet"})  # which ask how their matrix lies


def _unchecked(name: str, args: Sequence[object]) -> str:
    """What does without a check; ``args``: those of the check, of which one names the function that is checked."""
    checked = str(args[1]).removeprefix("torch.") if name == "_linalg_check_errors" else ""
    return f"torch.{checked}_ex(...)[0] leaves the check out" if checked else ""


def _is_many(out: object) -> bool:
    return isinstance(out, (tuple, list))


def _results(out: Any) -> list[Any]:
    """An operator's results one by one; None is one that it left out."""
    return list(out) if _is_many(out) else [out]


def _refuse_escape(name: str) -> None:
    raise CaptureError(f"{name} looks at the data of a tensor", recorded_line())


class Tracer(TorchDispatchMode):
    """Records every aten op below autograd, so that what autograd does is recorded too."""

    def __init__(self, sizes: Mapping[Space, int], device: torch.device | None = None) -> None:
        super().__init__()
        self.recording, self.device = Recording(sizes), device  # of examples, and of all that is reached; None: any
        self.line = ""  # of what is played again; else the user's line is looked for
        self._cells: dict[int, Cell] = {}
        self._draws = Draws()
        self._by_geometry: dict[object, Tensor] = {}
        self._aliases = Aliases(self._note_on_cells)
        self._paused = False
        self._guard = Border(self._enter, self._leave, _refuse_escape)
        self._entered: dict[int, Tensor] = {}  # what the function reached outside, by ids
        self._twins: dict[int, Tensor] = {}  # of those that autograd made
        self.passing: Callable[[Tensor], Tensor] | None = None  # given what torch functions return, gives it on
        self.written: list[Tensor] = []  # in place

    def forget(self) -> None:
        """Lets go of all tensors: autograd's nodes hold us, and they hold autograd's nodes."""
        for kept in (self.recording.tensors, self.recording.lifted, self.recording.records, self.written):
            kept.clear()
        for table in (self._cells, self._by_geometry, self._entered, self._twins, self.recording.inputs):
            table.clear()
        self._aliases = Aliases(self._note_on_cells)

    def __enter__(self) -> Any:
        self._draws.go_on()
        self._guard.__enter__()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._draws.pause()
        self._guard.__exit__(*error)

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
            tensor = (torch.ones if dtype.is_floating_point else torch.zeros)(shape, dtype=dtype, device=self.device)
            tensor.requires_grad_(grad)
        return self.add_input(name, tensor)

    def input_once(self, name: str, space: Space, row_shape: tuple[int, ...], dtype: torch.dtype, grad: bool) -> Tensor:
        """The example for an input, made at its first use."""
        known = self.recording.inputs.get(name)
        if known is not None:
            return self.recording.tensors[known.index]
        return self.new_input(name, space, row_shape, dtype, grad)

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
        return self._aliases.current(self._cells[id(tensor)])

    def _enter(self, leaf: object) -> object:
        """A twin for a tensor from outside that autograd made, or that has hooks.

        What it was made of gets its gradient there, not here, and hooks run when the gradient of a call reaches it, not
        when one of examples does. Two tensors over the same elements are two inputs: the next time they may be of
        different ones.
        """
        if not isinstance(leaf, Tensor) or type(leaf) not in (Tensor, nn.Parameter) or self._paused:
            return leaf
        if id(leaf) not in self._cells and id(leaf) not in self._entered and self._is_of_outside(leaf):
            self._entered[id(leaf)] = leaf
        if id(leaf) not in self._entered or (leaf.grad_fn is None and not leaf._backward_hooks):
            return leaf
        if id(leaf) not in self._twins:
            self.ref(leaf)
            with self.paused():
                self._twins[id(leaf)] = leaf.detach().requires_grad_()
            self._alias(self._twins[id(leaf)], leaf)
        return self._twins[id(leaf)]

    def _is_of_outside(self, leaf: Tensor) -> bool:
        """What was not recorded, or is a view, made elsewhere, of what was reached outside."""
        known = self._by_geometry.get(geometry_of(leaf))
        if known is None or id(known) in self._entered:
            return True
        return any(share_memory(known, entered) for entered in self._entered.values())

    def _leave(self, leaf: object) -> object:
        """What no operator made, such as ``weight.data``, is what it lies over."""
        if type(leaf) is Tensor and not self._paused and id(leaf) not in self._entered:
            self.is_known(leaf)
        if self.passing is not None and isinstance(leaf, Tensor) and not self._paused:
            return self.passing(leaf)
        return leaf

    def as_used(self, tensor: Tensor) -> Tensor:
        """What stands for a tensor from outside within the function."""
        return self._twins.get(id(tensor), tensor)

    def is_known(self, tensor: Tensor) -> bool:
        """Whether it was recorded, perhaps as another object over the same elements."""
        if id(tensor) in self._cells or id(tensor) in self._entered:
            return id(tensor) in self._cells
        twin = self._by_geometry.get(geometry_of(tensor))
        if twin is not None:
            self._alias(tensor, twin)
        return twin is not None

    def _bind(self, tensor: Tensor) -> Ref:
        ref = Ref(len(self.recording.tensors))
        self.recording.tensors.append(tensor)
        self._cells[id(tensor)] = Cell(ref, bare(tensor))
        self._by_geometry[geometry_of(tensor)] = tensor
        return ref

    def _alias(self, tensor: Tensor, of: Tensor) -> None:
        if id(of) not in self._cells:
            self.ref(of)
        self._cells[id(tensor)] = self._cells[id(of)]
        self.recording.tensors.append(tensor)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Runs torch without recording."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def resume(self) -> None:
        """Records again, before the end of ``paused``."""
        self._paused = False

    # ------------------------------------------------------------ what happens
    def record(self, target: Target, args: tuple[Any, ...], kwargs: Kwargs, out: T) -> T:
        """Notes one op whose result is ``out`` (a tensor, or a list or tuple of them)."""
        items = _results(out)
        for item in items:
            if item is not None and not isinstance(item, Tensor):
                return out
        refs, named = map_leaves((args, tuple(kwargs.values())), self._to_ref)
        results = tuple([self._bind(t if t is not None else self._absent()) for t in items])
        self._note(target, refs, dict(zip(kwargs, named, strict=True)), results, out)
        if isinstance(target, Noun) or not args or not isinstance(args[0], Tensor):
            return out
        if op_name(target) not in UNSAFE_VIEWS:
            for index, item in enumerate(items):
                if item is not None and item is not args[0] and share_memory(args[0], item):
                    step = view_step(target, args, kwargs, out, index if _is_many(out) else None)
                    self._aliases.add_view(self._cells[id(item)], self._cells[id(args[0])], step)
        return out

    def _absent(self) -> Tensor:
        """Stands for a result that an operator left out; nothing reads it."""
        with self.paused():
            return torch.empty(0)

    def _note_on_cells(self, target: Target, args: tuple[Any, ...], kwargs: Kwargs, out: object) -> tuple[Ref, ...]:
        """Notes an op on Cells; its results stand for new versions of tensors that exist."""
        refs = map_leaves(args, lambda x: x.ref if isinstance(x, Cell) else self._to_ref(x))
        items, first = _results(out), len(self.recording.tensors)
        self.recording.tensors += items
        results = tuple(Ref(first + i) for i in range(len(items)))
        self._note(target, refs, dict(kwargs), results, out)
        return results

    def _note(
        self, target: Target, args: tuple[Any, ...], kwargs: Kwargs, results: tuple[Ref, ...], out: object
    ) -> None:
        self.recording.records.append(Record(target, args, kwargs, results, _is_many(out), self.line_now()))

    def line_now(self) -> str:
        """The user's line that is recorded."""
        return self.line or recorded_line()

    def _bare_here(self, leaf: object) -> object:
        """A plain tensor, refused where it lies on another device than the examples."""
        if not isinstance(leaf, Tensor):
            return leaf
        found = bare(leaf) if type(leaf) is not nn.Parameter else leaf
        if self.device is not None and found.device != self.device and not self.is_known(found):
            refuse_elsewhere("the function: a tensor that it reads", found, self.device)
        return found

    def _to_ref(self, leaf: object) -> object:
        if isinstance(leaf, Tensor):
            cell = self._cells.get(id(leaf))
            return self.ref(leaf) if cell is None or cell.is_stale else cell.ref
        if isinstance(leaf, torch.ScriptObject):  # as packed weights of quantized layers: nobody can compare them
            raise CaptureError("an operator is given an object of torch's that is no tensor", recorded_line())
        number = plain_number(leaf)
        return int.__int__(number) if isinstance(number, int) and type(number) is not bool else number

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch hides ``__torch_dispatch__`` from Dynamo, for which it would load that at the first operator.

        That takes longer than all else in a process's first capture; where nobody has loaded Dynamo it sees nothing.
        """
        return False

    def __torch_dispatch__(
        self,
        func: Overload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Kwargs | None = None,
    ) -> Any:
        args, named = plain_arguments(args, kwargs)
        if "torch._dynamo" in sys.modules:
            return _dispatch_uncompiled()(self, func, args, named)
        if self._paused:
            return func(*args, **named)
        is_torchs = facts_of(func).is_of_torch and runs_no_others(types, args, named)
        dispatch = self._dispatch_unseen if is_torchs else self.dispatch
        return dispatch(func, args, named)

    def dispatch(self, func: Overload, args: tuple[Any, ...], named: Kwargs) -> Any:
        """Runs an operator and notes it."""
        if self._paused:
            return func(*args, **named)
        facts = facts_of(func)
        name = facts.name
        if name == "_efficientzerotensor":  # autograd's own zeros, which lie nowhere
            func = torch.ops.aten.zeros.default
        if name == "_conj" and not isinstance(args[0], Tensor):  # autograd's, of a number that something was times
            func, args, named = torch.ops.aten.full.default, ([], args[0].conjugate()), {"dtype": torch.complex128}
        if name in ALIASES or name == "lift_fresh":
            if name == "lift_fresh" and not self.is_known(args[0]):
                self.recording.constants.add(self.ref(args[0]))
            out = self.run(func, args, named)
            self._alias(out, args[0])
            return out
        if facts.looks_at_data or (name == "index" and takes_mask(args)):
            raise CaptureError(f"{name} looks at the data of a tensor", recorded_line())
        if not facts.returns:
            raise CaptureError(f"{name} checks the data of a tensor", recorded_line(), _unchecked(name, args))
        if facts.draws:
            return self._random(name, func, args, named)
        if facts.is_mutable:
            return self._in_place(name, func, args, named)
        if name == "as_strided":
            return self._as_strided(*args, **named)
        if name in DETERMINANTS:
            args = (self._row_by_row(args[0]),)
        out = self.run(func, args, named)
        if name == "new_empty_strided":  # only autograd asks for strides
            return self.record(torch.ops.aten.new_empty.default, args[:2], named, out)
        return self.record(func, args, named, out)

    _dispatch_unseen = unseen(beneath(dispatch))

    def run(self, func: Overload, args: Sequence[object], kwargs: Kwargs) -> Any:
        """What an operator gives on plain tensors; it is not noted."""
        return func(
            *map_leaves(args, self._bare_here), **{key: map_leaves(x, self._bare_here) for key, x in kwargs.items()}
        )

    # ------------------------------------------------------------ in place
    def _in_place(self, name: str, func: Overload, args: tuple[Any, ...], kwargs: Kwargs) -> Tensor:
        """Records the functional twin and lets the written tensor stand for its result."""
        written = args[0] if args else None
        twin = functional_twin(func) if name.endswith("_") else None
        if not isinstance(written, Tensor) or twin is None:
            raise CaptureError(f"{name} writes to its arguments", recorded_line())
        self.check_writable(written)
        self.written.append(written)
        with self.paused():
            out = self.run(twin, args, kwargs)
        self.record(twin, args, kwargs, out)
        is_view = share_memory(out, written)  # unsqueeze_ and its kind: another view of what it was
        if is_view:
            self._leave_behind(written)
        with self.paused(), torch.no_grad():
            self.run(func, args, kwargs)
        if is_view:
            self._alias(written, out)
            return written
        if out.dtype != written.dtype:
            with self.paused():
                narrow = out.to(written.dtype)
            out = self.record(torch.ops.aten._to_copy.default, (out,), {"dtype": written.dtype}, narrow)
        self._write(written, out)
        return written

    def _leave_behind(self, written: Tensor) -> None:
        """Another object stands for what this one was, whose shape is about to change."""
        with self.paused(), torch.no_grad():
            before = bare(written).detach()
        cell, known = self._cells[id(written)], self.recording.tensors
        cell.tensor = before
        known[:] = [before if tensor is written else tensor for tensor in known]
        self._cells[id(before)] = cell
        self._by_geometry[geometry_of(before)] = before

    def _write(self, written: Tensor, by: Tensor) -> None:
        self.written.append(written)
        self.ref(written)
        if not self._aliases.write(self._cells[id(written)], self.ref(by)):
            raise CaptureError("a tensor is written in place through a view of it", recorded_line(), _WRITE_WHOLE)

    def check_writable(self, written: Tensor) -> None:
        """Refuses writes that something outside the function would see."""
        outside = {ref for _, ref in self.recording.lifted} | set(self.recording.inputs.values())
        if not self.is_known(written) or any(
            share_memory(written, self.recording.tensors[ref.index]) for ref in outside
        ):
            raise OutsideWriteError("a tensor from outside the function is written in place", recorded_line())

    def _row_by_row(self, matrix: Tensor) -> Tensor:
        """A copy of a matrix, or of its transpose, that lies row by row here and wherever the program runs.

        Torch factorizes the transpose of a matrix that lies so, else the matrix itself, and the derivative that is
        recorded is of what was factorized here.
        """
        is_kept = bare(matrix).is_contiguous() or matrix.is_complex()
        turned = matrix if is_kept else self.dispatch(_transpose, (matrix, -2, -1), {})
        return self.dispatch(_clone, (turned,), {"memory_format": torch.contiguous_format})

    def _as_strided(
        self, base: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
    ) -> Tensor:
        """Autograd names a view of a gradient by its strides: the same views are taken again."""
        self.ref(base)
        plain = bare(base)
        if (tuple(size), tuple(stride)) == (tuple(plain.shape), plain.stride()) and not offset:
            out = plain.as_strided(size, stride, offset)
            self._alias(out, base)
            return out
        way = self._aliases.way_to(base, size, stride, offset)
        if way is None:
            raise CaptureError("a view is given by its strides", recorded_line(), _WINDOWS)
        base = bare(base)
        for step in way:
            out = step.func(base, *step.rest, **step.kwargs)
            self.record(step.func, (base, *step.rest), step.kwargs, out)
            base = out if step.index is None else out[step.index]
        return base

    # ------------------------------------------------------------ random
    def _random(self, name: str, func: Overload, args: tuple[Any, ...], kwargs: Kwargs) -> Tensor:
        """Replaces torch's generator by one that is keyed by rows."""
        with self.paused():
            drawing = drawing_of(name, func, args, kwargs)
        if isinstance(drawing, str):
            raise CaptureError(drawing, recorded_line(), DRAW_BEFORE)
        shape, dtype, like = drawing.shape, drawing.dtype, drawing.like
        if like is not None and drawing.writes:
            self.check_writable(like)
        with self.paused():
            out = torch.ones(shape, dtype=dtype, device=like.device if like is not None else kwargs.get("device"))
        target = Random(drawing.distribution, self._draws.number())
        self.recording.num_randoms += 1
        self.record(target, (shape, dtype, drawing.parameters), {"seed": self.seed()}, out)
        if like is None or not drawing.writes:
            return out
        self._write(like, out)
        return like

    def seed(self) -> Tensor:
        """The number drawn once a call, on which all random numbers depend."""
        return self.input_once("$seed", SHARED, (), torch.int64, False)


@cache
def _dispatch_uncompiled() -> Callable[[Tracer, Overload, tuple[Any, ...], Kwargs], object]:
    """``Tracer.dispatch`` where Dynamo is loaded: no frame of it is compiled."""

    @torch.compiler.disable(reason="recording is vgraph's own work, not the user's")
    def dispatch(tracer: Tracer, func: Overload, args: tuple[Any, ...], named: Kwargs) -> object:
        return tracer.dispatch(func, args, named)

    return dispatch


def num_dispatch_modes() -> int:
    """How many modes see this thread's operators."""
    return len(_get_current_dispatch_mode_stack())


def leave_dispatch_modes(count: int) -> None:
    """Leaves what was entered since there were ``count``, and has not been left."""
    while num_dispatch_modes() > count:
        _pop_mode()
