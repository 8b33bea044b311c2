"""Options: every choice that one op or input has in one step: how it is divided, and how its results are kept.

Takes: an OpClass and what earlier steps chose. Gives: Choices. Runs once per form of op and step.
Source: Tofu section 4.2; a sum may be kept as terms, scattered, or be given to all (docs/adr/0010).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from vgraph.ir.program import Op, Value
from vgraph.ir.sharding import REPLICATED, Partial, Placement, Replicate, Split, Strategy, split_at
from vgraph.ir.tdl.notation import Indices
from vgraph.ir.tdl.table import is_absent
from vgraph.partition.accounting.costs import code_of, placement_of, transfer
from vgraph.partition.accounting.crossing import may_take_part
from vgraph.partition.accounting.windows import Step, read_in
from vgraph.partition.search.classes import Held
from vgraph.partition.search.op_forms import OpForms
from vgraph.partition.search.strategies import (
    Described,
    Factors,
    described,
    is_long,
    passes_terms,
    replicated,
    shrink,
    stands_alone,
    strategies,
)

Moves = tuple[int, list[tuple[int, float]]]  # of which choice; results, and factors of their bytes


@dataclass(eq=False, slots=True)  # frozen ones take four times as long to make, and there are many
class Choice:
    """One step's strategy of an op (None: of an input) and the placement in which each result is kept.

    ``keeps`` are codes of placements, ``reads`` also of windows; an input reads itself. ``stays``: every result is
    kept as it is made, and none is a term.
    """

    number: int  # of the choices of ops of one form equal ones alone have the same
    strategy: Strategy | None
    kept: tuple[Placement, ...]
    keeps: tuple[int, ...]
    reads: tuple[int, ...]
    stays: bool


@dataclass(frozen=True, eq=False)
class Fitting:
    """Choices that go with one placement."""

    choices: list[Choice]
    _moves: dict[int, list[Moves]] = field(default_factory=dict[int, list[Moves]])

    def moves(self, ways: int) -> list[Moves]:
        """Where results are brought elsewhere: by choice, results and factors of their bytes."""
        found = self._moves.get(ways)
        if found is None:
            found = self._moves[ways] = [
                (at, list(_brought(choice.strategy, choice.kept, ways)))
                for at, choice in enumerate(self.choices)
                if choice.strategy is not None and not choice.stays
            ]
        return found

    def codes(self, result: int) -> list[tuple[int, int]]:
        """By choice, where a result is made and kept."""
        return [(code_of(c.strategy.outputs[result]), c.keeps[result]) for c in self.choices if c.strategy is not None]


def _brought(strategy: Strategy, kept: tuple[Placement, ...], ways: int) -> Iterator[tuple[int, float]]:
    """Results that are not kept as they are made, and by which factor of their bytes they move."""
    for result, (made, stays) in enumerate(zip(strategy.outputs, kept, strict=True)):
        if made != stays:
            yield result, transfer(made, stays, ways)


Past = tuple[Choice, ...]


@dataclass(eq=False)
class Options:
    """All choices, remembered by the form of op, what came before, and the number of workers.

    ``small``: bytes up to which a tensor may be kept by every worker; ``factors``: see ``strategies``.
    ``reduces``: whether a reduction may be divided; ``keeps_terms``: whether a sum may stay in terms;
    ``price``: what a byte of a tensor costs that a second worker holds, in bytes moved; ``loss``: the id of the
    value that every worker has as soon as it is made; ``held``: inputs that lie somewhere already.
    """

    small: int
    factors: Factors
    loss: int = -1
    reduces: bool = True
    keeps_terms: bool = True
    price: float = 0.0
    held: Held = field(default_factory=dict[int, tuple[Placement, ...]])

    def __post_init__(self) -> None:
        self.grown: dict[Hashable, object] = {}  # by what they grew of, the states of clusters
        self.alike: dict[int, object] = {}  # by the workers of a step, what values cost
        self.joined: dict[Hashable, object] = {}  # by what they are joined of, choices for several placements
        self.told: dict[Hashable, int] = {}  # numbers of how they look
        self._all: dict[Hashable, tuple[list[Strategy], bool]] = {}  # and whether one cuts an inner factor
        self._described: dict[Hashable, Described | None] = {}
        self._choices: dict[Hashable, list[Choice]] = {}
        self._lists: dict[tuple[int, ...], list[Choice]] = {}  # equal ones are one, of which all is found once
        self._numbers: dict[Hashable, int] = {}
        self._kept: dict[Hashable, tuple[object, list[Choice]]] = {}  # by strategy and what may be kept
        self._fitting: dict[tuple[int, int, int], tuple[list[Choice], Fitting]] = {}  # these are held
        self._forms = OpForms(self.small, self.factors, self.loss)

    # ------------------------------------------------------------ inputs
    def of_input(self, value: Value, past: Past, past_ways: Sequence[int], ways: int) -> list[Choice]:
        """An input is split along a dim; every worker has it where none divides, or where it is small."""
        placements = self._homes(value, past, past_ways, ways)
        choices: list[Choice] = []
        for placement in placements:
            keeps = (code_of(placement),)
            number = self._numbers.setdefault(("input", keeps), len(self._numbers))
            choices.append(Choice(number, None, (placement,), keeps, keeps, stays=True))
        return choices

    def _homes(self, value: Value, past: Past, past_ways: Sequence[int], ways: int) -> list[Placement]:
        """Where an input may lie; one that lies somewhere already stays there."""
        if value.id in self.held:
            return [self.held[value.id][len(past)]]
        before = [choice.kept[0] for choice in past]
        placements: list[Placement] = list(self._splits(value, before, past_ways, ways))
        if not placements or value.row_bytes <= self.small:
            placements.append(REPLICATED)
        return placements

    def _splits(
        self, value: Value, before: Sequence[Placement], past_ways: Sequence[int], ways: int
    ) -> Iterable[Split]:
        hints = self._local_hints(value, before, past_ways)
        cuts = _cuts(value, before, past_ways)
        for dim, (extent, (parts, is_plain)) in enumerate(zip(value.row_shape, cuts, strict=True)):
            for outer in sorted({1, *(hints[dim] if dim < len(hints) else ())}):
                count = parts * outer * ways
                if extent % count == 0 or (is_plain and outer == 1 and is_long(extent, count)):
                    yield split_at(dim, outer)

    def _local_hints(
        self, value: Value, before: Sequence[Placement], past_ways: Sequence[int]
    ) -> Sequence[frozenset[int]]:
        """Outer factors count blocks of what the steps before have left."""
        found = list(self.factors.get(value.id, ()))
        for placement, count in zip(before, past_ways, strict=True):
            if found and isinstance(placement, Split):
                cut = placement.outer
                here = found[placement.dim]
                found[placement.dim] = frozenset(
                    o if o == cut else o // count for o in here if o == cut or (cut == 1 and o % count == 0)
                ) - {1}
        return found

    # ------------------------------------------------------------ ops
    def of_op(
        self,
        op: Op,
        kind: Hashable,
        past: Past,
        past_ways: Sequence[int],
        ways: int,
        hint: tuple[int, Split] | None = None,
    ) -> list[Choice]:
        """``hint``: an operand and the cut of its inner factor, which is then among the cuts as well."""
        form = self._forms.number(op, kind, self._describe(op, kind), past_ways, ways)
        numbers = tuple([choice.number for choice in past])
        key = (form, numbers) if hint is None else (kind, numbers, *past_ways, ways, hint)
        if key not in self._choices:
            found = self._make(op, kind, past, past_ways, ways, hint)
            self._choices[key] = self._lists.setdefault(tuple(map(id, found)), found)
        return self._choices[key]

    def fitting(self, every: list[Choice], follows: int, have: int) -> Fitting:
        """Of all choices of an op those that fit where the operand that it follows lies; -1: it follows none."""
        key = (id(every), follows, have)
        found = self._fitting.get(key)
        if found is None:
            mine = every if have < 0 else _that_fit(every, follows, have)
            found = self._fitting[key] = (every, Fitting(mine))
        return found[1]

    def _make(
        self,
        op: Op,
        kind: Hashable,
        past: Past,
        past_ways: Sequence[int],
        ways: int,
        hint: tuple[int, Split] | None,
    ) -> list[Choice]:
        found = self._strategies(op, kind, past, past_ways, ways, hint)
        if not self.reduces:
            found = [s for s in found if not any(isinstance(p, Partial) for p in s.outputs)]
        if not self.keeps_terms or not passes_terms(op):
            found = [s for s in found if s.index != "+"]
        divided = [s for s in found if s.index not in ("", "+")]
        if divided and max((r.row_bytes for r in op.results), default=0) > self.small:
            found = [s for s in found if s.index]
        kept = [[c.kept[i] for c in past] for i in range(len(op.results))]
        before = tuple([choice.strategy for choice in past if choice.strategy is not None])
        description, partly = self._describe(op, kind), may_take_part(op, before)
        known: dict[tuple[int, Placement], tuple[int, ...]] = {}
        choices: list[Choice] = []
        for strategy in found:
            ways_to_keep: list[tuple[int, ...]] = []
            for place, made in enumerate(strategy.outputs):
                codes = known.get((place, made))
                if codes is None:
                    every = self._keepings(op.results[place], made, kept[place], past_ways, ways)
                    codes = known[place, made] = tuple([code_of(placement) for placement in every])
                ways_to_keep.append(codes)
            if math.prod(map(len, ways_to_keep)) > 30:
                ways_to_keep = [(code_of(placement),) for placement in strategy.outputs]
            about = description if partly or strategy.halo else None  # None: placements tell all that is read
            steps, axes = ((strategy,), (ways,)) if about is None else ((*before, strategy), (*past_ways, ways))
            key = (tuple([id(step) for step in steps]), axes, *ways_to_keep)
            if key not in self._kept:  # strategies are held, for their ids stand for them
                reads = _reads(op, about, steps, axes)
                self._kept[key] = (steps, list(self._keeping(strategy, reads, ways_to_keep)))
            choices += self._kept[key][1]
        return choices

    def _keeping(
        self, strategy: Strategy, reads: tuple[int, ...], ways_to_keep: Sequence[tuple[int, ...]]
    ) -> Iterator[Choice]:
        """One strategy with every way to keep its results."""
        cut = self._numbers.setdefault((strategy.index, strategy.outer, reads), len(self._numbers))
        made = tuple([code_of(p) for p in strategy.outputs])
        has_terms = any(isinstance(p, Partial) for p in strategy.outputs)
        for keeps in itertools.product(*ways_to_keep):
            number = self._numbers.setdefault((cut, keeps), len(self._numbers))
            kept_here = tuple([placement_of(code) for code in keeps])
            stays = keeps == made and not has_terms
            yield Choice(number, strategy, kept_here, keeps, reads, stays)

    def _keepings(
        self, result: Value, made: Placement, before: Sequence[Placement], past_ways: Sequence[int], ways: int
    ) -> list[Placement]:
        if is_absent(result):
            return [made]
        if result.id == self.loss:
            return [REPLICATED]
        small = [REPLICATED] if result.row_bytes <= self.small else []
        if not isinstance(made, Partial) and _fits(result, made, before, past_ways, ways):
            return [made, *(p for p in small if p != made)]
        spread: list[Placement] = [*self._splits(result, before, past_ways, ways), *small]
        if not spread:
            spread = [REPLICATED]
        return [made, *spread] if self.keeps_terms and isinstance(made, Partial) else spread

    def every(self, op: Op, kind: Hashable, ways: int) -> list[Strategy]:
        """All strategies of a whole op, also those that no search would take."""
        return self._strategies(op, kind, (), (), ways, None)

    def _strategies(
        self,
        op: Op,
        kind: Hashable,
        past: Past,
        past_ways: Sequence[int],
        ways: int,
        hint: tuple[int, Split] | None,
    ) -> list[Strategy]:
        """Of the whole op, as far as what is left divides; of the shrunk op where inner factors are cut."""
        known = self._describe(op, kind)
        key = self._forms.number(op, kind, known, (), ways) if hint is None else (kind, ways, hint)
        if key not in self._all:
            whole = [replicated(op)] if known is None else strategies(op, ways, self._hints(op, [], (), hint), known)
            placed = (p for s in whole for p in (*s.inputs, *s.outputs))
            self._all[key] = (whole, any(isinstance(p, Split) and p.outer > 1 for p in placed))
        whole, cuts_inner = self._all[key]
        if not past:
            return whole
        if not cuts_inner:
            return [s for s in whole if self._divides(op, kind, s, past, past_ways, ways)]
        small, made = op, [choice.strategy for choice in past if choice.strategy]
        for strategy, count in zip(made, past_ways, strict=True):
            small = shrink(small, strategy, count)
        found = strategies(small, ways, self._hints(op, made, past_ways, hint))
        return [s for s in found if self._divides(op, kind, s, past, past_ways, ways)]

    def _describe(self, op: Op, kind: Hashable) -> Described | None:
        if kind not in self._described:
            self._described[kind] = described(op)
        return self._described[kind]

    def _hints(
        self, op: Op, past: Sequence[Strategy], past_ways: Sequence[int], hint: tuple[int, Split] | None
    ) -> Factors:
        values, count = (*op.operands(), *op.results), len(list(op.operands()))
        found: dict[int, Sequence[frozenset[int]]] = {}
        for place, value in enumerate(values):
            before = [s.inputs[place] if place < count else s.outputs[place - count] for s in past]
            found[value.id] = self._local_hints(value, before, past_ways)
            if hint is not None and place == hint[0]:
                known = list(found[value.id]) or [frozenset[int]()] * len(value.shape)
                known[hint[1].dim] |= {hint[1].outer}
                found[value.id] = known
        return found

    def _divides(
        self, op: Op, kind: Hashable, strategy: Strategy, past: Past, past_ways: Sequence[int], ways: int
    ) -> bool:
        """Whether what earlier steps left of the index can be cut once more."""
        if strategy.index in ("", "+"):
            return True
        known = self._describe(op, kind)
        assert known is not None
        cuts = [
            (choice.strategy.outer, count)
            for choice, count in zip(past, past_ways, strict=True)
            if choice.strategy is not None and choice.strategy.index == strategy.index
        ]
        size = known.sizes[strategy.index]
        parts = math.prod([count for _, count in cuts]) * strategy.outer * ways
        if size % parts == 0:
            return True
        is_plain = all(outer == 1 for outer, _ in cuts) and strategy.outer == 1
        return is_plain and is_long(size, parts) and stands_alone(known.notation, strategy.index)


def _that_fit(every: list[Choice], follows: int, have: int) -> list[Choice]:
    """Those that read the followed operand where it lies; where none does, those that divide; else all."""
    given = placement_of(have)
    fitting = [c for c in every if c.strategy and c.strategy.inputs[follows] == given]
    if isinstance(given, Partial) and fitting:
        return fitting
    plain = [c for c in fitting if c.strategy and c.strategy.index != "+"]
    if isinstance(given, Replicate):
        plain = [c for c in plain if c.strategy and not c.strategy.index] or plain
    return plain or [c for c in every if c.strategy and c.strategy.index not in ("", "+")] or every


def _fits(value: Value, made: Placement, before: Sequence[Placement], past_ways: Sequence[int], ways: int) -> bool:
    """Whether what earlier steps left of a value where it is kept can be cut as this step makes it."""
    if not isinstance(made, Split):
        return True
    extent, (parts, is_plain) = value.row_shape[made.dim], _cuts(value, before, past_ways)[made.dim]
    count = parts * made.outer * ways
    return extent % count == 0 or (is_plain and made.outer == 1 and is_long(extent, count))


def _cuts(value: Value, placements: Sequence[Placement], past_ways: Sequence[int]) -> list[tuple[int, bool]]:
    """Of each dim of a value, into how many parts earlier steps cut it, and whether all of them are blocks."""
    found = [(1, True)] * len(value.shape)
    for placement, ways in zip(placements, past_ways, strict=True):
        if isinstance(placement, Split):
            parts, is_plain = found[placement.dim]
            found[placement.dim] = (parts * ways, is_plain and placement.outer == 1)
    return found


def _reads(op: Op, known: Described | None, steps: tuple[Strategy, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """The codes by which each operand is read in the last step: as the strategy says, or in a window of that."""
    if known is None:
        return tuple([code_of(placement) for placement in steps[-1].inputs])
    sizes = tuple(known.sizes.items())
    return tuple([
        _code_in(value.row_shape, dims, sizes, tuple([
            Step(step.index, step.outer, step.inputs[at], ways) for step, ways in zip(steps, axes, strict=True)
        ]))
        for at, (value, dims) in enumerate(zip(op.operands(), known.notation.inputs, strict=True))
    ])  # fmt: skip


@cache
def _code_in(shape: tuple[int, ...], dims: Indices, sizes: tuple[tuple[str, int], ...], steps: tuple[Step, ...]) -> int:
    return code_of(read_in(shape, dims, dict(sizes), steps))
