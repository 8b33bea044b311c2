"""Trace: runs a function and its derivatives on examples, and notes what happened.

Takes: a Body (a user function) and a Derivation. Gives: a Trace. Runs once per function.
Source: Cavs section 3.4; derivatives of every order by autograd.grad inside the recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from vgraph import config
from vgraph.capture.body import Body
from vgraph.capture.derivatives import Level, derive_levels
from vgraph.capture.errors import CaptureError
from vgraph.capture.guards.asked_features import Asked
from vgraph.capture.guards.code_watch import unwatched
from vgraph.capture.guards.watched import Made
from vgraph.capture.record.aliases import Ref
from vgraph.capture.record.example_sizes import sizes_for
from vgraph.capture.record.tape_ir import Tape
from vgraph.capture.record.tracer import Tracer
from vgraph.capture.record.unify import unify
from vgraph.capture.rows.lower_edges import lower_edges
from vgraph.capture.rows.lower_mailbox import lower_mailbox, name_counts, refuse_mixed_batches
from vgraph.capture.session import Session, Specs
from vgraph.ir.program import Carry, Op, Rows, Value, needed_ops
from vgraph.ir.space import VERTEX
from vgraph.passes.attention import weigh_once
from vgraph.passes.hoist import hoist
from vgraph.passes.linear_sums import Foresight, Linear, sum_once, visits_in_edges
from vgraph.passes.tidy import tidy
from vgraph.runtime.autograd import Derivation, Step


@dataclass(eq=False)
class Trace:
    """A tape and the levels on it, the function itself first."""

    tape: Tape
    levels: list[Level]
    num_slots_needed: tuple[Any, ...]  # numbers, or (number, type)
    step: Step | None  # the last one, if it was asked for by ``wrt`` alone
    features: tuple[str, ...]  # inputs of the function itself, but what the topology gives
    as_written: tuple[Op, ...] = ()  # the tape before ops moved from edges to vertices
    kept: frozenset[int] = frozenset()  # ids of what the function computes for its derivative alone
    asked: Asked = field(default_factory=Asked)
    made: tuple[ReferenceType[Tensor], ...] = ()  # tensors that both runs made
    made_memory: frozenset[object] = frozenset()  # and where those lay that lay in no tensor from outside

    def made_alive(self) -> Made:
        """The tensors of both runs that somebody keeps."""
        ids = frozenset(id(tensor) for ref in self.made if (tensor := ref()) is not None)
        return Made(ids, self.made_memory)

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

    def needed(self) -> tuple[Op, ...]:
        """The ops that lead to what any level gives."""
        wanted = {v.id for level in self.levels for v in self.values(level.outputs) if v is not None}
        return needed_ops(self.tape.ops, wanted)

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
            made = tuple([ref(tensor) for session in sessions for tensor in session.made()])
            memory = frozenset[object]().union(*(session.made_memory() for session in sessions))
            return replace(_assemble(body, sessions, runs[-1]), made=made, made_memory=memory)
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
        lower_mailbox(tape, [ref.index for ref in levels[0].outputs if ref is not None and not session.at_sources])
    tape.ops, renamed = tidy(tape.ops, tape.new_value)
    tape.values = {index: renamed.get(value.id, value) for index, value in tape.values.items()}
    as_written = tuple(tape.ops)
    kept: frozenset[int] = frozenset()
    if session.at_sources:
        lower_edges(tape, {tape.values[ref.index].id for level in levels for ref in level.outputs if ref is not None})
    elif isinstance(body.mailbox, bool) and not body.per_vertex and config.hoists():
        tape.ops = hoist(tape.ops, tape.new_value)
        tape.ops, kept = _sum_less(tape, levels)
    needs = tuple(sorted(session.num_slots_needed, key=str))
    return Trace(
        tape=tape,
        levels=levels,
        num_slots_needed=needs,
        step=step,
        features=features,
        as_written=as_written,
        kept=kept,
        asked=session.asked,
    )


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
        return (*derive_levels(session, zero, derivation, asked), features)


def _with_grad(session: Session, features: Sequence[str]) -> tuple[str, ...] | None:
    lifted = enumerate(session.tracer.recording.lifted)
    named = [name for name in features if session.specs(name).requires_grad]
    return (*named, *(f"lifted:{i}" for i, (tensor, _) in lifted if tensor.requires_grad)) or None
