"""Derivatives: levels of a function as they are recorded, each the derivative of the one before.

Takes: a Session in which a function ran, and what it gave. Gives: Levels. Runs once per function.
Source: Cavs section 3.4; derivatives of every order by autograd.grad inside the recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vgraph.capture.body import Given
from vgraph.capture.errors import CaptureError
from vgraph.capture.record.aliases import Ref
from vgraph.capture.record.tracer import Tracer
from vgraph.capture.rows.row_tensor import plain
from vgraph.capture.rows.slot_reductions import move_rows
from vgraph.capture.session import Session
from vgraph.ir.moves import Move
from vgraph.ir.program import op_name
from vgraph.runtime.autograd import Derivation, Step, cotangent_name
from vgraph.runtime.in_memory import as_recorded

Fed = tuple[int, Tensor, Move]  # an output, the input that it feeds, and how


@dataclass(eq=False)
class Level:
    """One level as it ran: everything by number of recorded tensor."""

    outputs: list[Ref | None]
    carries: list[tuple[int, Ref, Move]]
    has_grad: list[bool]
    num_outputs: int
    wrt: tuple[str, ...] = ()


def derive_levels(
    session: Session, zero: Given, derivation: Derivation, wrt: tuple[str, ...] | None
) -> tuple[list[Level], Step | None]:
    tracer = session.tracer
    outputs: list[Tensor | None] = [plain(t) for t in zero.outputs]
    tensors = tracer.recording.tensors  # a carry's own leaf, not a twin of it
    carries = [(i, tensors[tracer.ref(t).index], m) for i, t, m in zero.carries]
    carries = _live(tracer, outputs, carries, zero.num_outputs)
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
        _check_determinants(tracer, number)
        carries = _live(tracer, outputs, carries, len(step.wrt))
        named.update(cotangents)
        levels.append(_note(tracer, outputs, carries, len(step.wrt), step.wrt))
    return levels, last_step


def _check_determinants(tracer: Tracer, number: int) -> None:
    """Refuses a third derivative of a determinant.

    Where it is recorded torch takes each from singular values, also those of orthogonal matrices, which are equal;
    their derivative is not a number.
    """
    found = (one for one in tracer.recording.records if op_name(one.target) == "_linalg_det") if number > 2 else ()
    for record in found:
        raise CaptureError("the third derivative of a determinant is not a number in a recording", record.line)


def _live(tracer: Tracer, outputs: Sequence[Tensor | None], carries: list[Fed], num_outputs: int) -> list[Fed]:
    """The carries on which outputs depend: a state that nobody reads, but itself, is none."""
    if not carries:
        return carries
    makers = {ref.index: record for record in tracer.recording.records for ref in record.results}
    seen: set[int] = set()
    waiting = [tracer.ref(t) for t in outputs[:num_outputs] if t is not None]
    sources = {tracer.ref(t).index: tracer.ref(made) for i, t, _ in carries if (made := outputs[i]) is not None}
    while waiting:
        index = waiting.pop().index
        if index in seen:
            continue
        seen.add(index)
        if index in sources:
            waiting.append(sources[index])
        elif index in makers:
            waiting += makers[index].operands()
    return [carry for carry in carries if tracer.ref(carry[1]).index in seen]


def _note(
    tracer: Tracer,
    outputs: list[Tensor | None],
    carries: list[Fed],
    num_outputs: int,
    wrt: tuple[str, ...] = (),
) -> Level:
    refs = [None if t is None else tracer.ref(t) for t in outputs]
    has_grad = [t is not None and t.requires_grad for t in outputs]
    return Level(refs, [(i, tracer.ref(t), m) for i, t, m in carries], has_grad, num_outputs, wrt)


def _named_inputs(tracer: Tracer) -> dict[str, Tensor]:
    recording = tracer.recording
    named = {name: recording.tensors[ref.index] for name, ref in recording.inputs.items()}
    named.update((f"lifted:{i}", tracer.as_used(t)) for i, (t, _) in enumerate(recording.lifted))
    return named


def _differentiate(
    tracer: Tracer,
    number: int,
    step: Step,
    outputs: list[Tensor | None],
    carries: list[Fed],
    targets: Sequence[Tensor],
    num_outputs: int,
    *,
    create_graph: bool,
) -> tuple[list[Tensor | None], list[Fed], dict[str, Tensor]]:
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
    back: list[Fed] = []
    for k in range(num_states):
        out, target = outputs[carries[k][0]], carried_in[k]
        if out is not None and out.requires_grad and target.requires_grad:
            fed = _example_like(tracer, f"carried{number}:{k}", out, create_graph)
            pairs.append((out, fed))
            back.append((k, fed, carries[k][2].transpose()))
    grads = _grad(tracer, pairs, [*targets, *(carried_in[k] for k, _, _ in back)], create_graph)
    positions = [(len(step.wrt) + i, fed, move) for i, (_, fed, move) in enumerate(back)]
    while unfed := {id(fed) for i, fed, _ in positions if grads[i] is None} & {id(grad) for _, grad in pairs}:
        pairs = [pair for pair in pairs if id(pair[1]) not in unfed]  # gathered, but it goes nowhere
        grads = _grad(tracer, pairs, [*targets, *(carried_in[k] for k, _, _ in back)], create_graph)
    return grads, [p for p in positions if grads[p[0]] is not None], cotangents


class _Root(torch.autograd.Function):
    """A scalar whose derivative by each of ``outs`` is a tensor that is given; what follows from these is recorded.

    As ``autograd.grad(outs, ..., grads)``, for which torch would load SymPy, longer than all else in a first capture.
    """

    @staticmethod
    def forward(ctx: Any, tracer: Tracer, grads: tuple[Tensor, ...], *outs: Tensor) -> Tensor:
        ctx.tracer, ctx.grads = tracer, grads
        return torch.zeros((), device=outs[0].device)

    @staticmethod
    def backward(ctx: Any, *unused: Tensor) -> tuple[Tensor | None, ...]:
        ctx.tracer.resume()
        return (None, None, *ctx.grads)


def _grad(
    tracer: Tracer, pairs: list[tuple[Tensor, Tensor]], wrt: list[Tensor], create_graph: bool
) -> list[Tensor | None]:
    able = {i: t for i, t in enumerate(wrt) if t.requires_grad}
    if not pairs or not able:
        return [None] * len(wrt)
    outs, grads = zip(*pairs, strict=True)
    wanted = list(able.values())
    with as_recorded(outs[0].device.type), tracer.paused():  # until the first derivative is asked for
        with torch.enable_grad():
            root = _Root.apply(tracer, grads, *outs)
        try:
            got = torch.autograd.grad(root, wanted, allow_unused=True, create_graph=create_graph, retain_graph=True)
        except RuntimeError as error:  # nobody has asked for a derivative yet; where one is, uncaptured, torch tells
            raise CaptureError(f"it has no derivative that can be recorded: {error}".splitlines()[0]) from error
    found = dict(zip(able, got, strict=True))
    return [plain(found.get(i)) for i in range(len(wrt))]


def _example_like(tracer: Tracer, name: str, like: Tensor, grad: bool) -> Tensor:
    with tracer.paused():
        tensor = torch.ones(like.shape, dtype=like.dtype, device=like.device).requires_grad_(grad)
    return tracer.add_input(name, tensor)
