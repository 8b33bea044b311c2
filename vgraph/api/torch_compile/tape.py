"""Tape: what a function does, noted by Dynamo call by call, and played again on a Session's examples.

Takes: events (calls of torch functions, features read, states scattered). Gives: a function for the operator
that stands for it in a compiled graph. Runs once per compiled graph.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vgraph.api.vertex.function import VertexFunction, check_children
from vgraph.api.vertex.infer_states import infer_states
from vgraph.api.vertex.vertex import StateSpec, Vertex, VertexBody
from vgraph.capture.body import Body, Given, compile_options
from vgraph.capture.derivative_programs import level_program
from vgraph.capture.errors import CaptureError
from vgraph.capture.player import SPACES, Event, Player, which_sizes
from vgraph.capture.record.example_sizes import sizes_for
from vgraph.capture.record.modes import Modes, ambient, current_modes, with_own_hooks
from vgraph.capture.record.tracer import Tracer
from vgraph.capture.rows.row_mixing import refuse_mixing
from vgraph.capture.rows.row_tensor import plain
from vgraph.capture.session import Session, Spec
from vgraph.capture.trace import trace
from vgraph.ir.space import EDGE, VERTEX, Space
from vgraph.ir.topology import Topology
from vgraph.runtime.autograd import Derivation
from vgraph.runtime.compiled import CallContext, CompiledProgram
from vgraph.runtime.custom_op import Rows, known, register
from vgraph.scheduler.degree_buckets import active_part


class Column(NamedTuple):
    """A feature, or a tensor that the function reached, as plain constants."""

    name: str  # "src:h", "shared:0"
    row_shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool

    def spec(self) -> Spec:
        return Spec(SPACES[self.name.partition(":")[0]], self.row_shape, self.dtype, self.requires_grad)


ColumnFields = tuple[str, tuple[int, ...], torch.dtype, bool]  # those of Column
Finished = tuple[str, tuple[str, ...], bool]  # an operator's key, its inputs' names, whether it draws


# ---------------------------------------------------------------- bodies that play a tape
@dataclass(eq=False)
class TapeBody:
    """A message and a reduce function, or one of edges, as it was noted on both sizes of examples."""

    name: str
    mailbox: bool | int
    tapes: tuple[list[Event], list[Event]]
    outputs: tuple[int, ...]  # numbers of results
    per_vertex: bool = False
    spaces: tuple[Space, ...] = ()

    def run(self, session: Session) -> Given:
        player = Player(session)
        for event in self.tapes[which_sizes(session)]:
            player.play(event)
        return Given([plain(player.results[i]) for i in self.outputs], [], len(self.outputs))

    def facts(self) -> None:
        """A tape says by itself what it gives."""


class TapeModule(nn.Module):
    """A vertex function that plays a tape."""

    def __init__(self, tapes: tuple[list[Event], list[Event]]) -> None:
        super().__init__()
        self.tapes = tapes

    def forward(self, v: Vertex) -> None:
        player = Player(v.session, v)
        for event in self.tapes[which_sizes(v.session)]:
            player.play(event)


# ---------------------------------------------------------------- the function behind an operator
@dataclass(eq=False)
class TapedFunction:
    """A Callee: levels are recorded from the tape when they are first asked for."""

    body: Callable[[], Body]
    specs: Mapping[str, Spec]
    modes: Modes
    names: tuple[str, ...]
    policy: str
    is_partial: bool  # vertices without in-edges get zeros
    outputs: tuple[Rows, ...] = ()
    states: tuple[Rows, ...] = ()
    num_slots_needed: tuple[int | tuple[int, str], ...] = ()
    reverses: bool = False
    programs: dict[Derivation, CompiledProgram] = field(default_factory=dict[Derivation, CompiledProgram])

    def level(self, derivation: Derivation) -> CompiledProgram:
        """The Program of a derivative; of the function itself with its states as further outputs."""
        if derivation not in self.programs:
            # an operator runs below autograd; a thread of its own knows nothing of where it was called
            with ThreadPoolExecutor(1) as pool:
                self.programs[derivation] = pool.submit(self._record, derivation).result()
        return self.programs[derivation]

    def _record(self, derivation: Derivation) -> CompiledProgram:
        body = self.body()
        with ambient(*self.modes):
            found = trace(body, self.specs.__getitem__, derivation, None)
        if body.per_vertex and not derivation:
            refuse_mixing(body.name, found.tape.ops)
        return level_program(body.name, found, compile_options(body), with_states=not derivation)

    def evaluate(
        self,
        derivation: Derivation,
        names: tuple[str, ...],
        tensors: Sequence[Tensor],
        topology: Topology,
        seed: Tensor | None,
    ) -> list[Tensor | None]:
        program = self.level(derivation)
        topology = topology.reversed if self.reverses else topology
        check_children(self.num_slots_needed, {}, topology, None)
        part = active_part(topology) if self.is_partial else None
        if part is None:
            outcome = program(dict(zip(names, tensors, strict=True)), CallContext(topology, self.policy, {}, seed))
            return [*outcome.outputs, *(state.clone() for state in outcome.saved)]
        ids = {VERTEX: part.vertex_ids, EDGE: part.edge_ids}
        given: dict[str, Tensor] = {}
        for name, tensor in zip(names, tensors, strict=True):
            at = ids.get(self._space(name, derivation))
            given[name] = tensor if at is None else tensor.index_select(0, at)
        found = program(given, CallContext(part.topology, self.policy, {}, seed)).outputs
        sizes = {VERTEX: topology.num_dst, EDGE: topology.num_edges}
        made: list[Tensor | None] = []
        for place, rows in enumerate(found):
            space = self._output_space(place, derivation)
            if rows is not None and space in ids:
                rows = rows.new_zeros((sizes[space], *rows.shape[1:])).index_copy_(0, ids[space], rows)
            made.append(rows)
        return made

    def _output_space(self, place: int, derivation: Derivation) -> Space:
        if derivation:
            return self._space(derivation[-1].wrt[place], derivation[:-1])
        return EDGE if self.outputs[place].per_edge else VERTEX

    def _space(self, name: str, derivation: Derivation) -> Space:
        if not name.startswith("cotangent"):
            return self.specs[name].space
        level, _, place = name.removeprefix("cotangent").partition(":")
        return self._output_space(int(place), derivation[: int(level) - 1])


# ---------------------------------------------------------------- noting, called by Dynamo at compile time
@dataclass(eq=False)
class _Noting:
    """One run of a user's function on examples of one size."""

    player: Player
    tracer: Tracer
    specs: dict[str, Spec]
    mailbox: bool | int
    events: list[Event] = field(default_factory=list[Event])
    states: tuple[str, Mapping[str, StateSpec]] | None = None  # of a vertex function: its name and its states


_notings: dict[int, _Noting] = {}
_numbers = count()


def _begin(which: int, mailbox: bool, per_vertex: bool) -> _Noting:
    tracer = Tracer(sizes_for(mailbox, (), one_vertex_set=per_vertex)[which])
    specs: dict[str, Spec] = {}
    session = Session(tracer, specs.__getitem__, mailbox)
    session.per_vertex = per_vertex
    return _Noting(Player(session), tracer, specs, mailbox)


def _started(noting: _Noting) -> tuple[int, int, int]:
    while len(_notings) > 16:  # of compilations that were given up
        _notings.pop(next(iter(_notings))).tracer.forget()
    number = next(_numbers)
    _notings[number] = noting
    sizes = noting.tracer.recording.sizes
    return number, sizes[VERTEX], sizes[EDGE]


def begin_update(which: int, mailbox: bool) -> tuple[int, int, int]:
    """A run of functions of edges and nodes: its number, how many vertices and edges the examples have."""
    return _started(_begin(which, mailbox, per_vertex=False))


def begin_vertex(
    which: int, function: VertexFunction, columns: tuple[ColumnFields, ...]
) -> tuple[int, tuple[str, ...]] | str:
    """A run of a vertex function, whose states are inferred first: its number and the names of the states.

    A text where they cannot be inferred.
    """
    noting = _begin(which, False, per_vertex=True)
    noting.specs.update((c[0], Column(*c).spec()) for c in columns)
    find = _finder(noting.specs)

    def body_of(states: Mapping[str, StateSpec]) -> VertexBody:
        return VertexBody(function, states, find, ())

    try:
        with with_own_hooks():
            states = infer_states(function, body_of, noting.specs.__getitem__, (), function.given_states)
    except Exception as error:  # the call outside the compiled graph will tell
        return f"{type(error).__name__}: {error}"
    noting.player.vertex = Vertex(noting.player.session, states, find)
    noting.states = (type(function).__name__, states)
    return _started(noting)[0], tuple(states)


def _finder(specs: Mapping[str, Spec]) -> Callable[[str, str], str]:
    def find(kind: str, name: str) -> str:
        if f"{kind}:{name}" not in specs:
            raise CaptureError(f"there is no {kind} feature {name!r}")
        return f"{kind}:{name}"

    return find


def note(
    number: int,
    action: Callable[..., object] | str,
    args: tuple[object, ...],
    kwargs: tuple[tuple[str, object], ...],
    lifted: tuple[ColumnFields, ...],
) -> Any:
    """Plays one event and keeps it; ("refused", reason) where it cannot be played."""
    noting = _notings[number]
    noting.specs.update((c[0], Column(*c).spec()) for c in lifted)
    event = (action, args, kwargs, current_modes())
    try:
        with noting.tracer, with_own_hooks():
            found = noting.player.play(event)
    except Exception as error:  # whatever the user's call raises on examples it will raise uncompiled
        return "refused", f"{type(error).__name__}: {error}"
    noting.events.append(event)
    return found


_WRITING = frozenset(f"__{word}__" for word in ("setitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod"))


def writes(func: Callable[..., object]) -> bool:
    """Whether a torch function changes the tensor that it is given first."""
    name = getattr(func, "__name__", "")
    return name in _WRITING or (name.endswith("_") and not name.startswith("__"))


def finish_update(numbers: tuple[int, int], name: str, outputs: tuple[int, ...], is_partial: bool) -> Finished | str:
    """The operator's key, its inputs' names and whether it draws; a text where it is refused."""
    notings = _ended(numbers)
    mailbox, tapes = notings[0].mailbox, (notings[0].events, notings[1].events)
    results = [plain(notings[0].player.results[i]) for i in outputs]
    rows = tuple(Rows(not mailbox, tuple(t.shape[1:]), t.dtype) for t in results)
    function = TapedFunction(
        lambda: TapeBody(name, mailbox, tapes, outputs), notings[0].specs, current_modes(), (), "once", is_partial, rows
    )
    return _finished(function, notings, (mailbox, outputs, is_partial))


def finish_vertex(
    numbers: tuple[int, int], policy: str, reverses: bool
) -> tuple[str, tuple[str, ...], bool, tuple[str, ...]] | str:
    """As ``finish_update``, for a vertex function; the names of its outputs beside."""
    notings = _ended(numbers)
    vertex, inferred = notings[0].player.vertex, notings[0].states
    assert isinstance(vertex, Vertex) and inferred is not None
    name, states = inferred
    module, find = TapeModule((notings[0].events, notings[1].events)), vertex.find

    def make_body() -> VertexBody:
        body = VertexBody(module, states, find, ())
        body.name = name
        return body

    rows = [Rows(False, tuple(plain(t).shape[1:]), t.dtype) for t in vertex.pushed.values()]
    carried = [vertex.scattered[n] for n in vertex.gathered if n in vertex.scattered]
    function = TapedFunction(
        body=make_body,
        specs=notings[0].specs,
        modes=current_modes(),
        names=(),
        policy=policy,
        is_partial=False,
        outputs=tuple(rows),
        states=tuple(Rows(False, tuple(plain(t).shape[1:]), t.dtype) for t in carried),
        num_slots_needed=tuple(sorted(vertex.session.num_slots_needed, key=str)),
        reverses=reverses,
    )
    found = _finished(function, notings, (name, policy, reverses, tuple(vertex.pushed)))
    return found if isinstance(found, str) else (*found, tuple(vertex.pushed))


def _ended(numbers: tuple[int, int]) -> tuple[_Noting, _Noting]:
    first, second = (_notings.pop(number) for number in numbers)
    return first, second


def _finished(function: TapedFunction, notings: tuple[_Noting, _Noting], facts: object) -> Finished | str:
    inputs = notings[0].tracer.recording.inputs
    function.names = tuple(name for name in inputs if not name.startswith(("$", "child:")))
    draws = "$seed" in inputs
    for noting in notings:
        noting.tracer.forget()
    try:
        function.level(())
    except CaptureError as error:
        return f"{error.reason} {error.line}"
    key = _key(function, notings[0].events, notings[1].events, facts)
    if not known(key):
        register(key, function)
    return key, function.names, draws


def _key(function: TapedFunction, *parts: object) -> str:
    """The same for the same function in every process, so that what is kept on disk fits."""
    specs = sorted((name, str(spec)) for name, spec in function.specs.items())
    text = _spell((parts, function.modes, function.names, function.outputs, function.states, specs))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _spell(thing: object) -> str:
    if isinstance(thing, (tuple, list)):
        return f"({','.join(_spell(item) for item in thing)})"
    if callable(thing) and not isinstance(thing, type):
        module = getattr(thing, "__module__", None) or type(getattr(thing, "__self__", thing))
        return f"{getattr(thing, '__objclass__', module)}.{getattr(thing, '__qualname__', uuid.uuid4())}"
    return repr(thing)
