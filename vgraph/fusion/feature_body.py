"""Feature body: what happens to one vector of features.

Takes: the loop that it stands in, the values that are wanted. Gives: lines of text. Runs once per function.
What no kernel stores is computed where it is read, however long the way to it: see ``ir/trampoline.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vgraph.fusion.expressions import NUMBER_TYPES, expression, random_expression, read_values
from vgraph.fusion.grouping import is_elsewhere
from vgraph.fusion.layout import is_mean, plain_shape, sum_strides
from vgraph.ir.kernel import Place, contiguous
from vgraph.ir.moves import Random, SegmentReduce
from vgraph.ir.program import Op, Value, op_name
from vgraph.ir.row_ops import row_product
from vgraph.ir.space import EDGE, SHARED
from vgraph.ir.trampoline import Steps, run_deep

if TYPE_CHECKING:
    from vgraph.fusion.features import Features

Strides = tuple[int, ...]
Access = tuple[int, Strides]  # offset and strides over the loop's shape


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
        return run_deep(self._read(place, (place.offset, strides), reader))

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
        one, other = (run_deep(self._operand(maker, factor, access)) for factor in maker.args)
        return one, other

    # ------------------------------------------------------------ reading
    def _read(self, place: Place, access: Access, reader: Op | None) -> Steps[str]:
        layout, base = self.features.layout, place.base
        row = self._row(place, reader)
        key = (base.id, row, access)
        if key in self.names:
            return self.names[key]
        self.accesses.append(access[1])
        text = self._stored(place, access, row, reader)
        if text is None:
            text = yield self._computed(layout.makers[base.id], access)
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
    def _computed(self, op: Op, access: Access) -> Steps[str]:
        if isinstance(op.target, Random):
            seed = yield self._operand(op, op.kwargs["seed"], access)
            return self._random(op, seed, access)
        if op.results[0].id in self.features.stage.online_sums.above:
            return (yield self._above(op, access))
        names: dict[int, str] = {}
        for value in read_values(op):
            names[value.id] = yield self._operand(op, value, access)
        return expression(op, lambda value: names[value.id], self._width(access))

    def _operand(self, op: Op, value: Value, access: Access) -> Steps[str]:
        """An operand at the features at which the result is computed."""
        features, place = self.features, self.features.layout.place(value)
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

    def _above(self, op: Op, access: Access) -> Steps[str]:
        """How far a number lies above a peak that is still running."""
        x = yield self._operand(op, op.args[0], access)
        peak = yield self._operand(op, op.args[1], access)
        return f"{x} - vg_finite({peak})"

    def _random(self, op: Op, seed: str, access: Access) -> str:
        self.draws = True
        row, ids = ("e", "edge_ids") if op.results[0].space == EDGE else ("v", "vertex_ids")
        user = f"({ids} ? {ids}[{row}] : (int64_t){row})"
        return random_expression(op, seed, user, self.features.index(access), self._width(access))

    def _width(self, access: Access) -> int:
        return self.features.width if self.features.steps(access) else 1
