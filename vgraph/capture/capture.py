"""Capture: a function becomes Programs once, and every later call finds them again.

Takes: user functions and a call's features. Gives: what to run and with which tensors. Runs at every call.
Why not by Dynamo: docs/adr/0003-capture.md.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any

import torch
from torch import Tensor

from vgraph import config
from vgraph.capture.body import Body, Options, compile_options
from vgraph.capture.capture_cache import Family
from vgraph.capture.derivative_programs import begin_level, begin_pair
from vgraph.capture.errors import CaptureError, UnderivableError, UnwatchableError
from vgraph.capture.features import Features
from vgraph.capture.guards.asked_features import Asked
from vgraph.capture.guards.compile_guards import Check, make_check, stand_ins
from vgraph.capture.guards.contents import Contents
from vgraph.capture.guards.functorch_checks import Grads, one_by_one
from vgraph.capture.guards.hooks import forward_hooks_of_all
from vgraph.capture.guards.moving_numbers import refuse_other_results
from vgraph.capture.guards.tracer_leaks import refuse_kept
from vgraph.capture.guards.walk import walk_roots
from vgraph.capture.guards.watched import Numbers
from vgraph.capture.lookup.lookup import same_random_numbers
from vgraph.capture.lookup.lookup_session import ReplayedBody
from vgraph.capture.meanwhile import Meanwhile
from vgraph.capture.recheck import Oracle, written_of
from vgraph.capture.record.cut_short import as_it_was
from vgraph.capture.record.device_check import check_devices
from vgraph.capture.record.modes import Modes, ambient, current_modes
from vgraph.capture.record_function import Recorded, record_function
from vgraph.capture.recording_lock import paused, recording
from vgraph.capture.refusals import make_refusal, without_frames
from vgraph.capture.rows.row_mixing import refuse_mixing, refuse_pairs, refuse_sums
from vgraph.capture.session import Spec
from vgraph.capture.trace import ALL, Trace, trace
from vgraph.collection import uncollected
from vgraph.errors import FunctionError
from vgraph.ir.topology import Topology
from vgraph.runtime.autograd import Call, Derivation, Pair, run
from vgraph.runtime.call_rows import CallContext, VertexTypes
from vgraph.runtime.compiled import CompiledProgram

logger = logging.getLogger("vgraph")

_MOST_ENTRIES = 16  # kept of one function: shapes, dtypes, modes that alternate
_MOST_FAMILIES = 512
_MOST_TRIALS = 8  # numbers that are tried one by one, where all of them cannot be inputs


@dataclass(eq=False)
class Captured:
    """One function under one set of guards, with its Programs of every order.

    It keeps no user function: a lambda made anew in every forward may hold a whole step's graph.
    """

    name: str
    modes: Modes
    specs: dict[str, Spec]
    feature_names: tuple[str, ...]
    lifted_grads: tuple[bool, ...]
    uses_seed: bool
    num_slots_needed: tuple[int, ...]
    options: Options
    moving: frozenset[str]
    facts: Any  # what the Body found out, e.g. the names of its outputs
    replayed: Body | None = None  # what was looked up rather than guarded: its trace
    unwatchable: str = ""  # and what no guard can watch
    numbers: Numbers = field(default_factory=Numbers)
    asked: Asked | None = None  # of features; None: nothing
    oracle: Oracle | None = None  # where every call is checked
    check: Check = lambda roots: None
    programs: dict[Derivation, CompiledProgram] = field(default_factory=dict[Derivation, CompiledProgram])
    pairs: dict[tuple[Derivation, tuple[str, ...]], Pair] = field(default_factory=dict[Any, Pair])
    cuts: dict[object, object] = field(default_factory=dict[object, object])  # see cut.py
    meanwhile: Meanwhile = field(default_factory=Meanwhile)
    is_forgotten: bool = False
    underivable: UnderivableError | None = None  # why a derivative that was asked for cannot be recorded

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (*self.feature_names, *(f"lifted:{i}" for i in range(len(self.lifted_grads))))

    def make_program(self, derivation: Derivation, found: Trace) -> None:
        """Compiles the level alone that was traced."""
        self.meanwhile.make(self.programs, derivation, partial(begin_level, self.name, found), self.options)

    def make_pair(self, key: tuple[Derivation, tuple[str, ...]], found: Trace) -> None:
        """Compiles the level that was traced, and its derivative."""
        self.meanwhile.make(self.pairs, key, partial(begin_pair, self.name, found), self.options)

    def matches(self, modes: Modes, roots: Sequence[object], features: Features) -> tuple[Tensor, ...] | None:
        """All input tensors of this call, or None if a guard does not hold."""
        if modes != self.modes:
            return None
        given = features.of_kind(self.feature_names, self.specs)
        if given is None:
            return None
        if self.asked is not None and not self.asked.holds(features.find, features.names):
            return None
        lifted = self.check(roots)
        return None if lifted is None else (*given, *lifted)

    def require(self, modes: Modes, roots: Sequence[object], features: Features) -> tuple[Tensor, ...]:
        """All input tensors of the call that was recorded."""
        given = self.matches(modes, roots, features)
        if given is None:
            raise CaptureError("what it reads changes while it runs")
        return given


@dataclass(eq=False, slots=True)  # a frozen one takes longer to make
class Bound:
    """A Captured with the functions of one call, from which further orders are recorded. Nobody changes it.

    ``make_body`` holds no feature: autograd's nodes hold a Bound, and features hold autograd's nodes.
    """

    captured: Captured
    make_body: Callable[[Captured], Body]
    roots: Sequence[object]

    def plain(self, derivation: Derivation) -> CompiledProgram:
        captured = self.captured
        captured.meanwhile.settle()
        if derivation not in captured.programs:
            captured.make_program(derivation, self.redo(derivation, None))
        return captured.programs[derivation]

    def pair(self, derivation: Derivation, wrt: tuple[str, ...]) -> Pair:
        captured, key = self.captured, (derivation, wrt)
        if captured.meanwhile.pending:
            captured.meanwhile.settle()
        if key not in captured.pairs:
            captured.make_pair(key, self.redo(derivation, wrt))
        return captured.pairs[key]

    def one_by_one(self, backward: Callable[[Grads], Grads], grads: Grads) -> Grads:
        return one_by_one(backward, grads)

    def redo(self, derivation: Derivation, wrt: tuple[str, ...] | None) -> Trace:
        """Another recording of the same function, under the modes of the first."""
        captured = self.captured
        lifted = captured.check(self.roots)
        if lifted is None:
            raise FunctionError(
                f"{captured.name} reads something that changed between forward and backward",
                cure="call backward before changing modules, closures or globals that it reads",
            )

        def record() -> tuple[Trace, object]:
            with ambient(*captured.modes), stand_ins(self.roots, captured.numbers, captured.moving):
                body = self.make_body(captured)
                return trace(body, captured.specs.__getitem__, derivation, wrt, captured.modes[-1]), body.facts()

        try:
            with recording:
                found, facts = as_it_was(record)
        except CaptureError as error:
            if not derivation:  # it is asked for before the call, which has another way
                raise
            captured.underivable = UnderivableError(error.reason, error.line)  # a cure is for what the user has written
            raise FunctionError(
                f"a further derivative of {captured.name} cannot be recorded: {error.reason}",
                cure="call it again: from now on it runs uncaptured, slowly, and torch takes all derivatives",
                line=error.line,
            ) from None
        if captured.oracle is not None:
            captured.oracle.check_function(lifted, written_of(found, facts))
        return found

    def call_context(
        self,
        topology: Topology,
        policy: str,
        subsets: Mapping[str, tuple[Tensor, int]] | None = None,
        types: VertexTypes | None = None,
    ) -> CallContext:
        """The data of one call that are not features; draws the call's seed."""
        seed = torch.empty((), dtype=torch.int64, device="cpu").random_() if self.captured.uses_seed else None
        if seed is not None and topology.halo is not None:
            seed = topology.halo.agreed(seed)
        return CallContext(topology, policy, subsets or {}, seed, types)

    def run(self, tensors: tuple[Tensor, ...], call_context: CallContext) -> list[Tensor | None]:
        """Runs the function on a topology."""
        check_devices(self.captured.name, self.captured.names, tensors, call_context.topology.device)
        note_run(self.captured.name, self, call_context)
        return run(Call(self, call_context, (), self.captured.names), tensors)

    def __call__(self, tensors: tuple[Tensor, ...], topology: Topology, policy: str) -> list[Tensor | None]:
        """The same where nothing is to be known of the topology but itself."""
        return self.run(tensors, self.call_context(topology, policy))


Run = tuple[str, "Bound | CaptureError", CallContext | str]  # what ran; or why not, and what ran instead
_watching: list[list[Run]] = []


@contextmanager
def watch_runs() -> Generator[list[Run]]:
    """Every function that runs while the context lasts, in order."""
    runs: list[Run] = []
    _watching.append(runs)
    try:
        yield runs
    finally:
        _watching.pop()


def is_watched() -> bool:
    """Whether somebody wants to be told what runs."""
    return bool(_watching)


def note_run(name: str, what: Bound | CaptureError, call_context: CallContext | str) -> None:
    """Tells whoever watches that a function runs."""
    for runs in _watching:
        runs.append((name, what, call_context))


_families: OrderedDict[object, Family[Captured]] = OrderedDict()


def num_captures() -> int:
    """How often any function was recorded, for tests and for ``vgraph info``."""
    return sum(family.num_captures for family in _families.values())


def forget() -> None:
    """Drops every capture, so that the next calls record anew (after a setting has changed)."""
    for family in _families.values():
        for entry in family.entries:
            entry.is_forgotten = True
    _families.clear()


def family_of(key: object) -> Family[Captured]:
    """The captures of functions with one code; the least recently used are forgotten."""
    family = _families.get(key)
    if family is None:
        family = _families[key] = Family()
        if len(_families) > _MOST_FAMILIES:
            _families.popitem(last=False)
    else:
        _families.move_to_end(key)
    return family


def find_captured(
    family: Family[Captured],
    roots: Sequence[object],
    features: Features,
    make_body: Callable[[], Body],
    make_again: Callable[[Captured], Body] | None = None,
    with_states: Callable[[Any], Body] | None = None,
    *,
    compiles: bool = True,
) -> tuple[Bound, tuple[Tensor, ...]]:
    """The capture that holds for this call and its input tensors; raises CaptureError if there is none.

    ``make_again`` makes the body from what was captured, where ``make_body`` needs features; ``with_states`` from
    states that are known, where ``make_body`` infers them. ``compiles``: a new capture's Programs are made at once,
    not when they first run.
    """
    with recording:
        modes = current_modes(features.device)
        found = _known(family, modes, roots, features, make_body)
        if found is None:
            found = as_it_was(_Call(family, roots, features, make_body, with_states, modes, compiles).capture)
        entry, tensors = found
    if entry.replayed is not None:
        replayed = entry.replayed
        return Bound(entry, lambda _: replayed, ()), tensors
    return Bound(entry, make_again or (lambda _: make_body()), roots), tensors


def _known(
    family: Family[Captured], modes: Modes, roots: Sequence[object], features: Features, make_body: Callable[[], Body]
) -> tuple[Captured, tuple[Tensor, ...]] | None:
    """The capture whose guards hold and the call's input tensors."""
    for index, entry in enumerate(family.entries):
        tensors = entry.matches(modes, roots, features)
        if tensors is not None:
            if entry.underivable is not None:
                raise without_frames(entry.underivable)
            if index:
                family.entries.insert(0, family.entries.pop(index))
            if entry.oracle is not None:
                given = tensors[len(entry.feature_names) :]
                as_it_was(partial(entry.oracle.check, given, roots, features.specs, features.device, make_body))
            return entry, tensors
    return None


@dataclass(frozen=True, eq=False)
class _Call:
    """What a call is made of for which no capture is known."""

    family: Family[Captured]
    roots: Sequence[object]
    features: Features
    make_body: Callable[[], Body]
    with_states: Callable[[Any], Body] | None
    modes: Modes
    compiles: bool

    def capture(self) -> tuple[Captured, tuple[Tensor, ...]]:
        """A new capture, or one found by what the functions do; and the call's input tensors."""
        family, roots = self.family, self.roots
        family.check(self.modes, roots, self.features)
        forced = "VGRAPH_CAPTURE=lookup asks for it" if config.looks_up_captures() else ""
        unwatchable = forced or family.why_looked_up(roots)
        if not unwatchable:
            try:
                with uncollected():
                    entry = self._capture()
                    tensors = entry.require(self.modes, roots, self.features)
            except UnwatchableError as error:
                unwatchable = error.reason
                family.look_up(roots, unwatchable)
            except CaptureError as error:
                family.refuse(make_refusal(error, self.modes, roots), roots)
                raise
            else:
                family.entries.insert(0, entry)
                del family.entries[_MOST_ENTRIES:]
                return entry, tensors
        return self._look_up(unwatchable)

    def _contents(self) -> Contents:
        """What the functions can write to, and hooks that run with any module that they call."""
        return Contents([*self.roots, *forward_hooks_of_all()])

    def _look_up(self, reason: str) -> tuple[Captured, tuple[Tensor, ...]]:
        """The capture of what the functions do in this call, found by running their Python."""
        family, features, modes = self.family, self.features, self.modes

        def record(trace_body: ReplayedBody, specs: dict[str, Spec]) -> Captured:
            _say_why(trace_body.name, reason)
            family.num_captures += 1
            with ambient(*modes):
                found = trace(trace_body, specs.__getitem__, (), ALL if modes[0] else None, features.device)
            entry = self._programs(trace_body, found, specs, frozenset())
            constants = tuple(tensor for tensor, _ in found.tape.lifted)  # made of numbers; all else is an input
            entry.replayed, entry.check, entry.unwatchable = trace_body, lambda roots: constants, reason
            return entry

        patience = family.patience_with(self.roots)
        patience.check()
        before = self._contents()
        try:
            entry, inputs = family.traces.find(features, self.make_body, self.with_states, modes, record)
        except BaseException as error:
            before.put_back()
            if isinstance(error, CaptureError) and error.is_kept:
                patience.note(error)
            raise
        return entry, (*[inputs[name] for name in entry.feature_names], *(entry.check(()) or ()))

    def _capture(self) -> Captured:
        family = self.family
        numbers, moving = family.moving_numbers(self.roots)
        family.check_restless(self.roots, moving)
        family.num_captures += 1

        def attempt(paths: frozenset[str]) -> Captured | None:
            try:
                return self._record(numbers, paths) if paths else None
            except Exception:  # whatever a tensor in place of a number led to; a recording without any tells
                return None

        entry = attempt(moving)
        if moving and entry is None:
            several = moving if 1 < len(moving) <= _MOST_TRIALS else frozenset[str]()
            can_move = frozenset(path for path in several if attempt(frozenset({path})) is not None)
            entry = attempt(can_move)
            stay = moving - can_move if entry is not None else moving
            family.fixed |= {numbers.key(path) for path in stay}  # they must be numbers
        return entry or self._record(numbers, frozenset())

    def _record(self, numbers: Numbers, moving: frozenset[str]) -> Captured:
        """A recording with guards of what was read; ``moving``: the numbers that are tensors meanwhile."""
        before = self._contents()
        iterator = before.iterator()
        if iterator:  # which a recording would advance for good; and no guard could watch it
            raise UnwatchableError(f"it may advance a {iterator}, which only the call itself must do")
        try:
            return self._recorded(numbers, moving)
        except BaseException:  # Ctrl-C, too: what the function has kept is of examples
            before.put_back()
            raise

    def _recorded(self, numbers: Numbers, moving: frozenset[str]) -> Captured:
        roots, features, modes = self.roots, self.features, self.modes
        with same_random_numbers():
            ran = record_function(roots, features.specs, features.device, self.make_body, modes, (numbers, moving))
        try:
            standing = {value.id for tensor, value in ran.found.tape.lifted if id(tensor) in ran.scalars.paths}
            refuse_other_results(ran.found.as_written, standing, modes[3])
            numbers, check = self._guard(ran)
            stood = frozenset(path for path in moving if ran.scalars.stood_for(numbers, path))
            with paused():  # compilers take seconds
                entry = self._programs(ran.body, ran.found, ran.specs, stood)
            entry.numbers, entry.check, entry.asked = numbers, check, ran.found.asked or None
            entry.require(modes, roots, features)
            if config.checks_captures():
                entry.oracle = Oracle(entry.name, modes, (numbers, stood), written_of(ran.found, entry.facts))
        except CaptureError as error:
            error.seen = ran.specs, ran.reading
            raise
        return entry

    def _programs(self, body: Body, found: Trace, specs: dict[str, Spec], moving: frozenset[str]) -> Captured:
        """A recording as Programs, without guards."""
        if body.per_vertex:
            refuse_mixing(body.name, found.written())
            refuse_sums(found.tape.ops)
        refuse_pairs(found.needed())
        tape = found.tape
        entry = Captured(
            name=body.name,
            modes=self.modes,
            specs=specs,
            feature_names=found.features,
            lifted_grads=tuple(tensor.requires_grad for tensor, _ in tape.lifted),
            uses_seed="$seed" in tape.inputs,
            num_slots_needed=found.num_slots_needed,
            options=compile_options(body, self.features.device.type),
            moving=moving,
            facts=body.facts(),
        )
        if not self.compiles:
            return entry
        if found.step is None:
            entry.make_program((), found)
        else:
            entry.make_pair(((), found.step.wrt), found)
        return entry

    def _guard(self, ran: Recorded) -> tuple[Numbers, Check]:
        """The numbers that were read, and the check of all that was."""
        lifted, constants = [t for t, _ in ran.found.tape.lifted], ran.found.tape.constants
        wanted = {id(t) for i, t in enumerate(lifted) if i not in constants and id(t) not in ran.scalars.paths}
        made = ran.found.made_alive()
        walk = walk_roots(self.roots, ran.reading, made=made)
        if not wanted <= walk.tensors.keys():
            walk = walk_roots(self.roots, ran.reading, everything=True, made=made)
        refuse_kept(walk, self.roots)
        self.family.note_numbers(walk.numbers)
        return walk.numbers, make_check(walk, lifted, constants, ran.scalars)


@cache
def _say_why(name: str, reason: str) -> None:
    level = logging.DEBUG if config.looks_up_captures() else logging.INFO
    logger.log(level, "%s: its Python runs at every call: %s", name, reason)
