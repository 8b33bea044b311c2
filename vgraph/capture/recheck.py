"""Capture check: with ``VGRAPH_CAPTURE=check`` nothing that guards accept is taken on trust.

Takes: what was recorded when a function was captured, and a way to record it again. Gives: nothing, or a
StaleCaptureError with both recordings. Runs at every call, in that mode alone. Whatever a guard should have seen
shows here as an op, a number, an input or an output that is another one now.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import torch
from torch import Tensor

from vgraph.capture.body import Body
from vgraph.capture.errors import CaptureError
from vgraph.capture.guards.tracer_leaks import drop_kept
from vgraph.capture.guards.watched import Numbers
from vgraph.capture.lookup.lookup import same_random_numbers
from vgraph.capture.record.modes import Modes
from vgraph.capture.record_function import record_function
from vgraph.capture.session import Specs
from vgraph.capture.trace import Trace
from vgraph.errors import StaleCaptureError
from vgraph.ir.program import Op, Value, map_leaves, needed_ops

_ENDED = "(nothing more)"
_LIFTED = re.compile(r"lifted:(\d+)")


@dataclass(frozen=True)
class Said:
    """One thing that a recording says, and the user's line that made it so."""

    text: str
    line: str = ""


@dataclass(frozen=True, eq=False)
class Written:
    """A recording in words that are the same for the same function: numbers of values and lines left out."""

    function: tuple[Said, ...]
    derivatives: tuple[Said, ...]
    strides: tuple[tuple[int, ...], ...]  # of lifted tensors, on which derivatives of products depend
    constants: tuple[tuple[int, Tensor], ...]  # what the function made of numbers: positions in lifted

    def difference(self, now: Written, twins: Mapping[int, int]) -> tuple[Said, Said] | None:
        """The first place where another recording says something else, as both have it.

        ``twins``: of lifted tensors that are one now, which is which. A capture with two inputs serves them, too;
        only its derivatives are more.
        """
        is_whole = not twins and self.strides == now.strides
        then = self.function + self.derivatives if is_whole else self.function
        other = now.function + now.derivatives if is_whole else now.function
        end = Said(_ENDED)
        for one, two in zip_longest((_merged(said, twins) for said in then), other, fillvalue=end):
            if one.text != two.text:
                return one, two
        for (_, one), (place, two) in zip(self.constants, now.constants, strict=True):
            if not _equal(one, two):
                return Said(f"lifted:{place} = {_shown(one)}"), Said(f"lifted:{place} = {_shown(two)}")
        return None


# ---------------------------------------------------------------- a recording in words
def written_of(found: Trace, facts: object) -> Written:
    """What a trace says: its inputs, its ops as the user wrote them, its outputs and states, level by level."""
    tape, names = found.tape, _Names()
    names.known.update((value.id, name) for name, value in tape.inputs.items())
    names.known.update((value.id, f"lifted:{i}") for i, (_, value) in enumerate(tape.lifted))
    said = [Said(f"outputs {facts}"), Said(f"slots needed {found.num_slots_needed}")]
    said += [Said(f"{name} is {names.shaped(tape.inputs[name])}") for name in found.features]
    outputs = [{v.id for v in found.values(level.outputs) if v is not None} for level in found.levels]
    own = needed_ops(found.as_written, outputs[0])
    said += [Said(names.op(op), op.line) for op in own]
    said += [Said(text) for text in _level(found, 0, names)]
    known = {id(op) for op in own}
    behind = [op for op in needed_ops(found.as_written, set().union(*outputs)) if id(op) not in known]
    derived = [Said(f"step {found.step}"), *(Said(names.op(op), op.line) for op in behind)]
    derived += [Said(text) for number in range(1, len(outputs)) for text in _level(found, number, names)]
    constants = tuple((i, tape.lifted[i][0].detach().clone()) for i in sorted(tape.constants))
    strides = tuple(tensor.stride() if tensor.layout == torch.strided else () for tensor, _ in tape.lifted)
    return Written(tuple(said), tuple(derived), strides, constants)


def _level(found: Trace, number: int, names: _Names) -> Iterator[str]:
    level = found.levels[number]
    outputs = [None if v is None else names.of(v) for v in found.values(level.outputs)]
    yield f"level {number} gives {outputs}, of which {level.num_outputs} are asked for, gradients {level.has_grad}"
    for carry in found.carries(number):
        yield f"level {number} carries {names.of(carry.source)} to {names.of(carry.target)} by {carry.move}"


def _merged(said: Said, twins: Mapping[int, int]) -> Said:
    """The same with one name for tensors that are one."""
    if not twins:
        return said
    return Said(_LIFTED.sub(lambda found: f"lifted:{twins[int(found[1])]}", said.text), said.line)


def _twins(given: Sequence[Tensor]) -> dict[int, int]:
    """Where a tensor stands among several that are one; nothing where each is another."""
    order = {key: place for place, key in enumerate(dict.fromkeys(id(tensor) for tensor in given))}
    return {place: order[id(t)] for place, t in enumerate(given)} if len(order) < len(given) else {}


class _Names:
    """Values by the order in which they are first spoken of."""

    def __init__(self) -> None:
        self.known: dict[int, str] = {}
        self.count = 0

    def of(self, value: Value) -> str:
        if value.id not in self.known:
            self.known[value.id], self.count = f"%{self.count}", self.count + 1
        return self.known[value.id]

    def shaped(self, value: Value) -> str:
        return f"{value.dtype} ({', '.join(str(dim) for dim in value.shape)})"

    def op(self, op: Op) -> str:
        args = [self._arg(arg) for arg in op.args]
        args += [f"{key}={self._arg(arg)}" for key, arg in op.kwargs.items()]
        results = ", ".join(f"{self.of(result)}: {self.shaped(result)}" for result in op.results)
        return f"{results} = {op.target}({', '.join(args)})"

    def _arg(self, tree: object) -> str:
        return str(map_leaves(tree, lambda leaf: _Word(self.of(leaf) if isinstance(leaf, Value) else repr(leaf))))


class _Word(str):
    """A word that stands in lists without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _equal(one: Tensor, two: Tensor) -> bool:
    same = one.shape == two.shape and one.dtype == two.dtype and one.device == two.device
    return same and torch.equal(torch.nan_to_num(one), torch.nan_to_num(two)) and _nans(one) == _nans(two)


def _nans(tensor: Tensor) -> list[object]:
    return tensor.isnan().tolist() if tensor.is_floating_point() or tensor.is_complex() else []


def _shown(tensor: Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)} {tensor.flatten()[:4].tolist()}"


# ---------------------------------------------------------------- the check of one call
@dataclass(frozen=True, eq=False)
class Oracle:
    """What a capture was recorded as, and under what, so that it can be recorded again."""

    name: str
    modes: Modes
    standing_in: tuple[Numbers, frozenset[str]]
    written: Written

    def check(
        self,
        given: Sequence[Tensor],
        roots: Sequence[object],
        specs: Specs,
        device: torch.device,
        make_body: Callable[[], Body],
    ) -> None:
        """Raises where the function of a call that guards accepted is another one by now.

        ``given``: the lifted tensors of this call, as the guards found them.
        """
        try:
            with same_random_numbers(), torch.random.fork_rng(devices=_devices()):
                now = record_function(roots, specs, device, make_body, self.modes, self.standing_in)
        except CaptureError as error:
            raise stale(self.name, "it was captured", f"it cannot be captured: {error.reason}", error.line) from None
        except Exception as error:
            raise stale(self.name, "it ran", f"it raises {type(error).__name__}: {error}") from error
        drop_kept(roots, now.reading)
        twins = _twins(given)
        self._compare(written_of(now.found, now.body.facts()), twins)
        made, numbers = now.found.tape.constants, now.scalars.paths
        for place, one in enumerate(given):
            two, _ = now.found.tape.lifted[twins.get(place, place)]
            is_same = _equal(one, two) if place in made or id(two) in numbers else one is two
            if not is_same:
                then, other = (f"lifted:{place} = {_shown(tensor)}" for tensor in (one, two))
                raise stale(self.name, then, f"{other}, another tensor")

    def check_function(self, given: Sequence[Tensor], now: Written) -> None:
        """Raises where a recording made for a further derivative is of another function."""
        self._compare(replace(now, derivatives=self.written.derivatives), _twins(given))

    def _compare(self, now: Written, twins: Mapping[int, int]) -> None:
        found = self.written.difference(now, twins)
        if found is not None:
            then, other = found
            raise stale(self.name, then.text, other.text, other.line or then.line)


def stale(name: str, then: str, now: str, line: str = "") -> StaleCaptureError:
    """The error of a function that is another one now."""
    return StaleCaptureError(
        f"{name} was found again by its guards, but recorded again it is another function\n"
        f"  guards chose: {then}\n  recorded now: {now}",
        cure="a guard has missed what changed: please report it; until then pass it as a feature or a tensor",
        line=line or None,
    )


def check_same(name: str, then: str, now: str) -> None:
    """Raises where the words of two recordings differ, and says in which line."""
    for one, two in zip_longest(then.splitlines(), now.splitlines(), fillvalue=_ENDED):
        if one != two:
            raise stale(name, one, two)


def _devices() -> list[int]:
    """On which a recording more or less must draw no random number."""
    return [*range(torch.cuda.device_count())] if torch.cuda.is_initialized() else []
