"""Classes: ops that are to be divided alike, because they are one op of an unrolled loop.

Takes: a TrainingStep. Gives: OpClasses, and who reads what how often. Runs once per model.
Source: Tofu section 5.1 (time steps are merged, for they share their weights).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from vgraph.ir.program import Op, Value
from vgraph.ir.sharding import Placement
from vgraph.ir.step import TrainingStep
from vgraph.ir.tdl.table import reads_values

Held = Mapping[int, tuple[Placement, ...]]  # of inputs by the id of their value, a placement a step


@dataclass(eq=False)
class OpClass:
    """Ops of one kind, from one place of one module; ``op`` is the first. That of the loss is of a kind of its own."""

    index: int
    op: Op
    kind: int  # equal for ops that differ in the data alone
    phase: str
    module: str
    members: list[int] = field(default_factory=list[int])
    operands: tuple[Value, ...] = ()

    def of_kind(self, kind: int) -> OpClass:
        """The same ops, told from others by more than before."""
        return OpClass(self.index, self.op, kind, self.phase, self.module, self.members, self.operands)


Members = frozenset[int]  # some of a class, as ``Classes.member_of`` numbers them


class Reading(NamedTuple):
    """Members of class ``reader`` take operand ``position`` from result ``result`` of ``source``.

    ``members``: of which ones of that; what several read is fetched once. Who reads one of them reads all, or has
    another Reading of the others. None: the operand gives its shape alone.
    """

    source: int
    result: int
    reader: int
    position: int
    members: Members


@dataclass(frozen=True, eq=False)
class Classes:
    """``sources`` numbers inputs after the classes: class ``len(classes) + i`` is input i of the Program.

    ``member_of``: by value id, which member of its class makes it: that of the same call of the module in all classes.
    """

    step: TrainingStep
    classes: tuple[OpClass, ...]
    class_of: tuple[int, ...]
    readings: tuple[Reading, ...]
    home: Mapping[int, tuple[int, int]]  # value id -> (class or input, result)
    member_of: Mapping[int, int]
    hints: Mapping[int, Hashable] = field(default_factory=dict[int, Hashable])  # value id -> factors of its dims
    held: Held = field(default_factory=dict[int, tuple[Placement, ...]])  # value id -> where an input lies already

    def input_kind(self, source: int) -> Hashable:
        value = self.value(source, 0)
        return ("input", value.shape, value.dtype, self.hints.get(value.id), self.held.get(value.id))

    def value(self, source: int, result: int) -> Value:
        inputs = source - len(self.classes)
        return self.step.program.inputs[inputs].value if inputs >= 0 else self.classes[source].op.results[result]


def classify(step: TrainingStep) -> Classes:
    """Ops of one module, at one place of its call, are one class over all calls."""
    kinds: dict[Hashable, int] = {}
    ordinals: dict[Hashable, int] = {}
    known: dict[Hashable, int] = {}
    classes: list[OpClass] = []
    class_of: list[int] = []
    places: dict[int, int] = {}
    for number, (op, note) in enumerate(zip(step.ops, step.notes, strict=True)):
        operands = tuple(op.operands())
        makes_loss = step.loss in op.results
        kind = kinds.setdefault((signature(op, operands), makes_loss), len(kinds))
        place = places.get(note.pair)
        if note.phase == "forward" or place is None:
            counter = (note.phase, note.module, note.call)
            place = ordinals[counter] = ordinals.get(counter, -1) + 1
            if note.phase == "forward":
                places.setdefault(note.pair, place)
        counter = (note.phase, note.pair, note.call)
        within = ordinals[counter] = ordinals.get(counter, -1) + 1
        is_single = note.phase == "update" or note.pair == -1
        key = number if is_single else (note.phase, note.module, place, within, kind)
        found = known.setdefault(key, len(classes))
        if found == len(classes):
            classes.append(OpClass(found, op, kind, note.phase, note.module, [], operands))
        classes[found].members.append(number)
        class_of.append(found)
    return _linked(step, classes, class_of)


def signature(op: Op, operands: tuple[Value, ...]) -> Hashable:
    """Equal for ops whose strategies are the same: target, shapes, dtypes, constants."""
    shapes = tuple([(value.shape, value.dtype) for value in operands])
    kwargs = tuple([(key, _constant(value)) for key, value in op.kwargs.items()]) if op.kwargs else ()
    results = tuple([value.shape for value in op.results])
    constants = tuple(["%" if isinstance(arg, Value) else _constant(arg) for arg in op.args])
    return (op.target, shapes, constants, kwargs, results)


def _constant(arg: object) -> Hashable:
    if isinstance(arg, Value):
        return "%"
    if isinstance(arg, (list, tuple)):
        return tuple([_constant(item) for item in arg])
    return arg


def _linked(step: TrainingStep, classes: list[OpClass], class_of: list[int]) -> Classes:
    home = {given.value.id: (len(classes) + i, 0) for i, given in enumerate(step.program.inputs)}
    member_of = dict.fromkeys(home, 0)
    numbers = _numbered(step, classes)
    found: dict[tuple[int, int, int, int], set[int]] = {}  # the members that are read
    read: dict[int, list[bool]] = {}  # by kind and position
    for number, op in enumerate(step.ops):
        reader, one = class_of[number], classes[class_of[number]]
        reads = read.get(one.kind)
        if reads is None:
            reads = read[one.kind] = [reads_values(op, position) for position, _ in enumerate(op.operands())]
        for position, value in enumerate(op.operands()):
            key = (*home[value.id], reader, position)
            members = found.get(key)
            if members is None:
                members = found[key] = set()
            if reads[position]:
                members.add(member_of[value.id])
        for result, value in enumerate(op.results):
            home[value.id], member_of[value.id] = (reader, result), numbers[number]
    return Classes(step, tuple(classes), tuple(class_of), tuple(_readings(found, classes)), home, member_of)


def _readings(found: Mapping[tuple[int, int, int, int], set[int]], classes: Sequence[OpClass]) -> Iterator[Reading]:
    """By source, result, reader and position which members are read: one each for those that the same ones read.

    Of a class of one op there are no others.
    """
    several = {one.index for one in classes if len(one.members) > 1}
    readers: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for (source, result, reader, position), members in found.items():
        for member in members if source in several else ():
            readers.setdefault((source, result, member), []).append((reader, position))
    alike: dict[tuple[int, int, tuple[tuple[int, int], ...]], list[int]] = {}
    for (source, result, member), who in readers.items():
        alike.setdefault((source, result, tuple(who)), []).append(member)
    apart: dict[tuple[int, int, int, int], list[Members]] = {}
    equal: dict[Members, Members] = {}  # they are many, and few differ
    for (source, result, who), members in alike.items():
        mine = frozenset(members)
        for reader, position in who:
            apart.setdefault((source, result, reader, position), []).append(equal.setdefault(mine, mine))
    for key, members in found.items():
        together = frozenset(members)
        for each in apart.get(key) or [equal.setdefault(together, together)]:
            yield Reading(*key, each)


def _numbered(step: TrainingStep, classes: Sequence[OpClass]) -> Mapping[int, int]:
    """By op, which member of its class it is."""
    found = dict.fromkeys(range(len(step.ops)), 0)
    for one in [each for each in classes if len(each.members) > 1]:
        calls = [step.notes[number].call for number in one.members]
        is_told = len(calls) == len(set(calls))
        found |= zip(one.members, calls if is_told else range(len(calls)), strict=True)
    return found
