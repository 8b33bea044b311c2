"""Feature body: one loop over the features of a row, and what happens to one vector of them.

Takes: a Loop of a kernel's layout, the values that are wanted. Gives: its text. Runs once per function.
What no kernel stores is computed where it is read, however long the way to it: see ``ir/trampoline.py``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeVar

from vgraph.fusion.expressions import NUMBER_TYPES, expression, random_expression, read_values
from vgraph.fusion.features import Access, Features, Strides, group_dims
from vgraph.fusion.grouping import is_elsewhere
from vgraph.fusion.layout import Layout, Loop, LoopStore, Stage, is_mean, plain_shape, sum_strides
from vgraph.fusion.online_softmax import Ride
from vgraph.fusion.row_products import RowProduct
from vgraph.ir.kernel import Place
from vgraph.ir.moves import Random, SegmentReduce
from vgraph.ir.program import Op, Value, contiguous
from vgraph.ir.space import EDGE, SHARED
from vgraph.ir.trampoline import Steps, run_deep

B = TypeVar("B", bound="Body")


@dataclass(eq=False)
class Body(ABC):
    """What happens to one vector of features: each value is computed once. ``most``: numbers in a vector.

    ``rows``: which rows it reads ("o": at the other end), ``irregular``: loads from there.
    """

    layout: Layout
    stage: Stage
    loop: Loop
    most: int
    features: Features
    unrolled: bool = False
    lines: list[str] = field(init=False, default_factory=list[str])
    before: list[str] = field(init=False, default_factory=list[str])  # ahead of the whole nest
    around: list[str] = field(init=False, default_factory=list[str])  # ahead of the innermost loop
    after: list[str] = field(init=False, default_factory=list[str])  # behind the innermost loop
    behind: list[str] = field(init=False, default_factory=list[str])  # behind the whole nest
    accesses: list[Strides] = field(init=False, default_factory=list[Strides])
    reads: list[tuple[int, Access]] = field(init=False, default_factory=list["tuple[int, Access]"])  # numbers in a row
    rows: set[str] = field(init=False, default_factory=set[str])
    irregular: list[tuple[Value, str]] = field(init=False, default_factory=list["tuple[Value, str]"])
    draws: bool = field(init=False, default=False)
    products: list[RowProduct] = field(init=False, default_factory=list[RowProduct])
    names: dict[tuple[int, str, Access], str] = field(init=False, default_factory=dict[tuple[int, str, Access], str])

    counter: ClassVar[str]  # the variable that counts vectors
    first: ClassVar[str]  # whether an edge is the first of its row
    position: ClassVar[str]  # the slot of an edge, for every number of a vector of {width}

    def __post_init__(self) -> None:
        self.makes = frozenset(store.value.id for store in self.loop.loop_stores if store.kind == "array")

    def fitted(self: B) -> B:
        """The same loop in vectors as wide as all that it reads and writes allows."""
        trial = replace(self)  # number by number
        for store in self.loop.loop_stores:
            if store.kind != "product":
                trial.read(store)
            if store.kind == "feature":
                trial.accesses.append(sum_strides(store.op))
            if store.kind == "piece":
                trial.accesses.append(store.access[1])
                trial.reads.append((math.prod(store.op.results[0].row_shape), store.access))
        features = replace(trial.features, groups=group_dims(self.loop.shape, trial.accesses))
        fits = not features.groups or all(features.stride(strides, -1) in (0, 1) for strides in trial.accesses)
        return replace(self, features=trial.widened(features) if fits else features)

    # ------------------------------------------------------------ what differs from target to target
    @abstractmethod
    def widened(self, features: Features) -> Features:
        """In the widest vectors that what has been read allows."""

    @property
    @abstractmethod
    def num_vectors(self) -> int:
        """Vectors that one thread walks along."""

    @property
    @abstractmethod
    def vector(self) -> str:
        """The number of the vector among these."""

    @abstractmethod
    def text(self) -> str:
        """The loop around what was put."""

    @abstractmethod
    def peak(self, ride: Ride) -> str:
        """The vector of the peak on which a sum of this loop rides."""

    @abstractmethod
    def above(self, op: Op, access: Access) -> Steps[str]:
        """How far a number lies above a peak that is still running."""

    @abstractmethod
    def add_up(self, result: Value, given: str, access: Access, scale: str) -> None:
        """Adds ``given`` times ``scale`` to a sum over features; ``access``: how the loop walks that."""

    @abstractmethod
    def accumulate(self, op: Op, target: str) -> bool:
        """Adds a number to a sum over edges where that is more than an addition; whether it is."""

    # ------------------------------------------------------------ putting
    def put(self, line: str) -> None:
        self.lines.append(line)

    def store(self, place: str, given: str) -> None:
        self.put(f"vg_store<{self.features.width}>({place}, {given});")

    def over_vectors(self, statement: str) -> str:
        unroll = "VG_UNROLL\n" if self.unrolled else ""
        return (
            f"{unroll}for (int {self.counter} = 0; {self.counter} < {self.num_vectors}; ++{self.counter}) {statement}"
        )

    def read(self, store: LoopStore) -> str:
        """The variable with what a store takes."""
        if store.kind in ("reduce", "feature"):
            (operand,) = store.op.operands()
            return self.get(operand, reader=store.op)
        return self.get(store.value, reader=store.op if store.kind in ("left", "right") else None)

    def get(self, value: Value, *, reader: Op | None = None) -> str:
        """The variable with the value at the loop's features."""
        place = self.layout.place(value)
        self.accesses.append(contiguous(self.features.shape))
        return run_deep(self._read(place, _along(place), reader))

    def add_features(self, op: Op) -> None:
        """Adds to the sum over features that the op makes."""
        (operand,), result = op.operands(), op.results[0]
        given = self.get(operand, reader=op)
        scale = math.prod(result.row_shape) / math.prod(operand.row_shape) if is_mean(op) else 1.0
        by = f" * {NUMBER_TYPES[result.dtype]}({scale.hex()})" if scale != 1.0 else ""
        self.add_up(result, given, (0, sum_strides(op)), by)

    def product(self, value: Value, reader: Op) -> tuple[str, str] | None:
        """The factors of a value that is a product, and that nobody else has computed or stored; None otherwise."""
        place = self.layout.place(value)
        access, row = _along(place), self.row_of(place, reader)
        maker = self.layout.makers.get(place.base.id)
        if maker is None or maker.name != "mul" or (place.base.id, row, access) in self.names:
            return None
        if not all(isinstance(v, Value) and v.dtype == value.dtype for v in maker.args):
            return None
        if self.pointer(place, access, row, reader) is not None:
            return None
        one, other = (run_deep(self.operand(maker, factor, access)) for factor in maker.args)
        return one, other

    # ------------------------------------------------------------ reading
    def _read(self, place: Place, access: Access, reader: Op | None) -> Steps[str]:
        base, row = place.base, self.row_of(place, reader)
        self.reads.append((0 if base.space == SHARED else math.prod(base.row_shape), access))
        key = (base.id, row, access)
        if key in self.names:
            return self.names[key]
        self.accesses.append(access[1])
        text = self._stored(place, access, row, reader)
        if text is None:
            text = yield self._computed(self.layout.makers[base.id], access)
        name = f"x{len(self.names)}_{base.id}"
        self.names[key] = name
        self.lines.append(f"const auto {name} = {text};")
        return name

    def row_of(self, place: Place, reader: Op | None) -> str:
        """The variable with the number of the row in which a place lies; "" where all share it."""
        if place.base.space == SHARED:
            return ""
        if place.base.space == EDGE:
            row = "e"
        elif place.end and self.stage.over:
            row = "v" if place.end == ("dst" if self.stage.over == "in" else "src") else "o"
        else:
            row = "v"
        if place.base.id not in self.layout.makers or self._is_elsewhere(place, reader):
            self.rows.add(row)
        return row

    def _is_elsewhere(self, place: Place, reader: Op | None) -> bool:
        spec = self.layout.spec
        return reader is not None and is_elsewhere(reader, place, spec.own, spec.in_loop)

    def _stored(self, place: Place, access: Access, row: str, reader: Op | None) -> str | None:
        """The text that reads a value from memory or scratch; None if it is computed here."""
        if place.base.id in self.layout.spec.given:
            return self._told(place.base, row)
        pointer = self.pointer(place, access, row, reader)
        return None if pointer is None else self.features.load(pointer, access)

    def _told(self, base: Value, row: str) -> str:
        """What the topology tells of a row."""
        if self.layout.spec.given[base.id] == "$in_degree":
            return f"(in_ptr[{row} + 1] - in_ptr[{row}])"
        is_out = self.stage.over == "out"
        self.rows.add("o" if is_out else "e")
        return f"(e - in_ptr[{'o' if is_out else 'v'}])"

    def pointer(self, place: Place, access: Access, row: str, reader: Op | None) -> str | None:
        """Where a value lies in memory or scratch."""
        base, layout, size = place.base, self.layout, math.prod(place.base.row_shape)
        maker = layout.makers.get(base.id)
        if maker is None or self._is_elsewhere(place, reader):
            return self._loaded(base, access, row, size)
        if base.id in self.stage.kept:
            return f"k{base.id} + j * {size} + {self.features.index(access)}"
        is_array = base.id in self.stage.arrays
        if base.space != EDGE and base.id in layout.row_arrays:
            reduced = isinstance(maker.target, SegmentReduce)
            is_array |= layout.stage_of[base.id] + reduced < self.stage.number or reduced
        if is_array and base.id not in self.makes:
            return f"t{base.id} + {self.features.index(access)}"
        return None

    def _loaded(self, base: Value, access: Access, row: str, size: int) -> str:
        if row and row != "v":
            self.irregular.append((base, row))
            self.rows.add(row)
        at = f"{self.row_at(base, row, size)} + " if row else f"l{base.id} + "
        return f"{at}{self.features.index(access)}"

    def row_at(self, base: Value, row: str, size: int) -> str:
        """The pointer to a load's row of ``size`` numbers."""
        return f"l{base.id} + (int64_t){row} * {size}"

    # ------------------------------------------------------------ computing
    def _computed(self, op: Op, access: Access) -> Steps[str]:
        if isinstance(op.target, Random):
            seed = yield self.operand(op, op.kwargs["seed"], access)
            return self._random(op, seed, access)
        if op.results[0].id in self.stage.online_sums.above:
            return (yield self.above(op, access))
        names: dict[int, str] = {}
        for value in read_values(op):
            names[value.id] = yield self.operand(op, value, access)
        return expression(op, lambda value: names[value.id], self.width(access))

    def operand(self, op: Op, value: Value, access: Access) -> Steps[str]:
        """An operand at the features at which the result is computed."""
        features, place = self.features, self.layout.place(value)
        shape = op.results[0].row_shape
        if place.size == 1:
            return (yield self._read(place, (place.offset, (0,) * len(features.shape)), op))
        if plain_shape(shape) == features.shape and access == (0, contiguous(features.shape)):
            strides = (0,) * (len(shape) - len(place.shape)) + place.strides
            sizes = (1,) * (len(shape) - len(place.shape)) + place.shape
            walked = tuple(0 if m == 1 else s for s, m, n in zip(strides, sizes, shape, strict=True) if n != 1)
            return (yield self._read(place, (place.offset, walked), op))
        assert place.is_plain and place.size == math.prod(shape), "an operand of another length needs an array"
        return (yield self._read(place, (place.offset + access[0], access[1]), op))

    def _random(self, op: Op, seed: str, access: Access) -> str:
        self.draws = True
        row, ids = ("e", "edge_ids") if op.results[0].space == EDGE else ("v", "vertex_ids")
        user = f"({ids} ? {ids}[{row}] : (int64_t){row})"
        return random_expression(op, seed, user, self.features.index(access), self.width(access))

    def width(self, access: Access) -> int:
        return self.features.width if self.features.steps(access) else 1


def _along(place: Place) -> Access:
    """How a loop over a place's own plain shape walks it."""
    return place.offset, tuple(s for s, n in zip(place.strides, place.shape, strict=True) if n != 1)
