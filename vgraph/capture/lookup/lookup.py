"""Lookup: what a function does, where no guard can watch all that it reads.

Takes: a Body and a call's features. Gives: the trace that this call took, and the tensors that it read. The function
runs as Python at every call, on fake rows, and what it does is found among the traces of earlier calls; a new trace
becomes Programs. Source: docs/adr/0026-what-no-guard-can-watch.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from vgraph.capture.body import Body, Given
from vgraph.capture.errors import CaptureError, HookError
from vgraph.capture.features import Features
from vgraph.capture.guards.code_watch import watch_code
from vgraph.capture.guards.hooks import SeenHooks
from vgraph.capture.guards.tracer_leaks import KeptError
from vgraph.capture.lookup.fake_rows import row_pair
from vgraph.capture.lookup.lookup_session import LookupSession, OnFakeRows, ReplayedBody, SessionPlayer
from vgraph.capture.lookup.trace_leaves import Key
from vgraph.capture.lookup.trace_tree import Cursor, Step, TraceTree
from vgraph.capture.player import Event, Leaf
from vgraph.capture.record.example_sizes import sizes_for
from vgraph.capture.record.modes import Modes, ambient, autocast_kind
from vgraph.capture.record.tracer import Tracer
from vgraph.capture.session import Session, Spec, Specs
from vgraph.collection import uncollected
from vgraph.ir.moves import Move
from vgraph.ir.space import SHARED, Space

T = TypeVar("T")
Find = Callable[[str], Tensor]
Sizes = dict[Space, int]
_MOST_TREES = 8  # of one function: modes, widths of features, states


@dataclass(eq=False)
class Found:
    """The trace that a call took; ``endings[key]`` is where what is made of it is kept."""

    step: Step
    key: Key
    inputs: dict[str, Tensor]
    spec: Specs
    counts: bool  # the function asked for a number of rows

    @property
    def endings(self) -> dict[Key, Any]:
        return self.step.endings

    def specs(self) -> dict[str, Spec]:
        """What the inputs look like."""
        return {name: self.spec(name) for name in self.inputs}

    def body(self, of: Body) -> ReplayedBody:
        """The trace as a Body; ``of``: the one that took it."""
        steps = self.step.path()
        events = [step.event for step in steps], [step.second for step in steps]
        outputs, carries, num_outputs, _ = self.key
        return ReplayedBody(
            name=of.name,
            mailbox=of.mailbox,
            per_vertex=of.per_vertex,
            spaces=of.spaces,
            events=events,
            outputs=outputs,
            carries=carries,
            num_outputs=num_outputs,
            known_facts=of.facts(),
        )


class _LivePlayer(SessionPlayer):
    """Plays single steps, each inside the tracer of its session."""

    def play(self, event: Event) -> Leaf:
        with self.session.tracer:
            return super().play(event)


def look_up(tree: TraceTree, body: Body, find: Find, spec: Specs, modes: Modes) -> Found:
    """Runs the body's Python on fake rows.

    Raises:
        CaptureError: it looks at the data of rows, or keeps them, or branches on a number of them; another value
            decides at every call what it does.
    """
    found = _run(tree, body, find, spec, modes)
    if found.key not in found.endings and found.counts:
        _verify(body, find, spec, modes)
    return found


@lru_cache(None, typed=True)  # a mailbox of degree 1 is not one of any degree
def _sizes(
    mailbox: bool | int, spaces: tuple[Space, ...], per_vertex: bool, swapped: bool
) -> tuple[tuple[Sizes, Sizes], Sizes]:
    """Numbers of rows of the two examples, and of both at once."""
    first, second = sizes_for(mailbox, spaces, one_vertex_set=per_vertex)[:: -1 if swapped else 1]
    return (first, second), {space: row_pair(size, second[space]) for space, size in first.items()}


def _run(tree: TraceTree, body: Body, find: Find, spec: Specs, modes: Modes, *, swapped: bool = False) -> Found:
    """``swapped``: the fake rows have the sizes of the second examples."""
    if tree.cursor is not None:
        raise CaptureError("it calls itself")
    sizes, pairs = _sizes(body.mailbox, body.spaces, body.per_vertex, swapped)
    sessions: list[Session] = []

    def spec_of(name: str) -> Spec:
        return _spec_of_lifted(lifted[int(name[7:])]) if name.startswith("shared:") else spec(name)

    def players() -> list[_LivePlayer]:
        _forget(sessions)
        sessions[:] = [Session(Tracer(one, modes[-1]), spec_of, body.mailbox) for one in sizes]
        for session in sessions:
            session.per_vertex = body.per_vertex
        return [_LivePlayer(session) for session in sessions]

    cursor = tree.cursor = Cursor(tree, players, lambda: ambient(*modes), autocast_kind(modes[-1]))
    lifted = cursor.lifted  # what asks for specs must not hold the cursor, which asks it
    session: Any = LookupSession(body, pairs, cursor, find)
    try:
        num_hooks = RemovableHandle.next_id  # counts what was ever registered
        # to watch every call would cost as much as the call
        is_known = tree.num_endings > 0 and tree.num_hooks == num_hooks
        with nullcontext() if is_known else watch_code(SeenHooks()), OnFakeRows(cursor):
            given = body.run(session)
        tree.num_hooks = num_hooks
        key, inputs = _ending(cursor, given, body), session.inputs
        del given, session
        if cursor.step.rows_are_kept():
            raise KeptError("it keeps rows for later")
        if cursor.given.are_kept():
            raise KeptError("it keeps a number of rows for later")
        if not cursor.inputs_are_as_read():
            raise CaptureError("it writes to memory of a tensor that it has read")
    except HookError as error:
        error.is_kept = False  # nobody watches whether the hook is removed
        raise
    finally:
        tree.cursor = None
        _forget(sessions)
    for place, tensor in enumerate(cursor.lifted):
        inputs[f"shared:{place}"] = tensor
    return Found(cursor.step, key, inputs, spec_of, cursor.counts)


def _spec_of_lifted(tensor: Tensor) -> Spec:
    return Spec(SHARED, tuple(tensor.shape), tensor.dtype, tensor.requires_grad)


def _forget(sessions: Sequence[Session]) -> None:
    for session in sessions:
        session.forget()


def _ending(cursor: Cursor, given: Given, body: Body) -> Key:
    outputs = tuple([cursor.leaf(output) for output in given.outputs])
    fed: list[tuple[int, Any, Move]] = [*given.carries]  # NamedLeafs
    carries = tuple([(place, target.name, move) for place, target, move in fed])
    facts = body.facts()
    return outputs, carries, given.num_outputs, getattr(facts, "names", facts)


@dataclass(eq=False)
class Traces:
    """The trees of one function."""

    trees: list[tuple[Modes, object, TraceTree]] = field(default_factory=list[tuple[Modes, object, TraceTree]])
    known: list[tuple[object, dict[str, Spec]]] = field(default_factory=list[tuple[object, "dict[str, Spec]"]])

    def find(
        self,
        features: Features,
        make_body: Callable[[], Body],
        with_states: Callable[[Any], Body] | None,
        modes: Modes,
        record: Callable[[ReplayedBody, dict[str, Spec]], T],
    ) -> tuple[T, Mapping[str, Tensor]]:
        """What was recorded of the trace that this call takes, and the call's tensors by name.

        ``record`` makes it of a trace that was never seen; ``with_states``: a body whose states are known.
        """
        known = None if with_states is None else self.states(features)
        body = make_body() if with_states is None else None if known is None else with_states(known)
        found = None if body is None else self._right(features, body, modes)
        if found is None or body is None or (known is not None and found.key not in found.endings):
            # what is new may begin with other states: wide ones, for one, stay wide of themselves
            with ambient(*modes), same_random_numbers():
                inferred = make_body()
            if found is None or body is None or _states(inferred) != known:
                body = inferred
                found = look_up(self.tree(modes, _states(body)), body, features.__getitem__, features.specs, modes)
                if _states(body) != getattr(body, "seen", None):
                    raise CaptureError("the widths of its states change from one evaluation to the next")
        entry = found.endings.get(found.key)
        if entry is None:
            self.note_states(_states(body), found.specs())
            self.tree(modes, _states(body)).note_ending()
            with uncollected():
                entry = found.endings[found.key] = record(found.body(body), found.specs())
        return entry, found.inputs

    def _right(self, features: Features, body: Body, modes: Modes) -> Found | None:
        """What the body does with the states that it has; None where other ones would be right in this call."""
        states = _states(body)
        try:
            found = look_up(self.tree(modes, states), body, features.__getitem__, features.specs, modes)
        except Exception:  # perhaps because of the states: with right ones it is raised again
            if states is None:
                raise
            return None
        return found if states == getattr(body, "seen", None) else None

    def states(self, features: Features) -> object:
        """The states that were inferred for features like these; None if none were."""
        for states, specs in self.known:
            if all(_is_like(features, name, spec) for name, spec in specs.items()):
                return states
        return None

    def note_states(self, states: object, specs: Mapping[str, Spec]) -> None:
        """These states were right for features like these."""
        read = {name: spec for name, spec in specs.items() if not name.startswith("shared:")}
        if states is not None and (states, read) not in self.known:
            self.known.insert(0, (states, read))
            del self.known[_MOST_TREES:]

    def tree(self, modes: Modes, key: object) -> TraceTree:
        """The tree for these modes and states, made where there is none."""
        for place, (known_modes, known_key, tree) in enumerate(self.trees):
            if known_modes == modes and known_key == key:
                self.trees.insert(0, self.trees.pop(place))
                return tree
        self.trees.insert(0, (modes, key, TraceTree()))
        del self.trees[_MOST_TREES:]
        return self.trees[0][2]


def _states(body: Body) -> object:
    """The states of a vertex function; None for functions of edges and nodes."""
    return getattr(body, "states", None) if hasattr(body, "seen") else None


def _is_like(features: Features, name: str, spec: Spec) -> bool:
    try:
        tensor = features[name]
    except KeyError:
        return False
    return (tuple(tensor.shape[1:]), tensor.dtype) == (spec.row_shape, spec.dtype)


def _verify(body: Body, find: Find, spec: Specs, modes: Modes) -> None:
    """A function that asked for a number of rows must do the same on examples of another size."""
    ways: list[Found] = []
    for swapped in (False, True):
        with same_random_numbers():
            ways.append(_run(TraceTree(), body, find, spec, modes, swapped=swapped))
    first = [step.second[:4] for step in ways[0].step.path()]
    if first != [step.event[:4] for step in ways[1].step.path()] or ways[0].key != ways[1].key:
        raise CaptureError("what it does depends on the number of rows")


@contextmanager
def same_random_numbers() -> Generator[None]:
    """Python's and NumPy's global generators are afterwards as they were before."""
    states = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
