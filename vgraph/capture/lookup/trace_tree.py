"""The tree of everything that one function has done: its traces, looked up step by step while its Python runs.

Takes: calls of torch functions on fake rows. Gives: what they gave before, without computing anything; a step that
was never seen is played on examples and becomes a new branch. Runs at every call of a function whose reads no guard
can watch. Source: trace caching as in Suhan et al. 2021, "LazyTensor"; docs/adr/0026-what-no-guard-can-watch.md.
"""

from __future__ import annotations

import inspect
import math
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vgraph.capture.errors import CaptureError
from vgraph.capture.lookup.fake_rows import (
    COUNTING,
    DTYPE,
    LOOKS,
    SHAPE,
    FakeRows,
    GivenCounts,
    RowPair,
    fake_rows,
    row_pair,
)
from vgraph.capture.lookup.trace_leaves import Key, numbers_of, sized, with_leaves
from vgraph.capture.player import Event, Leaf, Player
from vgraph.capture.rows.row_tensor import RowTensor, TorchFunction
from vgraph.ir.moves import Move
from vgraph.ir.space import Space
from vgraph.user_line import recorded_line

MOST_STEPS = 8192  # of one tree
_MOST_ENDINGS = 64  # traces of one tree that are recorded
_MOST_BRANCHES = 16  # at one step: a number that chooses among more is not worth a recording each
_CHANGES_TO_MOVE = 2  # a number that changed this often becomes an input


class BranchingError(CaptureError):
    """What a function does depends on a value that is another one at every call."""


# ---------------------------------------------------------------- the tree
@dataclass(eq=False)
class Step:
    """One step, and what followed it so far."""

    parent: Step | None
    event: Event  # as ``tape.Player`` plays it on the first examples
    second: Event  # and on those of the other size
    result: Any = None
    rows: list[FakeRows] = field(default_factory=list[FakeRows])
    references: list[int] = field(default_factory=list[int])  # to each of them while nobody keeps it
    trail: list[list[FakeRows]] | None = None  # of a step that calls end with: rows of all steps up to it
    all_references: list[int] = field(default_factory=list[int])
    children: dict[Key, Step] = field(default_factory=dict[Key, "Step"])
    numbers: dict[Key, Numbers] = field(default_factory=dict[Key, "Numbers"])
    endings: dict[Key, Any] = field(default_factory=dict[Key, Any])  # what is made of calls that end here

    def path(self) -> list[Step]:
        """The steps from the beginning to this one."""
        steps: list[Step] = []
        step = self
        while step.parent is not None:
            steps.append(step)
            step = step.parent
        return steps[::-1]

    def rows_are_kept(self) -> bool:
        """Whether somebody outside holds on to rows of the call that ends here."""
        if self.trail is None:
            steps = self.path()
            self.trail = [step.rows for step in steps]
            self.all_references = [count for step in steps for count in step.references]
        return _references(*self.trail) != self.all_references


@dataclass(eq=False)
class Numbers:
    """Calls that differ in Python numbers alone: which values there were, and which places become inputs."""

    seen: list[tuple[float, ...]] = field(default_factory=list[tuple[float, ...]])
    fixed: bool = False  # a shape or a branch needs the number itself

    def moving(self, now: tuple[float, ...]) -> frozenset[int]:
        """The places whose numbers have changed often enough."""
        if self.fixed:
            return frozenset()
        return frozenset(
            place
            for place in range(len(now))
            if len({repr(values[place]) for values in (*self.seen, now)}) > _CHANGES_TO_MOVE
        )


@dataclass(eq=False)
class TraceTree:
    """All traces of a function under the same modes and states; ``cursor`` is the call that goes through it."""

    root: Step = field(default_factory=lambda: Step(None, (), ()))
    leaves: dict[int, tuple[FakeRows, Leaf]] = field(default_factory=dict[int, tuple["FakeRows", Leaf]])  # by id
    num_steps: int = 0
    num_endings: int = 0
    num_hooks: int = -1  # that the process had registered at the last call whose modules were watched
    cursor: Cursor | None = None

    def note_ending(self) -> None:
        """One more trace is to be recorded.

        Raises:
            BranchingError: there are so many that the next call will hardly take one of them.
        """
        self.num_endings += 1
        if self.num_endings > _MOST_ENDINGS:
            raise BranchingError("it does another thing at every call")

    def new_rows(self, step: Step, leaf: Leaf, first: Tensor, second: Tensor) -> FakeRows:
        """What stands for a result of a step; ``leaf``: how later steps name it."""
        made = fake_rows(self, first, second)
        self.leaves[id(made)] = made, leaf
        step.rows.append(made)
        return made


_CONSTANTS: frozenset[type] = frozenset({
    bool, int, str, bytes, type(None), type(...), torch.dtype, torch.device, torch.layout, torch.memory_format,
    type, type(torch.relu), type(Tensor.relu), type(torch.nn.functional.linear), Space,
})  # fmt: skip
_NAN = float("nan")
_LEN = Tensor.__len__


class Cursor:
    """One call's way through the tree; ``players`` makes the means to play steps, which only a new one needs."""

    def __init__(
        self,
        tree: TraceTree,
        players: Callable[[], Sequence[Player]],
        play: Callable[[], AbstractContextManager[None]],
        autocast_kind: str,
    ) -> None:
        self._kind = autocast_kind
        self.tree, self.step = tree, tree.root
        self.lifted: list[Tensor] = []  # what it has read from outside
        self._places: dict[int, int] = {}  # in that, by id
        self._versions: list[int] = []
        self.playing = False
        self.counts = False  # the function was given a number of rows
        self.given = GivenCounts()
        self._make_players, self._play = players, play
        self._players: Sequence[Player] | None = None
        self._ran: dict[int, types.CodeType] = {}  # code that is no autograd.Function's, by id

    # ------------------------------------------------------------ every call
    def call(self, func: TorchFunction, args: tuple[Any, ...], kwargs: Mapping[str, object]) -> Any:
        """A torch function on fake rows; a look at a shape or a dtype is no step."""
        if func not in LOOKS:
            return self.note(func, args, kwargs)
        first = args[0] if args else None
        about = first.about if type(first) is FakeRows else {}
        if func in about and len(args) == 1:
            if func not in COUNTING:
                return about[func]
            self.counts = True
            return self.given.given(about[func])
        if func is Tensor.size and len(args) == 2 and not kwargs:
            size = about[SHAPE][args[1]]
            self.counts |= type(size) is RowPair
            return self.given.given(size)
        if func is _LEN:
            raise CaptureError("it takes the number of rows by len", recorded_line())
        return self.note(func, args, kwargs)

    def note(self, action: str | TorchFunction, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
        """What a step gives: as before, or as played now on examples."""
        leaf = self.leaf
        given = tuple([leaf(arg) for arg in args])
        named = tuple([(name, leaf(arg)) for name, arg in kwargs.items()]) if kwargs else ()
        autocast = torch.get_autocast_dtype(self._kind) if torch.is_autocast_enabled(self._kind) else None
        key = (action, given, named, torch.is_grad_enabled(), autocast)
        step = self.step.children.get(key)
        if step is None:
            step = self._branch(key)
        self.step = step
        return self._handed_out(step.result)

    def _handed_out(self, result: object) -> object:
        """What the user's Python is given: lists and numbers of rows are those of this call."""
        if type(result) is list:
            return [self._handed_out(item) for item in result]
        return self.given.given(result)

    def leaf(self, arg: Any) -> Leaf:
        kind = type(arg)
        if kind is FakeRows:
            known = self.tree.leaves.get(id(arg))
            if known is None:  # such as an autograd.Function makes of what it is given
                raise CaptureError("a view of its rows was made outside the functions of torch", recorded_line())
            return known[1]
        if kind in _CONSTANTS:
            return ("const", arg, kind)
        if kind is float:
            return ("const", _NAN if math.isnan(arg) else arg, kind if arg else math.copysign(1.0, arg))
        return self._rare_leaf(arg, kind)

    def _rare_leaf(self, arg: Any, kind: type) -> Leaf:
        if isinstance(arg, Tensor):
            return self._lifted_leaf(arg)
        if kind is complex:
            return ("const", arg, repr(arg))
        if kind is RowPair:
            return ("rows", arg.value, arg.second)
        if kind is slice:
            return ("slice", tuple([self.leaf(item) for item in (arg.start, arg.stop, arg.step)]))
        if kind is tuple or kind is list or kind is torch.Size:
            return ("list" if kind is list else "tuple", tuple([self.leaf(item) for item in arg]))
        if isinstance(arg, Move):
            return ("const", arg, kind)
        if isinstance(arg, np.generic):
            return self.leaf(arg.item())
        raise CaptureError(f"it hands a {kind.__name__} to a function of torch on rows", recorded_line())

    def _lifted_leaf(self, tensor: Tensor) -> Leaf:
        """A tensor from outside: the same object is the same input; a new one is told by what it looks like."""
        place = self._places.get(id(tensor))
        if place is not None:
            return ("lifted", place)
        if type(tensor) not in (Tensor, nn.Parameter, nn.Buffer):
            raise CaptureError(f"it reads a {type(tensor).__name__}", recorded_line())
        place = len(self.lifted)
        self.lifted.append(tensor)
        self._places[id(tensor)] = place
        self._versions.append(_version(tensor))
        return ("lifted", place, tensor.shape, tensor.dtype, tensor.requires_grad, tensor.layout, tensor.device)

    def keep_as_they_are(self) -> None:
        """The function is about to write to tensors from outside: what it has read of them stays as it was."""
        self._places.clear()
        self.lifted[:] = [tensor.clone() for tensor in self.lifted]
        self._versions[:] = [_version(tensor) for tensor in self.lifted]

    def inputs_are_as_read(self) -> bool:
        """Whether nothing else has written to what was read from outside."""
        return [_version(tensor) for tensor in self.lifted] == self._versions

    # ------------------------------------------------------------ a step that was never seen
    def _branch(self, key: Key) -> Step:
        numbers, values = numbers_of(key)
        known = self.step.numbers.setdefault(numbers, Numbers()) if values else Numbers()
        moving = known.moving(values)
        if moving:
            step = self._with_inputs(key, numbers, values, moving)
            if step is not None:
                return step
            known.fixed = True
        if len(known.seen) >= _MOST_BRANCHES or self.tree.num_steps >= MOST_STEPS:
            raise BranchingError("what it does depends on a number that is another one at every call", recorded_line())
        known.seen.append(values)
        step = self.step.children[key] = self._played(key)
        return step

    def _with_inputs(self, key: Key, numbers: Key, values: tuple[float, ...], moving: frozenset[int]) -> Step | None:
        """The step with 0-dim tensors in the places of numbers that change; None where it needs the numbers."""
        like = next(
            (child for child in self.step.children.values() if child.event and _same(child, key, numbers)), None
        )
        if like is None:  # with none of those numbers could it be played
            return None
        before = len(self.lifted)
        tensors = {
            place: torch.tensor(values[place], dtype=_dtype_of(values[place]), device="cpu") for place in sorted(moving)
        }
        kept = tuple(value for place, value in enumerate(values) if place not in moving)
        moved = with_leaves(key, {place: self._lifted_leaf(tensor) for place, tensor in tensors.items()})
        step = self.step.children.get(("moving", moving, kept, moved))
        if step is not None:
            return step
        try:
            step = self._played(moved)
        except Exception:  # whatever a tensor in place of a number led to: the number itself will tell
            step = None
        if step is None or _looks(step.result) != _looks(like.result):
            for tensor in self.lifted[before:]:
                del self._places[id(tensor)]
            del self.lifted[before:], self._versions[before:]
            self._players = None
            return None
        self.step.children["moving", moving, kept, moved] = step
        return step

    def _played(self, key: Key) -> Step:
        _refuse_autograd_functions(self._ran)
        action, given, named, grad, autocast = key
        modes = (grad, autocast is not None, autocast or torch.get_autocast_dtype(self._kind))
        line = recorded_line()
        event = (action, sized(given, 1), sized(named, 1), modes, line)
        second = (action, sized(given, 2), sized(named, 2), modes, line)
        made = Step(self.step, event, second)
        if self._players is None:
            self._players = self._catch_up()
        self.playing = True
        try:
            with self._play():
                found = [player.play(one) for player, one in zip(self._players, (event, second), strict=True)]
        finally:
            self.playing = False
        made.result = self._result(made, *found)
        made.references = _references(made.rows)
        self.tree.num_steps += 1
        return made

    def _catch_up(self) -> Sequence[Player]:
        """Players that stand where this call stands."""
        players = self._make_players()
        with self._play():
            for step in self.step.path():
                for player, event in zip(players, (step.event, step.second), strict=True):
                    player.play(event)
        return players

    def _result(self, step: Step, one: Leaf, two: Leaf) -> Any:
        """What the user's Python is given for a result as both players describe it."""
        kind = one[0]
        if kind == "probe":
            return self._rows(step, one[1])
        if kind == "items":
            if len(one[1]) != len(two[1]):
                raise CaptureError("what it does depends on the number of rows or slots", recorded_line())
            items = [self._result(step, a, b) for a, b in zip(one[1], two[1], strict=True)]
            made = getattr(torch.return_types, one[2], None) if one[2] else None
            return made(items) if made is not None else tuple(items)
        if one[1] != two[1] and not (one[1] != one[1] and two[1] != two[1]):
            if type(one[1]) is int:
                self.counts = True
                return row_pair(one[1], two[1])
            raise CaptureError("what it does depends on the number of rows", recorded_line())
        return one[1]

    def _rows(self, step: Step, place: int) -> FakeRows:
        assert self._players is not None
        first, second = (player.results[place] for player in self._players)
        made = self.tree.new_rows(step, ("probe", place), first, second)
        if isinstance(first, RowTensor):
            made.vg_space = first.vg_space
            made.twin = self.tree.new_rows(step, ("plain", place), first, second)
        return made


def _references(*rows: list[FakeRows]) -> list[int]:
    """How many references there are to each."""
    return list(map(sys.getrefcount, chain.from_iterable(rows)))


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _refuse_autograd_functions(known: dict[int, types.CodeType]) -> None:
    """A user's autograd.Function hides what it does from the functions of torch.

    ``known``: code that is none's, by id, to which what runs now is added: new code is asked of many classes.
    """
    frame, new = inspect.currentframe(), dict[int, types.CodeType]()
    while frame is not None:
        if id(frame.f_code) not in known:
            new[id(frame.f_code)] = frame.f_code
        frame = frame.f_back
    if new and not _forwards().isdisjoint(new):
        raise CaptureError("an autograd.Function of its own hides what it does", recorded_line())
    known.update(new)


def _forwards() -> set[int]:
    """Ids of the code of every autograd.Function's forward; ``apply``, in some releases of torch, has no frame."""
    found, classes = set[int](), list[type[torch.autograd.Function]](torch.autograd.Function.__subclasses__())
    while classes:
        one = classes.pop()
        found.add(id(getattr(one.forward, "__code__", None)))
        classes += one.__subclasses__()
    return found


def _same(step: Step, key: Key, numbers: Key) -> bool:
    action, given, named, *_ = step.event
    return numbers_of((action, given, named, *key[3:]))[0] == numbers


def _dtype_of(value: float) -> torch.dtype:
    return torch.float64 if isinstance(value, float) else torch.int64


def _looks(result: object) -> object:
    if isinstance(result, FakeRows):
        return tuple(result.about[SHAPE]), result.about[DTYPE]
    return [_looks(item) for item in result] if isinstance(result, tuple) else result
