"""Derive: runs a function and its derivatives on examples, and notes what happened.

Takes: a Body (a user function) and a Derivation. Gives: a Trace; tempo: once a function.
Source: Cavs section 3.4; derivatives of every order by autograd.grad inside the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from vgraph import config
from vgraph.api.aliases import Ref
from vgraph.api.mailbox import lower_mailbox, name_counts, refuse_mixed_batches
from vgraph.api.mixing import check_rows
from vgraph.api.reading import unwatched
from vgraph.api.reductions import Context, move_rows
from vgraph.api.rows import RowTensor, as_rows, plain
from vgraph.api.sizes import sizes_for
from vgraph.api.tracer import CaptureError, Tracer, user_line
from vgraph.api.unify import Tape, unify
from vgraph.ir.attention import weigh_once
from vgraph.ir.hoist import hoist
from vgraph.ir.linear_sums import Foresight, Linear, sum_once, visits_in_edges
from vgraph.ir.moves import Move, SegmentReduce
from vgraph.ir.program import EDGE, VERTEX, Carry, Op, Rows, Space, Value, needed_ops
from vgraph.ir.tidy import tidy
from vgraph.runtime.autograd import Derivation, Step, cotangent_name


@dataclass(frozen=True)
class Spec:
    """What an input looks like: its space, the shape of a row, dtype and whether it has gradient."""

    space: Space
    row_shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool


Specs = Callable[[str], Spec]


class Session(Context):
    """One run of a Body on examples: where its features come from and where its Moves go."""

    def __init__(self, tracer: Tracer, specs: Specs, mailbox: bool | int) -> None:
        self.tracer, self.specs = tracer, specs
        self.branched, self.counted, self.widens, self.per_vertex = False, False, False, False
        sizes = tracer.recording.sizes
        self.mailbox: tuple[int, int] | None = None
        self.row_sizes = frozenset(sizes.values())
        if mailbox is not False:
            slots = sizes[EDGE] // sizes[VERTEX]
            self.mailbox = (sizes[VERTEX], slots)
        self.num_slots_needed: set[Any] = set()  # k, or (k, type)
        self.num_vertices = sizes[VERTEX]
        self.num_checked = 0  # ops, the first of the recording, that must not mix rows

    def forget(self) -> None:
        """Lets go of the examples, and of the call's features: nodes of autograd may hold the session for longer."""
        self.tracer.forget()
        self.specs = _no_specs

    def note_checked(self) -> None:
        """What was recorded up to now must not mix rows."""
        self.num_checked = len(self.tracer.recording.records)

    def input(self, name: str) -> RowTensor:
        """The example for a feature, made at its first use."""
        known = self.tracer.recording.inputs.get(name)
        with self.tracer.paused():  # looking a feature up may select its rows
            spec = self.specs(name)
        if known is None:
            tensor = self.tracer.new_input(name, spec.space, spec.row_shape, spec.dtype, spec.requires_grad)
        else:
            tensor = self.tracer.recording.tensors[known.index]
        return as_rows(tensor, spec.space, self)

    def child(self, name: str, row_shape: tuple[int, ...], dtype: torch.dtype) -> RowTensor:
        """The example for a state of every child: what a Carry will feed."""
        has_grad = dtype.is_floating_point and torch.is_grad_enabled()
        tensor = self.tracer.new_input(f"child:{name}", EDGE, row_shape, dtype, has_grad)
        return as_rows(tensor, EDGE, self)

    def leaf(self, name: str) -> Tensor:
        """The example that stands for an input; others are its twins, and no way leads through them all."""
        recording = self.tracer.recording
        return recording.tensors[recording.inputs[name].index]

    def _topological(self, name: str, space: Space) -> Tensor:
        known, tensors = self.tracer.recording.inputs.get(name), self.tracer.recording.tensors
        return self.tracer.new_input(name, space, (), torch.int64) if known is None else tensors[known.index]

    def ids(self, name: str, space: Space) -> RowTensor:
        """The user's ids of rows: ``$vertex_ids``, ``$edge_ids``, ``$src_ids`` or ``$dst_ids``."""
        return as_rows(self._topological(name, space), space, self)

    def in_degree(self) -> Tensor:
        return self._topological("$in_degree", VERTEX)

    def note_look(self, name: str) -> None:
        raise CaptureError(f"{name} looks at the data of a tensor", user_line())

    def note_branch(self) -> None:
        self.branched = True

    def note_count(self) -> None:
        self.counted = True

    def slots(self) -> Tensor:
        return self._topological("$slot", EDGE)

    def run_move(self, move: Move, rows: Tensor) -> Any:
        """Records a Move; its example result is made of ones."""
        size = self.tracer.recording.sizes[move.result]
        if self.per_vertex:
            check_rows(rows, self.tracer.recording.sizes[move.source])
        two = isinstance(move, SegmentReduce) and move.reduction in ("max", "min")
        with self.tracer.paused():
            out = torch.ones((size, *rows.shape[1:]), dtype=rows.dtype, device=rows.device)
            pair = (out, torch.zeros_like(out, dtype=torch.int64)) if two else out
        return self.tracer.record(move, (plain(rows),), {}, pair)


def _no_specs(name: str) -> Spec:
    raise AssertionError(f"{name} is asked for after the recording")


@dataclass(eq=False)
class Given:
    """What a Body gives: the user's outputs, then states; carries are (output, input, move)."""

    outputs: list[Tensor]
    carries: list[tuple[int, Tensor, Move]]
    num_outputs: int


def compile_options(body: Body) -> dict[str, Any]:
    """How the Programs of a body are compiled; where one degree is run densely, rows have two names."""
    return {"per_vertex": body.per_vertex, "fuse": isinstance(body.mailbox, bool)}


class Body(Protocol):
    """A user function with what surrounds it."""

    name: str
    mailbox: bool | int
    per_vertex: bool
    spaces: tuple[Space, ...]  # subsets and types of vertices

    def run(self, session: Session) -> Given:
        """Calls the user's function once on the session's examples."""
        ...

    def facts(self) -> Any:
        """What the last run showed that calls need to know, such as the outputs' names."""
        ...


@dataclass(eq=False)
class Level:
    """One level as it ran: everything by number of recorded tensor."""

    outputs: list[Ref | None]
    carries: list[tuple[int, Ref, Move]]
    has_grad: list[bool]
    num_outputs: int
    wrt: tuple[str, ...] = ()


@dataclass(eq=False)
class Trace:
    """A tape and the levels on it, the function itself first."""

    tape: Tape
    levels: list[Level]
    num_slots_needed: tuple[Any, ...]
    step: Step | None  # the last one, if it was asked for by ``wrt`` alone
    features: tuple[str, ...]  # inputs of the function itself, but what the topology gives
    as_written: tuple[Op, ...] = ()  # the tape before ops moved from edges to vertices
    kept: frozenset[int] = frozenset()  # ids of what the function computes for its derivative alone

    def values(self, refs: Sequence[Ref | None]) -> list[Value | None]:
        return [None if r is None else self.tape.values[r.index] for r in refs]

    def carries(self, level: int) -> list[Carry]:
        found = self.levels[level]
        outputs = self.values(found.outputs)
        made: list[Carry] = []
        for position, target, move in found.carries:
            source = outputs[position]
            if source is not None:
                made.append(Carry(source, self.tape.values[target.index], move))
        return made

    def written(self) -> tuple[Op, ...]:
        """The ops that lead to what the function itself gives, in order."""
        wanted = {value.id for value in self.values(self.levels[0].outputs) if value is not None}
        return needed_ops(self.tape.ops, wanted)


ALL = ("*",)  # for ``wrt``: whatever has a gradient


def trace(
    body: Body, specs: Specs, derivation: Derivation, wrt: tuple[str, ...] | None, device: torch.device | None = None
) -> Trace:
    """Two recordings of the body and the derivatives that ``derivation`` asks for, unified.

    ``wrt`` asks for one derivative more, of every output that has one; ALL: for every input that has
    one, if any. ``device``: of the examples, where the graph lies.
    """
    sizes = sizes_for(body.mailbox, body.spaces, one_vertex_set=body.per_vertex)
    sessions = [Session(Tracer(one, device), specs, body.mailbox) for one in sizes]
    runs: list[_Run] = []
    try:
        for session in sessions:
            session.per_vertex = body.per_vertex
            # what runs is noted once: it runs again in the same way, or the recordings differ
            with session.tracer, unwatched() if runs else nullcontext():
                runs.append(_run_levels(body, session, derivation, wrt))
        if any(session.branched for session in sessions):
            raise CaptureError("it branches on a number of rows or slots")
        with unwatched():
            return _assemble(body, sessions, runs[-1])
    finally:
        for session in sessions:
            session.forget()


_Run = tuple[list[Level], Step | None, tuple[str, ...]]


def _assemble(body: Body, sessions: Sequence[Session], run: _Run) -> Trace:
    levels, step, features = run
    tape, session = unify(*(one.tracer.recording for one in sessions)), sessions[0]
    if body.mailbox is True:
        name_counts(tape)
    if not body.per_vertex:
        refuse_mixed_batches(tape, session.num_checked)
    if body.mailbox is True:
        lower_mailbox(tape, [ref.index for ref in levels[0].outputs if ref is not None])
    tape.ops, renamed = tidy(tape.ops, tape.new_value)
    tape.values = {index: renamed.get(value.id, value) for index, value in tape.values.items()}
    as_written = tuple(tape.ops)
    kept: frozenset[int] = frozenset()
    if isinstance(body.mailbox, bool) and not body.per_vertex and config.hoists():
        tape.ops = hoist(tape.ops, tape.new_value)
        tape.ops, kept = _sum_less(tape, levels)
    return Trace(tape, levels, tuple(sorted(session.num_slots_needed, key=str)), step, features, as_written, kept)


def _sum_less(tape: Tape, levels: Sequence[Level]) -> tuple[list[Op], frozenset[int]]:
    """The laws of sums over edges; sums are kept for a derivative that then need not visit in-edges at all."""
    outputs = {tape.values[ref.index].id for ref in levels[0].outputs if ref is not None}
    function = needed_ops(tape.ops, outputs)
    own = {value.id for op in function for value in op.results}
    given = frozenset(own | {value.id for op in function for value in op.operands()})
    foresight = Foresight(given, lambda: _in_degree(tape), keeps=True)
    found = Linear([], frozenset())
    if len(levels) == 2 and not any(level.carries for level in levels):
        found = sum_once(tape.ops, tape.new_value, foresight)
        grads = [None if ref is None else tape.values[ref.index] for ref in levels[1].outputs]
        ahead = {v.id for op in needed_ops(found.ops, outputs | found.kept) for v in op.results}
        behind = [
            op for op in needed_ops(found.ops, {v.id for v in grads if v is not None}) if op.results[0].id not in ahead
        ]
        if found.kept and visits_in_edges(behind, grads):
            found = sum_once(tape.ops, tape.new_value, replace(foresight, keeps=False))
    else:
        found = sum_once(tape.ops, tape.new_value, None)
    return weigh_once(found.ops, tape.new_value, own | found.kept), found.kept


def _in_degree(tape: Tape) -> Value:
    """The topology's, whether or not the function asked for it."""
    if "$in_degree" not in tape.inputs:
        tape.next_id += 1
        tape.inputs["$in_degree"] = Value(tape.next_id, VERTEX, torch.int64, (Rows(VERTEX),))
    return tape.inputs["$in_degree"]


def _run_levels(body: Body, session: Session, derivation: Derivation, wrt: tuple[str, ...] | None) -> _Run:
    zero = body.run(session)
    with unwatched():
        features = tuple(n for n in session.tracer.recording.inputs if not n.startswith(("$", "child:")))
        asked = _with_grad(session, features) if wrt == ALL else wrt
        return (*_derive_levels(session, zero, derivation, asked), features)


def _with_grad(session: Session, features: Sequence[str]) -> tuple[str, ...] | None:
    lifted = enumerate(session.tracer.recording.lifted)
    named = [name for name in features if session.specs(name).requires_grad]
    return (*named, *(f"lifted:{i}" for i, (tensor, _) in lifted if tensor.requires_grad)) or None


def _derive_levels(
    session: Session, zero: Given, derivation: Derivation, wrt: tuple[str, ...] | None
) -> tuple[list[Level], Step | None]:
    tracer = session.tracer
    outputs: list[Tensor | None] = [plain(t) for t in zero.outputs]
    tensors = tracer.recording.tensors  # a carry's own leaf, not a twin of it
    carries = [(i, tensors[tracer.ref(t).index], m) for i, t, m in zero.carries]
    levels = [_note(tracer, outputs, carries, zero.num_outputs)]
    named = _named_inputs(tracer)
    known: dict[str, tuple[Tensor, Move]] = {}  # a state of a lower level: what it feeds, and how
    last_step: Step | None = None
    for number in range(1, len(derivation) + (wrt is not None) + 1):
        last = number == len(derivation) + (wrt is not None)
        if last and wrt is not None:
            able = [i for i, has in enumerate(levels[-1].has_grad[: levels[-1].num_outputs]) if has]
            step = last_step = Step(tuple(able), wrt)
        else:
            step = derivation[number - 1]
        known.update((f"state{number - 1}:{i}", (t, m)) for i, (_, t, m) in enumerate(carries))
        targets = [named[name] if name in named else known[name][0] for name in step.wrt]
        outputs, carries, cotangents = _differentiate(
            tracer, number, step, outputs, carries, targets, levels[-1].num_outputs, create_graph=not last
        )
        for i, name in enumerate(step.wrt):
            grad = outputs[i]
            if name in known and grad is not None:
                outputs[i] = move_rows(session, known[name][1].transpose(), grad)
        named.update(cotangents)
        levels.append(_note(tracer, outputs, carries, len(step.wrt), step.wrt))
    return levels, last_step


def _note(
    tracer: Tracer, outputs: list[Tensor | None], carries: list[tuple[int, Tensor, Move]], num_outputs: int,
    wrt: tuple[str, ...] = (),
) -> Level:  # fmt: skip
    refs = [None if t is None else tracer.ref(t) for t in outputs]
    has_grad = [t is not None and t.requires_grad for t in outputs]
    return Level(refs, [(i, tracer.ref(t), m) for i, t, m in carries], has_grad, num_outputs, wrt)


def _named_inputs(tracer: Tracer) -> dict[str, Tensor]:
    recording = tracer.recording
    named = {name: recording.tensors[ref.index] for name, ref in recording.inputs.items()}
    named.update((f"lifted:{i}", tracer.as_used(t)) for i, (t, _) in enumerate(recording.lifted))
    return named


def _differentiate(
    tracer: Tracer, number: int, step: Step, outputs: list[Tensor | None],
    carries: list[tuple[int, Tensor, Move]], targets: Sequence[Tensor], num_outputs: int, *, create_graph: bool,
) -> tuple[list[Tensor | None], list[tuple[int, Tensor, Move]], dict[str, Tensor]]:  # fmt: skip
    """One autograd.grad: gradients for ``step.wrt``, then for what the carries feed."""
    num_states = len(carries)
    carried_in = [t for _, t, _ in carries]
    cotangents: dict[str, Tensor] = {}
    pairs: list[tuple[Tensor, Tensor]] = []
    for index in step.cotangents:
        is_state = index >= num_outputs
        out = outputs[carries[index - num_outputs][0]] if is_state else outputs[index]
        if out is not None and out.requires_grad:
            name = cotangent_name(number, index, is_state)
            cotangents[name] = _example_like(tracer, name, out, create_graph)
            pairs.append((out, cotangents[name]))
    back: list[tuple[int, Tensor, Move]] = []
    for k in range(num_states):
        out, target = outputs[carries[k][0]], carried_in[k]
        if out is not None and out.requires_grad and target.requires_grad:
            fed = _example_like(tracer, f"carried{number}:{k}", out, create_graph)
            pairs.append((out, fed))
            back.append((k, fed, carries[k][2].transpose()))
    grads = _grad(pairs, [*targets, *(carried_in[k] for k, _, _ in back)], create_graph)
    positions = [(len(step.wrt) + i, fed, move) for i, (_, fed, move) in enumerate(back)]
    unused = {id(fed) for i, fed, _ in positions if grads[i] is None}
    if unused:  # a state that is gathered and goes nowhere: nothing will feed its cotangent
        pairs = [pair for pair in pairs if id(pair[1]) not in unused]
        grads = _grad(pairs, [*targets, *(carried_in[k] for k, _, _ in back)], create_graph)
    return grads, [p for p in positions if grads[p[0]] is not None], cotangents


def _grad(pairs: list[tuple[Tensor, Tensor]], wrt: list[Tensor], create_graph: bool) -> list[Tensor | None]:
    able = {i: t for i, t in enumerate(wrt) if t.requires_grad}
    if not pairs or not able:
        return [None] * len(wrt)
    outs, grads = zip(*pairs, strict=True)
    wanted = list(able.values())
    got = torch.autograd.grad(outs, wanted, grads, allow_unused=True, create_graph=create_graph, retain_graph=True)
    found = dict(zip(able, got, strict=True))
    return [plain(found.get(i)) for i in range(len(wrt))]


def _example_like(tracer: Tracer, name: str, like: Tensor, grad: bool) -> Tensor:
    with tracer.paused():
        tensor = torch.ones(like.shape, dtype=like.dtype, device=like.device).requires_grad_(grad)
    return tracer.add_input(name, tensor)
