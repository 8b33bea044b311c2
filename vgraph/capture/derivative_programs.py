"""Levels: what was traced of a function and its derivatives, cut into Programs and compiled.

Takes: a Trace. Gives: CompiledPrograms and pairs of them. Runs once per function.
Source: Cavs section 3.4 (forward and backward as one joint program).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vgraph.background import Beginning
from vgraph.capture.body import Options
from vgraph.capture.trace import Trace
from vgraph.compiler import Begun, begin_program, zeros_at_leaves
from vgraph.ir.program import Op, Value, needed_ops
from vgraph.passes.joint import make_program, split_joint
from vgraph.runtime.autograd import Pair
from vgraph.runtime.compiled import CompiledProgram

_Both = tuple[CompiledProgram, CompiledProgram]  # forward and backward


def level_program(name: str, found: Trace, options: Options, *, with_states: bool) -> CompiledProgram:
    """``begin_level``, waited for."""
    return begin_level(name, found, options, with_states=with_states).finish()


def begin_level(name: str, found: Trace, options: Options, *, with_states: bool = False) -> Begun:
    """The last level alone; ``with_states``: what its derivative reads is saved, as rows lie."""
    level = found.levels[-1]
    ops, inputs = _with_known_carries(found, len(found.levels) - 1)
    values = found.values(level.outputs)
    outputs = values[: level.num_outputs] + [values[i] for i, _, _ in level.carries if with_states]
    program = make_program(name, ops, inputs, outputs, found.carries(-1))
    return begin_program(program, num_outputs=level.num_outputs, in_rows=_in_rows(level.wrt), **options)


def begin_pair(name: str, found: Trace, options: Options) -> Beginning[Pair]:
    """The last level as backward of the one before it."""
    step = found.step
    assert step is not None
    depth = len(found.levels) - 2
    before, after = found.levels[depth], found.levels[depth + 1]
    num_outputs = before.num_outputs
    ops, inputs = _with_known_carries(found, depth + 1)
    ahead_ops = _drop_known(ops, found, depth)
    outs, grads = found.values(before.outputs)[:num_outputs], found.values(after.outputs)
    ahead, behind = found.carries(depth), found.carries(depth + 1)
    states: list[Value | None] = [found.values(before.outputs)[i] for i, _, _ in before.carries]
    joint = split_joint(
        name,
        (ahead_ops, ops),
        inputs,
        ([*outs, *states], ahead),
        (grads[: len(step.wrt)], behind),
        recompute_edges=options["fuse"] and not options["per_vertex"],
        kept=found.kept if depth == 0 else frozenset(),
    )
    read = {value.id for op in needed_ops(ops, {v.id for v in grads if v is not None}) for value in op.operands()}
    read |= {given.value.id for given in joint.backward.inputs}
    unread = frozenset(name for name, value in inputs.items() if value.id not in read)
    made = {value.id for value in joint.forward.outputs[: num_outputs + len(states)] if value}

    def begin(options: Options) -> tuple[Begun, Begun]:
        behind = begin_program(
            joint.backward,
            num_outputs=len(step.wrt),
            in_rows=_in_rows(after.wrt),
            zero_at_leaves=zeros_at_leaves(joint.forward, **options),
            **options,
        )
        ahead = begin_program(
            joint.forward,
            num_outputs=num_outputs,
            in_rows=_in_rows(before.wrt),
            unread_at_leaves=behind.unread_at_leaves - made,
            **options,
        )
        return ahead, behind

    begun = begin(options)
    return Beginning(
        (*begun[0].waits_for, *begun[1].waits_for),
        lambda: Pair(
            *_finished(begun, lambda: begin({**options, "fuse": False})),
            step,
            len(states),
            tuple(f"state{depth}:{i}" for i in range(len(states))),
            tuple(f"saved:{v.id}" for v in joint.saved),
            tuple(before.has_grad[:num_outputs]),
            unread=unread,
        ),
    )


def _finished(begun: tuple[Begun, Begun], begin_plain: Callable[[], tuple[Begun, Begun]]) -> _Both:
    """Both Programs by kernels, or both by torch's operators.

    What a backward computes again it compares with what the forward has left, as which element is the maximum: there
    kernels and torch's operators differ in the last bit.
    """
    ahead, behind = begun
    if ahead.lacks_kernels() != behind.lacks_kernels():
        ahead, behind = begin_plain()
    return ahead.finish(), behind.finish()


def _in_rows(wrt: Sequence[str]) -> frozenset[int]:
    return frozenset(i for i, name in enumerate(wrt) if name.startswith("state"))


def _with_known_carries(found: Trace, depth: int) -> tuple[list[Op], dict[str, Value]]:
    """Below ``depth`` the carried values are known: each is the Move of a state that is an input."""
    tape = found.tape
    ops: list[Op] = []
    inputs = dict(tape.inputs)
    for level in range(depth):
        for number, (position, target, move) in enumerate(found.levels[level].carries):
            source = found.values(found.levels[level].outputs)[position]
            assert source is not None
            state = tape.new_value(source)
            inputs[f"state{level}:{number}"] = state
            ops.append(Op(move, (state,), {}, (tape.values[target.index],)))
    inputs.update((f"lifted:{i}", value) for i, (_, value) in enumerate(tape.lifted))
    carried = {tape.values[t.index].id for level in found.levels for _, t, _ in level.carries}
    inputs = {name: value for name, value in inputs.items() if value.id not in carried}
    return [*ops, *tape.ops], inputs


def _drop_known(ops: list[Op], found: Trace, depth: int) -> list[Op]:
    """Without the Moves of this level's own states: it is this level that makes them."""
    own = {found.tape.values[t.index].id for _, t, _ in found.levels[depth].carries}
    return [op for op in ops if not any(r.id in own for r in op.results)]
