"""Features: one loop over the features of a row, in short vectors.

Takes: a Loop of a kernel's layout. Gives: its text; tempo: once a function.
The dims along which every operand either walks or stands still are run as one, in vectors; the last
vector overlaps the one before it where the length is no multiple. Of short ones a vector holds several (heads of 8).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from vgraph.fusion.expressions import NUMBER_TYPES, expression, random_expression
from vgraph.fusion.folds import Walk, folded_load, most_rows
from vgraph.fusion.grouping import is_elsewhere
from vgraph.fusion.layout import Layout, Loop, Stage, is_mean, plain_shape, sum_strides
from vgraph.fusion.riders import Ride
from vgraph.ir.kernel import Place, contiguous
from vgraph.ir.moves import Random, SegmentReduce
from vgraph.ir.program import EDGE, SHARED, Op, Value
from vgraph.ir.row_ops import row_product
from vgraph.ir.tdl import op_name

Strides = tuple[int, ...]
Access = tuple[int, Strides]  # offset and strides over the loop's shape


@dataclass(eq=False)
class Features:
    """The loop nest; ``rows``: which rows it reads ("o": at the other end), ``irregular``: loads from there."""

    layout: Layout
    stage: Stage
    loop: Loop
    most: int  # numbers in a vector
    unrolled: bool = False
    rows: set[str] = field(default_factory=set[str])
    irregular: list[tuple[Value, str]] = field(default_factory=list["tuple[Value, str]"])

    def __post_init__(self) -> None:
        self.shape, self.width, self.length, self.fold = self.loop.shape, 1, 1, 1
        self.makes = frozenset(sink.value.id for sink in self.loop.sinks if sink.kind == "array")
        self.groups: list[tuple[int, int]] = [(0, len(self.shape))] if self.shape else []
        dry = self._body()
        for sink in self.loop.sinks:
            if sink.kind == "product":
                dry.multiply(sink.op)
            elif sink.kind in ("left", "right"):
                dry.get(sink.value, reader=sink.op)
            elif sink.kind in ("reduce", "feature"):
                (operand,) = sink.op.operands()
                dry.get(operand, reader=sink.op)
            else:
                dry.get(sink.value)
            if sink.kind == "feature":
                dry.accesses.append(sum_strides(sink.op))
        self.groups = self._groups(dry.accesses)
        inner = self.groups[-1] if self.groups else (0, 0)
        self.length = math.prod(self.shape[inner[0] : inner[1]])
        fits = all(self.stride(strides, -1) in (0, 1) for strides in dry.accesses) if self.groups else True
        self.width = self._widest(dry) if fits else 1
        self.fold = self._most_rows(dry) if fits else 1
        self.width *= self.fold
        self.rows.clear()
        self.irregular.clear()

    def _body(self) -> Body:
        return Body(self)

    def _widest(self, dry: Body) -> int:
        """Numbers in a vector of the innermost dims, as the accesses of ``dry`` allow."""
        return min(self.most, 1 << (self.length.bit_length() - 1))

    def _most_rows(self, dry: Body) -> int:
        """How many neighbours along the dims ahead of the innermost one vector holds, each all of the innermost."""
        if len(self.groups) < 2 or self.width == 1 or self.width != self.length or dry.draws:
            return 1
        if any(sink.kind == "product" for sink in self.loop.sinks):
            return 1
        taken = [sum_strides(sink.op) for sink in self.loop.sinks if sink.kind == "feature"]
        if any(self._walk(strides) != (1, 0) for strides in taken):
            return 1
        return most_rows(self.most, self.length, self.size(len(self.groups) - 2), map(self._walk, dry.accesses))

    def _walk(self, strides: Strides) -> Walk:
        return self.stride(strides, -2), self.stride(strides, -1)

    # ------------------------------------------------------------ dims
    def size(self, group: int) -> int:
        first, last = self.groups[group]
        return math.prod(self.shape[first:last])

    @property
    def last(self) -> int:
        """The group that vectors walk along."""
        return len(self.groups) - (2 if self.fold > 1 else 1)

    def _groups(self, accesses: list[Strides]) -> list[tuple[int, int]]:
        """Neighbouring dims that every access walks as if they were one."""
        groups: list[tuple[int, int]] = []
        for dim in range(len(self.shape)):
            joined = dim > 0 and all(s[dim - 1] == s[dim] * self.shape[dim] for s in accesses)
            if joined:
                groups[-1] = (groups[-1][0], dim + 1)
            else:
                groups.append((dim, dim + 1))
        return groups

    def stride(self, strides: Strides, group: int) -> int:
        return strides[self.groups[group][1] - 1]

    def num_tiles(self) -> int:
        """Vectors in the whole loop."""
        return math.prod(self.size(group) for group in range(self.last)) * self.tiles_inside()

    def tiles_inside(self) -> int:
        return self.size(self.last) // self.fold if self.fold > 1 else -(-self.length // self.width)

    def of_peak(self, ride: Ride, name: str) -> str:
        """What lies in ``name`` for the peak on which a sum of this loop rides."""
        access = (0, ride.strides(self.shape))
        return self.load(f"{name}{ride.peak.id} + {self.index(access)}", access)

    def load(self, pointer: str, access: Access) -> str:
        """The vector whose first number lies there."""
        if not self.steps(access):
            return f"vg_load<1>({pointer})"
        if self.fold == 1:
            return f"vg_load<{self.width}>({pointer})"
        return folded_load(pointer, self._walk(access[1]), self.width, self.length, self.size(self.last))

    # ------------------------------------------------------------ text
    def text(self, make: Callable[[Body], None], indent: str) -> list[str]:
        """The nest around what ``make`` puts into the body."""
        body = Body(self)
        make(body)
        lines, inside = list[str](body.before), indent
        if not body.lines:
            return [inside + line for line in lines]
        for number in range(self.last):
            lines += self._pragma()
            lines.append(f"for (int64_t i{number} = 0; i{number} < {self.size(number)}; ++i{number}) {{")
        lines += body.around
        lines += self._pragma()
        lines.append(f"for (int64_t q = 0; q < {self.tiles_inside()}; ++q) {{")
        lines.append(f"  const int64_t f = {self._feature()}; (void)f;")
        lines += [f"  {line}" for line in body.lines]
        lines.append("}")
        lines += body.after
        lines += ["}"] * max(self.last, 0)
        return [inside + line for line in lines]

    def _pragma(self) -> list[str]:
        return ["VG_UNROLL"] if self.unrolled else []

    def _feature(self) -> str:
        if self.fold > 1:
            return f"q * {self.fold}"
        if self.length % self.width == 0:
            return f"q * {self.width}"
        last = self.length - self.width
        return f"q * {self.width} < {last} ? q * {self.width} : {last}"

    def index(self, access: Access) -> str:
        """The place of the first number of a vector."""
        offset, strides = access
        terms = [str(offset)] if offset else []
        for number in range(self.last + 1):
            stride = self.stride(strides, number)
            if stride:
                name = f"i{number}" if number < self.last else "f"
                terms.append(name if stride == 1 else f"{name} * {stride}")
        return " + ".join(terms) or "0"

    def steps(self, access: Access) -> bool:
        """Whether the access walks along with the vector."""
        return any(self.stride(access[1], number) for number in range(max(self.last, 0), len(self.groups)))

    def flat(self) -> str:
        return self.index((0, contiguous(self.shape)))

    def tile(self) -> str:
        """The number of the vector within the whole loop."""
        inside, terms, step = self.tiles_inside(), ["q"], self.tiles_inside()
        for number in reversed(range(self.last)):
            terms.append(f"i{number} * {step}")
            step *= self.size(number)
        assert inside
        return " + ".join(terms)


@dataclass(eq=False)
class Body:
    """What happens to one vector of features: each value is computed once."""

    features: Features
    lines: list[str] = field(default_factory=list[str])
    before: list[str] = field(default_factory=list[str])  # ahead of the whole nest
    around: list[str] = field(default_factory=list[str])  # ahead of the innermost loop
    after: list[str] = field(default_factory=list[str])  # behind the innermost loop
    accesses: list[Strides] = field(default_factory=list[Strides])
    draws: bool = False
    names: dict[tuple[int, str, Access], str] = field(default_factory=dict[tuple[int, str, Access], str])

    def put(self, line: str) -> None:
        self.lines.append(line)

    def get(self, value: Value, *, reader: Op | None = None) -> str:
        """The variable with the value at the loop's features."""
        features = self.features
        place = features.layout.place(value)
        strides = tuple(s for s, n in zip(place.strides, place.shape, strict=True) if n != 1)
        self.accesses.append(contiguous(features.shape))
        return self._read(place, (place.offset, strides), reader)

    def add_features(self, op: Op) -> None:
        """Adds to the sum over features that the op makes."""
        features, result = self.features, op.results[0]
        (operand,) = op.operands()
        given = self.get(operand, reader=op)
        strides, kind = sum_strides(op), NUMBER_TYPES[result.dtype]
        size = math.prod(result.row_shape)
        self.before.append(f"for (int64_t z = 0; z < {size}; ++z) t{result.id}[z] = 0;")
        place = features.index((0, strides))
        scale = size / math.prod(operand.row_shape) if is_mean(op) else 1.0
        by = f" * {kind}({scale.hex()})" if scale != 1.0 else ""
        if features.fold > 1:
            vector = f"vg_set<vg_t<{kind}, {features.width}>>({given})"
            self._put_sum(result, place, f"vg_sums<{features.length}>({vector}){by}", features.fold)
            return
        if features.steps((0, strides)) or features.width == 1:
            by_lane = self._without_overlap(f"{given}{by}", f"vg_t<{kind}, {features.width}>")
            self._put_sum(result, place, by_lane, features.width)
            return
        vector = f"vg_t<{kind}, {features.width}>"
        self.around.append(f"{vector} s{result.id} = {vector}{{}};")
        given = self._without_overlap(given, vector)
        self.put(f"s{result.id} = s{result.id} + {given};")
        self.after.append(f"t{result.id}[{place}] += vg_lane_sum(s{result.id}){by};")

    def _put_sum(self, result: Value, place: str, given: str, width: int) -> None:
        self.put(f"vg_store<{width}>(t{result.id} + {place}, vg_load<{width}>(t{result.id} + {place}) + {given});")

    def _without_overlap(self, given: str, vector: str) -> str:
        """Zeros in the lanes that the vector before has taken."""
        width, length = self.features.width, self.features.length
        if length % width == 0:
            return given
        whole = f"vg_set<{vector}>({given})"
        return f"(q * {width} > {length - width} ? vg_last({whole}, {length % width}) : {whole})"

    def multiply(self, op: Op) -> None:
        """The row times the matrix."""
        features, result, found = self.features, op.results[0], row_product(op)
        assert found is not None
        rows, weight, addend = found
        columns = math.prod(features.shape)
        self.accesses.append(contiguous(features.shape))
        place = features.layout.place(rows)
        step = place.strides[0] if place.strides else 0
        given = self._pointer(place, (place.offset, (0,) * len(features.shape)), self._row(place, op), op)
        assert given is not None, "a row to be multiplied lies in memory"
        bias = f"l{addend.id}" if addend is not None else f"(const {NUMBER_TYPES[result.dtype]}*)nullptr"
        sizes = f"{min(features.most, 1 << (columns.bit_length() - 1))}, {rows.shape[1]}, {columns}"
        self.before.append(f"vg_multiply<{sizes}>(t{result.id}, {given}, {step}, l{weight.id}, {bias});")

    def product(self, value: Value, reader: Op) -> tuple[str, str] | None:
        """The factors of a value that is a product, and that nobody else has computed or stored; None otherwise."""
        place = self.features.layout.place(value)
        strides = tuple(s for s, n in zip(place.strides, place.shape, strict=True) if n != 1)
        access, row = (place.offset, strides), self._row(place, reader)
        maker = self.features.layout.makers.get(place.base.id)
        if maker is None or op_name(maker.target) != "mul" or (place.base.id, row, access) in self.names:
            return None
        if not all(isinstance(v, Value) and v.dtype == value.dtype for v in maker.args):
            return None
        if self._pointer(place, access, row, reader) is not None:
            return None
        one, other = (self._operand(maker, factor, access) for factor in maker.args)
        return one, other

    # ------------------------------------------------------------ reading
    def _read(self, place: Place, access: Access, reader: Op | None) -> str:
        layout, base = self.features.layout, place.base
        row = self._row(place, reader)
        key = (base.id, row, access)
        if key in self.names:
            return self.names[key]
        self.accesses.append(access[1])
        text = self._stored(place, access, row, reader)
        if text is None:
            text = self._computed(layout.makers[base.id], access)
        name = f"x{len(self.names)}_{base.id}"
        self.names[key] = name
        self.lines.append(f"const auto {name} = {text};")
        return name

    def _row(self, place: Place, reader: Op | None) -> str:
        layout = self.features.layout
        if place.base.space == SHARED:
            return ""
        if place.base.space == EDGE:
            row = "e"
        elif place.end and self.features.stage.over:
            row = "v" if place.end == self._near_end() else "o"
        else:
            row = "v"
        is_made = place.base.id in layout.makers and not (
            reader is not None and is_elsewhere(reader, place, layout.spec.own, layout.spec.in_loop)
        )
        if not is_made:
            self.features.rows.add(row)
        return row

    def _near_end(self) -> str:
        return "dst" if self.features.stage.over == "in" else "src"

    def _stored(self, place: Place, access: Access, row: str, reader: Op | None) -> str | None:
        """The text that reads a value from memory or scratch; None if it is computed here."""
        base, layout = place.base, self.features.layout
        if base.id in layout.spec.given:
            return self._told(base, row)
        pointer = self._pointer(place, access, row, reader)
        if pointer is None:
            return None
        return self.features.load(pointer, access)

    def _told(self, base: Value, row: str) -> str:
        """What the topology tells of a row."""
        if self.features.layout.spec.given[base.id] == "$in_degree":
            return f"(in_ptr[{row} + 1] - in_ptr[{row}])"
        is_out = self.features.stage.over == "out"
        self.features.rows.add("o" if is_out else "e")
        return f"(e - in_ptr[{'o' if is_out else 'v'}])"

    def _pointer(self, place: Place, access: Access, row: str, reader: Op | None) -> str | None:
        """Where a value lies in memory or scratch."""
        features, base = self.features, place.base
        layout, size = features.layout, math.prod(base.row_shape)
        maker = layout.makers.get(base.id)
        away = reader is not None and is_elsewhere(reader, place, layout.spec.own, layout.spec.in_loop)
        if maker is None or away:
            return self._loaded(base, access, row, size)
        if base.id in features.stage.kept:
            return f"k{base.id} + j * {size} + {features.index(access)}"
        is_array = base.id in features.stage.arrays
        if base.space != EDGE and base.id in layout.row_arrays:
            reduced = isinstance(maker.target, SegmentReduce)
            is_array |= layout.stage_of[base.id] + reduced < features.stage.number or reduced
        if is_array and base.id not in features.makes:
            return f"t{base.id} + {features.index(access)}"
        return None

    def _loaded(self, base: Value, access: Access, row: str, size: int) -> str:
        features = self.features
        if row and row != "v":
            features.irregular.append((base, row))
            features.rows.add(row)
        at = f"(int64_t){row} * {size} + " if row else ""
        return f"l{base.id} + {at}{features.index(access)}"

    # ------------------------------------------------------------ computing
    def _computed(self, op: Op, access: Access) -> str:
        if isinstance(op.target, Random):
            return self._random(op, access)
        if op.results[0].id in self.features.stage.riders.above:
            return self._above(op, access)
        return expression(op, lambda value: self._operand(op, value, access), self._width(access))

    def _operand(self, op: Op, value: Value, access: Access) -> str:
        """An operand at the features at which the result is computed."""
        features, place = self.features, self.features.layout.place(value)
        shape = op.results[0].row_shape
        if place.size == 1:
            return self._read(place, (place.offset, (0,) * len(features.shape)), op)
        if plain_shape(shape) == features.shape and access == (0, contiguous(features.shape)):
            strides = (0,) * (len(shape) - len(place.shape)) + place.strides
            sizes = (1,) * (len(shape) - len(place.shape)) + place.shape
            walked = tuple(0 if m == 1 else s for s, m, n in zip(strides, sizes, shape, strict=True) if n != 1)
            return self._read(place, (place.offset, walked), op)
        assert place.is_plain and place.size == math.prod(shape), "an operand of another length needs an array"
        return self._read(place, (place.offset + access[0], access[1]), op)

    def _above(self, op: Op, access: Access) -> str:
        """How far a number lies above a peak that is still running."""
        x, peak = (self._operand(op, value, access) for value in op.args)
        return f"{x} - vg_finite({peak})"

    def _random(self, op: Op, access: Access) -> str:
        self.draws = True
        seed = self._operand(op, op.kwargs["seed"], access)
        row, ids = ("e", "edge_ids") if op.results[0].space == EDGE else ("v", "vertex_ids")
        user = f"({ids} ? {ids}[{row}] : (int64_t){row})"
        return random_expression(op, seed, user, self.features.index(access), self._width(access))

    def _width(self, access: Access) -> int:
        return self.features.width if self.features.steps(access) else 1
