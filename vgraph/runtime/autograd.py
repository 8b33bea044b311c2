"""Autograd: every derivative of a captured function is the same construction one level up.

Takes: tensors by name. Gives: outputs with gradient. Runs at every step.
Source: Cavs section 3.4; higher orders by tracing autograd.grad of the function itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import compress
from operator import itemgetter
from typing import Any, NamedTuple, Protocol
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from vgraph.errors import FunctionError
from vgraph.runtime.asked_gradients import asked_gradients, keeps_graph
from vgraph.runtime.compiled import CallContext, CompiledProgram
from vgraph.runtime.outcome import Outcome

_logger = logging.getLogger("vgraph")
_MOST_HELD = 1 << 16  # bytes of an input that may as well be held as told by its shape


@dataclass(frozen=True)
class Step:
    """One derivative: of which outputs there are cotangents, for which inputs gradients are asked."""

    cotangents: tuple[int, ...]
    wrt: tuple[str, ...]


Grads = tuple[Tensor | None, ...]
Derivation = tuple[Step, ...]  # the empty one is the function itself


class Way(NamedTuple):
    """One derivative as a backward takes it: the names of its inputs, and whether the forward saved for it."""

    step: Step
    names: tuple[str, ...]
    is_paired: bool


@dataclass(frozen=True, eq=False)
class Pair:
    """A level that saves what the next one reads, and that next one.

    ``forward`` gives outputs, states (carried values, by name) and saved values, in this order.
    ``has_grad`` tells which outputs can have a cotangent, ``unread`` which inputs no derivative reads.
    """

    forward: CompiledProgram
    backward: CompiledProgram
    step: Step
    num_states: int
    state_names: tuple[str, ...]
    saved_names: tuple[str, ...]
    has_grad: tuple[bool, ...]
    unread: frozenset[str] = frozenset()

    @cached_property
    def all_have_grad(self) -> bool:
        return all(self.has_grad)

    @cached_property
    def num_cotangents(self) -> int:
        """How many outputs and states a backward may be given cotangents of."""
        return self.forward.num_outputs + self.num_states

    @cached_property
    def ways(self) -> dict[object, Way]:
        """What backwards do, by what they are given and asked for."""
        return {}


Unread = tuple[int, "ReferenceType[Tensor]", int]  # the place of an input, the caller's tensor, its version


class Code(Protocol):
    """What was captured of one function."""

    def plain(self, derivation: Derivation) -> CompiledProgram:
        """The level alone."""
        ...

    def pair(self, derivation: Derivation, wrt: tuple[str, ...]) -> Pair:
        """The level and its derivative for these inputs and every output."""
        ...

    def one_by_one(self, backward: Callable[[Grads], Grads], grads: Grads) -> Grads:
        """What a backward gives; of several gradients at once it is asked for one after another."""
        ...


@dataclass(eq=False, slots=True)  # a frozen one takes longer to make
class Call:
    """One use of a captured function at one level of differentiation. Nobody changes it."""

    code: Code
    call_context: CallContext
    derivation: Derivation
    names: tuple[str, ...]


def cotangent_name(level: int, output: int, is_state: bool) -> str:
    """The name under which a cotangent enters the next level; states keep their row order."""
    return f"{'state_' if is_state else ''}cotangent{level}:{output}"


def run(call: Call, tensors: tuple[Tensor, ...]) -> list[Tensor | None]:
    """The outputs of a level, with gradient where any input has it."""
    if torch.is_grad_enabled():
        wrt = tuple([name for name, tensor in zip(call.names, tensors, strict=True) if tensor.requires_grad])
        if wrt:
            pair = call.code.pair(call.derivation, wrt)
            outputs: Any = _Level.apply(call, pair, *tensors)
            return list(outputs[: pair.forward.num_outputs])
    return run_alone(call, call.code.plain(call.derivation), tensors)


def run_alone(call: Call, program: CompiledProgram, tensors: tuple[Tensor, ...]) -> list[Tensor | None]:
    """The outputs of a level, without gradient."""
    return program(dict(zip(call.names, tensors, strict=True)), call.call_context).outputs


def run_pair(call: Call, pair: Pair, tensors: tuple[Tensor, ...]) -> list[Tensor | None]:
    """The outputs of a level with gradient, where no transform of torch.func is active or has left its tensors."""
    outputs = _apply(call, pair, *tensors)
    return list(outputs[: pair.forward.num_outputs])


def _wrt(call: Call, needs: Sequence[bool]) -> tuple[str, ...]:
    return tuple(compress(call.names, needs))


class _Level(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, pair: Pair, *tensors: Tensor) -> Any:
        outcome = pair.forward(dict(zip(call.names, tensors, strict=True)), call.call_context)
        outputs = outcome.outputs
        ctx.call, ctx.pair = call, pair
        ctx.set_materialize_grads(False)
        ctx.unread = unread = _unread_of(call, pair, tensors) if pair.unread else ()
        given = _without_unread(tensors, unread, runs_again=bool(outcome.shared)) if unread else tensors
        if any(map(Tensor.is_inference, given)):  # autograd saves no such tensor; rows gathered of one are ordinary
            given = [tensor.clone() if tensor.is_inference() else tensor for tensor in given]
        ctx.shapes = _shapes_of(outputs) if pair.num_cotangents > 1 else None
        if not pair.all_have_grad:
            ctx.mark_non_differentiable(
                *(o for o, has in zip(outputs, pair.has_grad, strict=True) if o is not None and not has)
            )
        ctx.has_keeper = bool(outcome.lease is not None or outcome.shared or pair.num_states)
        if not ctx.has_keeper:
            ctx.shared = ()
            ctx.save_for_backward(*given, *outcome.saved)
            return tuple(outputs)
        num_states = pair.num_states
        states, saved = outcome.saved[:num_states], outcome.saved[num_states:]
        states = [state.detach() for state in states]
        ctx.shared = shared = [i - num_states for i in outcome.shared]
        own = [tensor for i, tensor in enumerate(saved) if i not in shared]
        ctx.save_for_backward(*given, *states, *own, _keeper(outcome))
        return (*outputs, *states)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        call: Call | None = ctx.call
        if call is None:
            return ctx.saved_tensors  # raises what autograd says of a second backward
        found = call.code.one_by_one(partial(_backward, ctx, call), grads)
        if not keeps_graph():
            ctx.call = None  # its function may hold what has been made of its results, which holds this node
        return None, None, *found


def _backward(ctx: Any, call: Call, grads: Grads) -> Grads:
    pair = ctx.pair
    given = _cotangents(ctx, grads)
    if not given:
        return (None,) * len(call.names)
    is_recorded = torch.is_grad_enabled()
    way = _way(ctx, call, tuple(given), is_recorded)
    kept = ctx.saved_tensors
    keeper = kept[-1] if ctx.has_keeper else None
    if is_recorded and ctx.unread:
        kept = _as_given(kept, ctx.unread)
    num_inputs = len(call.names) + pair.num_states
    tensors = (*kept[:num_inputs], *given.values())
    if way.is_paired and not is_recorded:
        inputs = dict(zip(way.names, tensors, strict=True))
        if pair.saved_names:
            inputs.update(zip(pair.saved_names, _saved(ctx, call, kept, keeper), strict=True))
        found = pair.backward(inputs, call.call_context).outputs
    else:
        for state in kept[len(call.names) : num_inputs]:
            vars(state)["lease"] = vars(keeper).get("lease")  # none: a hook made a copy
        found = run(Call(call.code, call.call_context, (*call.derivation, way.step), way.names), tensors)
    by_name = dict(zip(way.step.wrt, found, strict=True))
    return tuple(map(by_name.get, call.names))


def _way(ctx: Any, call: Call, given: tuple[int, ...], is_recorded: bool) -> Way:
    """What a backward does with cotangents of these outputs; as the last time.

    Of a derivative that nothing was saved for those inputs alone get a gradient of which somebody reads it.
    """
    pair = ctx.pair
    is_anew = is_recorded or (call.derivation and not pair.num_states)
    needs = asked_gradients(ctx) if is_anew else ctx.needs_input_grad[2:]
    key = (given, needs, call.names)
    known = pair.ways.get(key)
    if known is None:
        step, level = Step(given, _wrt(call, needs)), len(call.derivation) + 1
        cotangents = (cotangent_name(level, i, i >= pair.forward.num_outputs) for i in given)
        names = (*call.names, *pair.state_names, *cotangents)
        known = pair.ways[key] = Way(step, names, step == pair.step)
    return known


@lru_cache(maxsize=1024)
def _places(names: tuple[str, ...], some: frozenset[str]) -> tuple[int, ...]:
    """Where these names have one of those."""
    return tuple(i for i, name in enumerate(names) if name in some)


# as torch's own ``apply`` ends, which first asks after transforms and what they have left, in Python
_apply: Callable[..., Sequence[Tensor | None]] = super(torch.autograd.Function, _Level).apply  # pyright: ignore[reportAttributeAccessIssue]


def _unread_of(call: Call, pair: Pair, tensors: Sequence[Tensor]) -> Sequence[Unread]:
    """The inputs of a call that no derivative reads: the caller may write to them before the backward."""
    places = _places(call.names, pair.unread)
    return [(i, ref(tensors[i]), tensors[i]._version) for i in places if not tensors[i].is_inference()]


def _without_unread(tensors: Sequence[Tensor], unread: Sequence[Unread], *, runs_again: bool) -> Sequence[Tensor]:
    """What is saved: of inputs that nobody reads any more only their shapes, or what costs as little.

    ``runs_again``: whether the forward may run once more, for which an alias is saved: writes to one with a version
    of its own are not told to autograd.
    """
    saved = list(tensors)
    for i, _, _ in unread:
        alias = tensors[i].data
        is_small = runs_again or alias.nbytes <= _MOST_HELD or type(alias) is not Tensor
        saved[i] = alias if is_small else alias.new_empty(()).expand(alias.shape)
    return saved


def _as_given(kept: Sequence[Tensor], unread: Sequence[Unread]) -> list[Tensor]:
    """What was saved, with the caller's own tensors where nobody wrote to them: a second derivative leads there."""
    given = list(kept)
    for place, known, version in unread:
        tensor = known()
        if tensor is not None and tensor._version == version:
            given[place] = tensor
    return given


def _check_unwritten(unread: Sequence[Unread], name: str) -> None:
    """Raises where one of them was written to, though the forward must run once more."""
    for _, known, version in unread:
        tensor = known()
        if tensor is not None and tensor._version != version:
            raise FunctionError(
                f"an output of {name} and one of its inputs were written to in place before the backward",
                cure="write to a copy of one of them: out = out.clone()",
            )


def _keeper(outcome: Outcome) -> Tensor:
    """A tensor that is let go with all that was saved, when autograd has no more use for it.

    It holds the lease, and what is saved in memory that the caller was given, with a number that grows whenever
    the caller writes to that.
    """
    keeper = torch.empty(0, device="cpu")
    outputs = {i: o.detach() for i, o in enumerate(outcome.outputs) if o is not None and i in outcome.shared.values()}
    watched = [(output, output._version) for output in outputs.values()]
    vars(keeper).update(
        lease=outcome.lease, shared=[outcome.saved[i].detach() for i in outcome.shared], watched=watched
    )
    return keeper


def _saved(ctx: Any, call: Call, kept: Sequence[Tensor], keeper: Tensor | None) -> list[Tensor]:
    """What the forward saved; made again where the caller has written to an output that is part of it."""
    pair = ctx.pair
    own = list(kept[len(call.names) + pair.num_states : -1 if ctx.has_keeper else None])
    if not ctx.shared:
        return own
    watched = vars(keeper).get("watched")  # none: a hook made a copy
    if watched is None or any(output._version != version for output, version in watched):
        _logger.info(
            "%s: an output was written to, so the forward runs once more for the backward", pair.forward.program.name
        )
        _check_unwritten(ctx.unread, pair.forward.program.name)
        given = dict(zip(call.names, kept[: len(call.names)], strict=True))
        return pair.forward(given, call.call_context).saved[pair.num_states :]
    for place, tensor in sorted(zip(ctx.shared, vars(keeper)["shared"], strict=True), key=itemgetter(0)):
        own.insert(place, tensor)
    return own


def _shapes_of(outputs: Sequence[Tensor | None]) -> list[tuple[torch.Size, torch.dtype, torch.device] | None]:
    return [None if o is None else (o.shape, o.dtype, o.device) for o in outputs]


def _cotangents(ctx: Any, grads: Grads) -> dict[int, Tensor]:
    """Cotangents by output: zeros for outputs that nobody used, none for unused states and a single output."""
    given: dict[int, Tensor] = {}
    shapes = ctx.shapes or ()
    for index, grad in enumerate(grads):
        if grad is not None:
            given[index] = grad
        elif index < len(shapes) and ctx.pair.has_grad[index]:
            shape, dtype, device = shapes[index]
            given[index] = torch.zeros(shape, dtype=dtype, device=device)
    return given
