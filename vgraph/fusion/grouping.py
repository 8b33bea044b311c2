"""Grouping: which ops of a phase become one kernel.

Takes: a Phase, and which values others need of it. Gives: Units in order. Runs once per function.
Source: Cavs section 3.5 (maximal groups of fusible operators), extended across gathers and reductions:
what is pointwise on edges is computed anew in every kernel that reads it, so that no edge row is stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from vgraph.fusion.as_late_as_possible import Grouping, Later
from vgraph.fusion.expressions import C_TYPES, has_expression
from vgraph.fusion.handed_over import find_handed_over
from vgraph.fusion.row_sums import with_row_sums
from vgraph.fusion.views import view_places, whole
from vgraph.ir.kernel import KernelSpec, Place, Unit
from vgraph.ir.moves import Gather, OuterSum, Random, SegmentReduce
from vgraph.ir.program import Op, Rows, Value, needed_ops
from vgraph.ir.row_ops import feature_sum, joined_rows, outer_sum, row_product
from vgraph.ir.schedule import Phase
from vgraph.ir.space import EDGE, SHARED, SOURCE, VERTEX

_MOST_FEATURES = 4096  # one row of scratch must lie on the stack
_MOST_OPS = 256  # of a part: compilers take ever longer for longer kernels, so that long functions have several
COMPUTED = ("$slot", "$in_degree")  # what a kernel reads off its own index tensors


def group_ops(
    phase: Phase, wanted: set[int], names: Mapping[int, str], begun: PhaseGrouping | None = None
) -> tuple[Unit, ...]:
    """The phase's ops as library calls and kernels; a kernel never waits for what it feeds.

    ``names``: of the Program's inputs, by id. ``begun``: what ``begin_grouping`` has found of the same.
    """
    return (begun or PhaseGrouping(phase, wanted, names)).units()


def begin_grouping(phase: Phase, wanted: set[int], names: Mapping[int, str]) -> PhaseGrouping:
    """What kernels could make of the phase if it ran on some edges at a time."""
    return PhaseGrouping(replace(phase, is_chunked=not phase.is_loop), wanted, names)


@lru_cache(1024)  # it is asked of a phase whole and of the phase in chunks
def is_fusible(op: Op) -> bool:
    """Pointwise on rows of vertices or edges, or a reduction that a kernel can make."""
    if isinstance(op.target, SegmentReduce):
        return _is_fusible_reduction(op)
    result = op.results[0]
    if isinstance(op.target, OuterSum):
        return True
    if not has_plain_rows(result):
        return False
    if row_product(op) is not None:
        return True
    if feature_sum(op) is not None:
        (operand,) = op.operands()
        return has_plain_rows(operand) and operand.space == result.space
    return has_expression(op) and all(_can_load(v, result) for v in op.operands())


def _is_fusible_reduction(op: Op) -> bool:
    move, result = op.target, op.results[0]
    assert isinstance(move, SegmentReduce)
    if move.part or move.end not in ("src", "dst") or not has_plain_rows(result) or result.dtype.itemsize < 2:
        return False
    if not all(has_plain_rows(v) for v in op.operands()):
        return False
    return move.end == "dst" or move.info.is_linear


def has_plain_rows(value: Value) -> bool:
    """Vertex or edge rows along the first dim, of a size that one row of scratch holds."""
    if value.space not in (VERTEX, EDGE, SOURCE) or not value.shape or value.shape[0] != Rows(value.space):
        return False
    plain = value.shape[1:] == value.row_shape
    return plain and 0 < math.prod(value.row_shape) <= _MOST_FEATURES and value.dtype in C_TYPES


def _can_load(value: Value, result: Value) -> bool:
    if not _broadcasts(whole(value).shape, result.row_shape) or value.dtype not in C_TYPES:
        return False
    return value.space == SHARED or (value.space == result.space and has_plain_rows(value))


def _broadcasts(small: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    if len(small) > len(shape):
        return False
    tail = shape[len(shape) - len(small) :]
    return all(a in (1, b) for a, b in zip(small, tail, strict=True))


@dataclass(eq=False)
class PhaseGrouping(Grouping):
    """Which of a phase's ops kernels make, what of each, and in which order."""

    names: Mapping[int, str]
    read_by_out_sums: set[int] = field(default_factory=set[int])  # in a loop: edge rows of other frontiers
    part_of: dict[int, int] = field(default_factory=dict[int, int])  # id(op) of fused ops to part, see _MOST_OPS
    read_by_later_parts: set[int] = field(default_factory=set[int])  # ids of values
    edge_levels: dict[tuple[int, str], int] = field(default_factory=dict[tuple[int, str], int])

    def __post_init__(self) -> None:
        if not self.phase.is_loop:
            ops = with_row_sums(self.phase.ops, self.wanted, is_fusible)
            self.phase = replace(self.phase, ops=_with_outer_sums(ops, self.wanted))
        for op in self.phase.ops:
            self._classify(op)
            for value in op.results:
                self.makers[value.id] = op
        self.end_of_outer_sums = self._end_of_outer_sums()
        for op in reversed(self.phase.ops):
            if self.runs_in_library(op):
                self.read_by_library.update(v.id for v in op.operands())
            elif self._reads_other_frontiers(op):
                self.read_by_out_sums.update(self.place(v).base.id for v in op.operands())
        if self.phase.is_chunked:
            self.handed_over = find_handed_over(self)

    @property
    def stores_edge_rows(self) -> bool:
        """Whether kernels leave an op on edges to the library, or edge rows to one another: a row an edge is stored."""
        return bool(self.handed_over) or any(
            self.runs_in_library(op) and id(op) not in self.viewing and v.id not in self.wanted
            for op in self.phase.ops
            for v in (*op.operands(), *op.results)
            if v.space == EDGE
        )

    def _classify(self, op: Op) -> None:
        operands = list(op.operands())
        can_view = len(operands) == 1 and has_plain_rows(operands[0])
        found = view_places(op, self.place(operands[0])) if can_view else None
        if found is not None:
            self.viewing.add(id(op))
            self.places.update((value.id, place) for value, place in zip(op.results, found, strict=True))
        elif self._joins(op):
            self.fused.add(id(op))
            self.joining.add(id(op))
        elif is_fusible(op) and not (self.phase.is_loop and (isinstance(op.target, Random) or row_product(op))):
            self.fused.add(id(op))

    def _joins(self, op: Op) -> bool:
        """Whether rows of vertices are joined of which kernels make some, so that these are put in their place."""
        pieces = None if self.phase.is_loop else joined_rows(op)
        if pieces is None:
            return False
        rows = [op.results[0], *(piece.value for piece in pieces)]
        plain = all(has_plain_rows(v) and v.space in (VERTEX, SOURCE) and v.space == rows[0].space for v in rows)
        return plain and any(self.made_by_kernel(self.place(v).base) is not None for v in rows[1:])

    def _end_of_outer_sums(self) -> str:
        """Sums over all edges visit none for themselves: where only out-edges are summed over, they go along there."""
        fused = [op for op in self.phase.ops if id(op) in self.fused]
        ends = {op.target.end for op in fused if isinstance(op.target, SegmentReduce)}
        stores_edges = any(v.id in self.wanted for op in fused for v in op.results if v.space == EDGE)
        return "src" if ends == {"src"} and not stores_edges and not self.phase.is_loop else "dst"

    # ------------------------------------------------------------ levels: what must wait for what
    def _find_levels(self) -> None:
        """Of every op; a part begins above all levels of the one before, so that no kernel has ops of two."""
        lowest, highest, num_fused = 0, 0, 0
        for op in self.phase.ops:
            if id(op) in self.fused:
                part, is_first = divmod(num_fused, _MOST_OPS)
                if part and not is_first:
                    lowest = highest + 1
                self.part_of[id(op)] = part
                num_fused += 1
            self.level_of[id(op)] = max(self._level(op), lowest)
            highest = max(highest, self.level_of[id(op)])
        for op in self.phase.ops if num_fused > _MOST_OPS else ():
            self.read_by_later_parts.update(v.id for v in self._read_across(op))

    def _read_across(self, op: Op) -> Iterator[Value]:
        """What an op reads that kernels of an earlier part make."""
        for value in op.operands():
            base = self.place(value).base
            maker = self.made_by_kernel(base)
            if maker is not None and self.part_of[id(maker)] != self.part_of.get(id(op)):
                yield base

    def _level(self, op: Op) -> int:
        if id(op) in self.fused:
            own = self.own_end(op)
            if op.results[0].space == EDGE:
                for end in ("src", "dst"):
                    self.edge_levels[id(op), end] = self._level_of_kernel(op, end)
            return self._level_of_kernel(op, own)
        return max((self._ready_for_library(v, op) for v in op.operands()), default=0)

    def _level_of_kernel(self, op: Op, own: str) -> int:
        """The level at which a kernel over ``own`` ends can make the op's result."""
        if self._reads_other_frontiers(op):
            return 0
        return max((self._ready(self.place(v), own) for v in op.operands()), default=0)

    def _ready_for_library(self, value: Value, reader: Op) -> int:
        if id(reader) in self.viewing and not self.runs_in_library(reader):
            return 0
        maker = self.makers.get(value.id)
        if maker is None or (self.phase.is_loop and _reads_absolute(reader)):
            return 0
        return self.level_of[id(maker)] + (id(maker) in self.fused)

    def _ready(self, place: Place, own: str) -> int:
        """The level at which a kernel over ``own`` ends can read rows of vertices, or compute those of edges again."""
        maker = self.makers.get(place.base.id)
        if maker is None:
            return 0
        if place.base.space == EDGE and id(maker) in self.fused:
            is_handed = own == "src" and place.base.id in self.handed_over
            return self.edge_levels[id(maker), "dst"] + 1 if is_handed else self.edge_levels[id(maker), own]
        is_other = place.end not in ("", own)
        if self.phase.is_loop and (is_other or id(maker) not in self.level_of):
            return 0  # other frontiers left it
        level = self.level_of[id(maker)]
        if id(maker) not in self.fused:
            return level
        return level + (is_other or self.own_end(maker) != own or id(maker) in self.joining)

    def _reads_other_frontiers(self, op: Op) -> bool:
        return self.phase.is_loop and op.target == SegmentReduce("src", "sum")

    # ------------------------------------------------------------ the units
    def units(self) -> tuple[Unit, ...]:
        self._find_levels()
        if not self.phase.is_loop and not any(self.part_of.values()):
            Later(self).move()
        groups = self._groups()
        specs = {key: self._spec(group, key[1]) for key, group in groups.items()}
        loaded = {v.id for spec in specs.values() for v in spec.loads}
        kept = self.wanted | self.read_by_library | loaded
        library: dict[int, list[Op]] = {}
        for op in self.phase.ops:
            if self.runs_in_library(op):
                library.setdefault(self.level_of[id(op)], []).append(op)
        made: list[Unit] = []
        for level in sorted({level for level, _ in groups} | set(library)):
            made += [Unit(op=op) for op in library.get(level, ())]
            for own in ("src", "dst"):
                spec = specs.get((level, own))
                if spec is not None:
                    made.append(Unit(kernel=_with_stores(spec, groups[level, own], kept)))
        return tuple(unit for unit in made if unit.kernel is None or unit.kernel.stores)

    def _groups(self) -> dict[tuple[int, str], list[Op]]:
        """Ops by level and by the end whose rows they make; of those on edges, what must be stored."""
        groups: dict[tuple[int, str], list[Op]] = {}
        needed = (
            self.wanted,
            self.read_by_library,
            self.read_by_out_sums,
            self.read_by_later_parts,
            self.handed_over,
        )
        for op in self.phase.ops:
            if id(op) not in self.fused:
                continue
            result = op.results[0]
            if result.space != EDGE or any(result.id in ids for ids in needed):
                groups.setdefault((self.level_of[id(op)], self.own_end(op)), []).append(op)
        return groups

    def _spec(self, group: list[Op], own: str) -> KernelSpec:
        ops = self._with_edge_ops(group, own)
        made = {v.id for op in ops for v in op.results}
        loads: dict[int, Value] = {}
        places: dict[int, Place] = {}
        given: dict[int, str] = {}
        loop = self.phase.is_loop
        for op in ops:
            for value in op.operands():
                place = self.place(value)
                if value.id in self.places:
                    places[value.id] = place
                if place.base.id not in made or is_elsewhere(op, place, own, loop):
                    name = self.names.get(place.base.id, "")
                    if name in COMPUTED:
                        given[place.base.id] = name
                    else:
                        loads[place.base.id] = place.base
        return KernelSpec(ops, tuple(loads.values()), (), own, places, given, loop)

    def _with_edge_ops(self, group: list[Op], own: str) -> tuple[Op, ...]:
        """The group with all that is computed on edges below it, in dataflow order."""
        made = {v.id for op in group for v in op.results}
        return needed_ops(self.phase.ops, made, reads=lambda op: self._computed_on_edges(op, own))

    def _computed_on_edges(self, op: Op, own: str) -> Iterator[Value]:
        """What an op reads of edges that its own kernel computes."""
        if self._reads_other_frontiers(op):
            return
        for base in (self.place(value).base for value in op.operands()):
            maker = self.made_by_kernel(base)
            is_handed = own == "src" and base.id in self.handed_over
            same_part = maker is not None and self.part_of[id(maker)] == self.part_of[id(op)]
            if base.space == EDGE and same_part and not is_handed:
                yield base


def _with_outer_sums(ops: tuple[Op, ...], wanted: set[int]) -> tuple[Op, ...]:
    """The ops with each sum of outer products as one op on the two values that it reads."""
    ops = tuple(_without_idle_operand(op) for op in ops)
    makers = {v.id: op for op in ops for v in op.results}
    found = {id(op): outer_sum(op, makers) for op in ops}
    made = [op if found[id(op)] is None else replace(op, target=OuterSum(), args=found[id(op)]) for op in ops]
    read = wanted.union(*({v.id for v in op.operands()} for op in made))
    return tuple(op for op in made if op.name != "t" or op.results[0].id in read)


def _without_idle_operand(op: Op) -> Op:
    """Constants need none of the numbers that they are shaped like."""
    if op.name in ("zeros_like", "ones_like", "full_like") and is_fusible(op):
        return replace(op, args=(None, *op.args[1:]))
    return op


def is_elsewhere(op: Op, place: Place, own: str, in_loop: bool) -> bool:
    """In a loop: what other frontiers left of a value, read though this kernel makes it, too."""
    return in_loop and (place.end not in ("", own) or op.target == SegmentReduce("src", "sum"))


def _reads_absolute(reader: Op) -> bool:
    return isinstance(reader.target, (Gather, SegmentReduce)) and reader.target.end != "dst"


def _with_stores(spec: KernelSpec, group: list[Op], kept: set[int]) -> KernelSpec:
    stores = tuple(v for op in group for v in op.results if v.id in kept)
    return replace(spec, stores=stores)
