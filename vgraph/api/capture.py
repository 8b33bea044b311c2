"""Capture: a function becomes Programs once, and every later call finds them again.

Takes: user functions and a call's features. Gives: what to run and with which tensors; tempo: every call.
Source: HOUSE "captured functions"; the decision against Dynamo is docs/adr/0003-capture.md.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vgraph.api.ambient import Modes, ambient, current_modes
from vgraph.api.check import StandIns, make_check, stand_ins
from vgraph.api.derive import ALL, Body, Spec, Trace, compile_options, trace
from vgraph.api.families import Family
from vgraph.api.guards import Numbers, walk_roots
from vgraph.api.kept import drop_kept, refuse_kept
from vgraph.api.levels import level_pair, level_program
from vgraph.api.mixing import refuse_mixing, refuse_sums
from vgraph.api.one_device import check_devices
from vgraph.api.reading import Reading, uncollected, watch_code
from vgraph.api.tracer import CaptureError, user_line
from vgraph.api.transforms import refuse_batched
from vgraph.errors import FunctionError
from vgraph.ir.topology import Topology
from vgraph.runtime.autograd import Call, Derivation, Pair, run
from vgraph.runtime.call_rows import Situation, VertexTypes
from vgraph.runtime.compiled import CompiledProgram

logger = logging.getLogger("vgraph")

# A recording puts stand-ins in the place of what the user's objects hold: no other thread may look then.
recording = threading.RLock()

_MOST_ENTRIES = 16  # kept of one function: shapes, dtypes, modes that alternate
_MOST_FAMILIES = 512
_MOST_TRIALS = 8  # numbers that are tried one by one, where all of them cannot be inputs


class Features(Mapping[str, Tensor]):
    """A call's features by full name (``vertex:x``, ``src:h``), looked up where they lie; the graph's device."""

    def __init__(
        self, find: Callable[[str], Tensor | None], specs: Callable[[str], Spec], device: torch.device
    ) -> None:
        self.find, self.specs, self.device = find, specs, device

    def __getitem__(self, name: str) -> Tensor:
        found = self.find(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Any:
        raise TypeError("features are looked up by name")

    def __len__(self) -> int:
        raise TypeError("features are looked up by name")


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
    options: dict[str, Any]  # see compile_options
    moving: frozenset[str]
    facts: Any  # what the Body found out, e.g. the names of its outputs
    numbers: Numbers = field(default_factory=Numbers)
    check: Callable[[Sequence[Any]], tuple[Tensor, ...] | None] = lambda roots: None
    programs: dict[Derivation, CompiledProgram] = field(default_factory=dict[Derivation, CompiledProgram])
    pairs: dict[Any, Pair] = field(default_factory=dict[Any, Pair])

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.feature_names, *(f"lifted:{i}" for i in range(len(self.lifted_grads))))

    def matches(self, modes: Modes, roots: Sequence[Any], features: Features) -> tuple[Tensor, ...] | None:
        """All input tensors of this call, or None if a guard does not hold."""
        if modes != self.modes:
            return None
        given: list[Tensor] = []
        for name in self.feature_names:
            tensor, spec = features.find(name), self.specs[name]
            if (
                tensor is None
                or tensor.dtype is not spec.dtype
                or tensor.requires_grad is not spec.requires_grad
                or tensor.shape[1:] != spec.row_shape
            ):
                return None
            given.append(tensor)
        lifted = self.check(roots)
        return None if lifted is None else (*given, *lifted)


@dataclass(frozen=True, eq=False)
class Bound:
    """A Captured with the functions of one call, from which further orders are recorded.

    ``make_body`` holds no feature: autograd's nodes hold a Bound, and features hold autograd's nodes.
    """

    captured: Captured
    make_body: Callable[[Captured], Body]
    roots: Sequence[Any]

    def plain(self, derivation: Derivation) -> CompiledProgram:
        made = self.captured.programs
        if derivation not in made:
            found = self.redo(derivation, None)
            made[derivation] = level_program(self.captured.name, found, self.captured.options)
        return made[derivation]

    def pair(self, derivation: Derivation, wrt: tuple[str, ...]) -> Pair:
        made, key = self.captured.pairs, (derivation, wrt)
        if key not in made:
            found = self.redo(derivation, wrt)
            made[key] = level_pair(self.captured.name, found, self.captured.options)
        return made[key]

    def check_gradients(self, grads: Sequence[Tensor | None]) -> None:
        refuse_batched(grads)

    def redo(self, derivation: Derivation, wrt: tuple[str, ...] | None) -> Trace:
        """Another recording of the same function, under the modes of the first."""
        captured = self.captured
        if captured.check(self.roots) is None:
            raise FunctionError(
                f"{captured.name} reads something that changed between forward and backward",
                cure="call backward before changing modules, closures or globals that it reads",
            )
        with recording, ambient(*captured.modes), stand_ins(self.roots, captured.numbers, captured.moving):
            return trace(self.make_body(captured), captured.specs.__getitem__, derivation, wrt, captured.modes[-1])

    def situation(
        self,
        topology: Topology,
        policy: str,
        subsets: Mapping[str, Any] | None = None,
        types: VertexTypes | None = None,
    ) -> Situation:
        """The data of one call that are not features; draws the call's seed."""
        seed = torch.empty((), dtype=torch.int64, device="cpu").random_() if self.captured.uses_seed else None
        return Situation(topology, policy, subsets or {}, seed, types)

    def run(self, tensors: tuple[Tensor, ...], situation: Situation) -> list[Tensor | None]:
        """Runs the function on a topology."""
        check_devices(self.captured.name, self.captured.names, tensors, situation.topology.src.device, user_line)
        note_run(self.captured.name, self, situation)
        return run(Call(self, situation, (), self.captured.names), tensors)

    def __call__(self, tensors: tuple[Tensor, ...], topology: Topology, policy: str) -> list[Tensor | None]:
        """The same where nothing is to be known of the topology but itself."""
        return self.run(tensors, self.situation(topology, policy))


Run = tuple[str, "Bound | CaptureError", Situation | str]  # what ran; or why not, and what ran instead
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


def note_run(name: str, what: Bound | CaptureError, situation: Situation | str) -> None:
    """Tells whoever watches that a function runs."""
    for runs in _watching:
        runs.append((name, what, situation))


_families: OrderedDict[Any, Family] = OrderedDict()


def num_captures() -> int:
    """How often any function was recorded, for tests and for ``vgraph info``."""
    return sum(family.num_captures for family in _families.values())


def forget() -> None:
    """Drops every capture, so that the next calls record anew (after a setting has changed)."""
    _families.clear()


def family_of(key: Any) -> Family:
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
    family: Family, roots: Sequence[Any], features: Features, make_body: Callable[[], Body],
    make_again: Callable[[Captured], Body] | None = None,
) -> tuple[Bound, tuple[Tensor, ...]]:  # fmt: skip
    """The capture that holds for this call and its input tensors; raises CaptureError if there is none.

    ``make_again`` makes the body from what was captured, where ``make_body`` needs features.
    """
    with recording:
        entry, tensors = _find_captured(family, roots, features, make_body)
    return Bound(entry, make_again or (lambda _: make_body()), roots), tensors


def _find_captured(
    family: Family, roots: Sequence[Any], features: Features, make_body: Callable[[], Body]
) -> tuple[Captured, tuple[Tensor, ...]]:
    modes = current_modes(features.device)
    for index, entry in enumerate(family.entries):
        tensors = entry.matches(modes, roots, features)
        if tensors is not None:
            if index:
                family.entries.insert(0, family.entries.pop(index))
            return entry, tensors
    family.check()
    with uncollected():
        entry = _capture(family, roots, features, make_body, modes)
    tensors = entry.matches(modes, roots, features)
    if tensors is None:
        raise CaptureError("what it reads changes while it runs")
    family.entries.insert(0, entry)
    del family.entries[_MOST_ENTRIES:]
    return entry, tensors


def _capture(
    family: Family,
    roots: Sequence[Any],
    features: Features,
    make_body: Callable[[], Body],
    modes: Modes,
) -> Captured:
    family.num_captures += 1
    numbers, moving = family.moving_numbers(roots)
    family.check_restless(roots, moving)

    def attempt(paths: frozenset[str]) -> Captured | None:
        try:
            return _record(family, roots, features, make_body, modes, (numbers, paths))
        except Exception:  # whatever a tensor in place of a number led to; a recording without any tells
            return None

    entry = attempt(moving) if moving else None
    if moving and entry is None:
        several = moving if 1 < len(moving) <= _MOST_TRIALS else frozenset[str]()
        can_move = frozenset(path for path in several if attempt(frozenset({path})) is not None)
        family.fixed |= {numbers.key(path) for path in moving - can_move}  # they must be numbers
        entry = attempt(can_move) if can_move else None
        if entry is None:
            family.fixed |= {numbers.key(path) for path in can_move}
    if entry is None:
        entry = _record(family, roots, features, make_body, modes, (numbers, frozenset()))
    return entry


def _record(
    family: Family, roots: Sequence[Any], features: Features, make_body: Callable[[], Body], modes: Modes,
    standing_in: tuple[Numbers, frozenset[str]],
) -> Captured:  # fmt: skip
    specs: dict[str, Spec] = {}

    def spec_of(name: str) -> Spec:
        if name not in specs:
            specs[name] = features.specs(name)
        return specs[name]

    with ambient(*modes):
        body = make_body()
    with (
        ambient(*modes),
        stand_ins(roots, *standing_in) as scalars,
        watch_code() as reading,
    ):
        # Its derivative in the same recording, so that what has none falls back before it runs.
        try:
            found = trace(body, spec_of, (), ALL if modes[0] else None, features.device)
        except CaptureError:
            drop_kept(roots, reading)
            raise
    if body.per_vertex:
        refuse_mixing(body.name, found.written())
        refuse_sums(found.tape.ops)
    tape = found.tape
    entry = Captured(
        body.name, modes, specs, found.features,
        tuple(tensor.requires_grad for tensor, _ in tape.lifted),
        "$seed" in tape.inputs, found.num_slots_needed,
        compile_options(body) | {"device": features.device.type},
        standing_in[1], body.facts(),
    )  # fmt: skip
    entry.numbers, entry.check = _guard(family, roots, reading, found, scalars)
    if found.step is None:
        entry.programs[()] = level_program(entry.name, found, entry.options)
    else:
        entry.pairs[(), found.step.wrt] = level_pair(entry.name, found, entry.options)
    return entry


def _guard(
    family: Family, roots: Sequence[Any], reading: Reading, found: Trace, scalars: StandIns
) -> tuple[Numbers, Callable[[Sequence[Any]], tuple[Tensor, ...] | None]]:
    lifted, constants = [t for t, _ in found.tape.lifted], found.tape.constants
    wanted = {id(t) for i, t in enumerate(lifted) if i not in constants and id(t) not in scalars.paths}
    walk = walk_roots(roots, reading)
    if not wanted <= walk.tensors.keys():
        walk = walk_roots(roots, reading, everything=True)
    if family.has_fallback:
        refuse_kept(walk, roots)
    family.note_numbers(walk.numbers)
    return walk.numbers, make_check(walk, lifted, constants, scalars)
