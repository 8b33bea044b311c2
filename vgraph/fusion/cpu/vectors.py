"""Vectors: a loop over the features of a row in short vectors.

Takes: a Loop of a kernel's layout. Gives: its text in C++. Runs once per function.
The last vector overlaps the one before it where the length is no multiple.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from vgraph.fusion.cpu.by_source import edge_row
from vgraph.fusion.cpu.row_tiles import tile_row
from vgraph.fusion.cpu.side_by_side import far_row
from vgraph.fusion.expressions import C_TYPES, NUMBER_TYPES
from vgraph.fusion.feature_body import Body
from vgraph.fusion.features import Access, Features, most_rows
from vgraph.fusion.layout import sum_strides
from vgraph.fusion.online_softmax import Ride
from vgraph.fusion.text import block
from vgraph.ir.program import Op, Value
from vgraph.ir.row_tiles import tiled_loads
from vgraph.ir.trampoline import Steps

_LEAST = 4  # numbers in a vector that is narrower for the sake of a sum over features
_MOST_TIMES = 3  # as many of those as of the widest
_MOST_ROWS = 32  # whose sums are taken at once: a vector of each waits on the stack
_MOST_AT_ONCE = 8  # such sums of one loop


def most_within(length: int, most: int) -> int:
    """The widest vectors that are no longer than ``length``."""
    return min(most, 1 << (length.bit_length() - 1))


def without_overlap(length: int, width: int) -> int:
    """Narrower vectors that no overlap has to be masked out of, unless there are more than three times as many."""
    narrower = width
    while length % narrower:
        narrower //= 2
    is_worth_it = narrower >= _LEAST and length // narrower <= _MOST_TIMES * -(-length // width)
    return narrower if is_worth_it else width


@dataclass(eq=False)
class VectorBody(Body):
    """One thread walks all vectors; ``tile``: of so many features from ``tile`` on, 0: of all."""

    tile: int = 0
    counter = "q"
    first = "j == 0"
    position = "(int32_t)j"

    def widened(self, features: Features) -> Features:
        width = most_within(features.length, self.most)
        if "feature" in self.loop.kinds:
            width = without_overlap(features.length, width)
        features = replace(features, width=width)
        fold = self._fold(features)
        return replace(features, width=features.width * fold, fold=fold)

    def _fold(self, features: Features) -> int:
        """How many neighbours along the dims ahead of the innermost one vector holds, each all of the innermost."""
        if len(features.groups) < 2 or features.width == 1 or features.width != features.length or self.draws:
            return 1
        taken = [sum_strides(store.op) for store in self.loop.loop_stores if store.kind == "feature"]
        if "product" in self.loop.kinds or any(features.walk(strides) != (1, 0) for strides in taken):
            return 1
        return most_rows(self.most, features.length, features.size(-2), map(features.walk, self.accesses))

    @property
    def num_vectors(self) -> int:
        return self.num_inside if self.tile else self.features.num_tiles

    @property
    def num_inside(self) -> int:
        """Vectors along the innermost dims."""
        return self.tile // self.features.width if self.tile else self.features.tiles_inside

    @property
    def vector(self) -> str:
        features = self.features
        terms, step = ["q"], features.tiles_inside
        for group in reversed(range(features.last)):
            terms.append(f"i{group} * {step}")
            step *= features.size(group)
        return " + ".join(terms)

    def text(self) -> str:
        if not self.lines:
            return block(self.before)
        features, unroll = self.features, "VG_UNROLL" if self.unrolled else ""
        nest = (f"for (int64_t i{n} = 0; i{n} < {features.size(n)}; ++i{n}) {{" for n in range(features.last))
        return f"""
        {block(self.before)}
        {block(block(unroll, head) for head in nest)}
        {block(self.around)}
        {unroll}
        for (int64_t q = 0; q < {self.num_inside}; ++q) {{
          const int64_t f = {self._feature()}; (void)f;
          {block(self.lines)}
        }}
        {block(self.after)}
        {block("}" for _ in range(features.last))}
        {block(self.behind)}
        """

    def _feature(self) -> str:
        features = self.features
        if self.tile:
            assert len(features.groups) == 1 and self.tile % features.width == 0, "tiles are runs of whole vectors"
            return f"tile + q * {features.width}"
        if features.fold > 1:
            return f"q * {features.fold}"
        if features.length % features.width == 0:
            return f"q * {features.width}"
        last = features.length - features.width
        return f"q * {features.width} < {last} ? q * {features.width} : {last}"

    def row_at(self, base: Value, row: str, size: int) -> str:
        """Of what an edge reads from elsewhere the row is found once: see ``far_rows``."""
        return f"r{base.id}{row}" if row in ("e", "o") and self.stage.over else super().row_at(base, row, size)

    def far_rows(self) -> list[str]:
        """Declares the rows that ``row_at`` names, for an edge."""
        spec, lines = self.layout.spec, list[str]()
        for base, row in self.irregular:
            size = math.prod(base.row_shape)
            if row != "o":
                place = super().row_at(base, self._edge_row(base), size)
            elif self.tile and base in tiled_loads(spec):
                place = tile_row(base, row, self.tile)
            else:
                place = far_row(spec, base, row)
            lines.append(f"const {C_TYPES[base.dtype]}* __restrict__ r{base.id}{row} = {place};")
        return lines

    def _edge_row(self, base: Value) -> str:
        return edge_row(self.layout.spec, base, "k", "e") if self.stage.over == "out" else "e"

    # ------------------------------------------------------------ sums
    def add_up(self, result: Value, given: str, access: Access, scale: str) -> None:
        features, name, place = self.features, f"t{result.id}", self.features.index(access)
        vector = f"vg_t<{NUMBER_TYPES[result.dtype]}, {features.width}>"
        size = math.prod(result.row_shape)
        self.before.append(f"for (int64_t z = 0; z < {size}; ++z) {name}[z] = 0;")
        if features.fold > 1:
            rows = f"vg_sums<{features.length}>(vg_set<{vector}>({given})){scale}"
            self._add_at(f"{name} + {place}", rows, features.fold)
        elif features.steps(access) or features.width == 1:
            self._add_at(f"{name} + {place}", self._without_overlap(f"{given}{scale}", vector), features.width)
        else:
            self._add_rows(result, self._without_overlap(given, vector), access, vector, scale)

    def _add_rows(self, result: Value, given: str, access: Access, vector: str, scale: str) -> None:
        """Sums of whole rows: those of rows whose sums lie side by side are taken at once."""
        features, name, total = self.features, f"t{result.id}", f"s{result.id}"
        if self.unrolled or features.tiles_inside == 1:
            self.around.append(f"{vector} {total};")
            self.put(f"{total} = q ? {total} + {given} : vg_set<{vector}>({given});")
        else:
            self.around.append(f"{vector} {total} = {vector}{{}};")
            self.put(f"{total} = {total} + {given};")
        count, rows = math.prod(features.size(group) for group in range(features.last)), f"rows{result.id}"
        if 1 < count <= _MOST_ROWS and len(self.behind) < _MOST_AT_ONCE and self._lie_side_by_side(access):
            self.before.append(f"{vector} {rows}[{count}];")
            self.after.append(f"{rows}[{features.index(access)}] = {total};")
            by = f"{NUMBER_TYPES[result.dtype]}(1){scale}"
            self.behind.append(f"vg_add_row_sums<{count}>({name}, {rows}, {by});")
        else:
            self.after.append(f"{name}[{features.index(access)}] += vg_lane_sum({total}){scale};")

    def _lie_side_by_side(self, access: Access) -> bool:
        """Whether the loop ahead of the innermost dims walks an access number by number, from the first on."""
        offset, strides = access
        step = 1
        for group in reversed(range(self.features.last)):
            if self.features.stride(strides, group) != step:
                return False
            step *= self.features.size(group)
        return offset == 0

    def _add_at(self, place: str, given: str, width: int) -> None:
        self.put(f"vg_store<{width}>({place}, vg_load<{width}>({place}) + {given});")

    def _without_overlap(self, given: str, vector: str) -> str:
        """Zeros in the lanes that the vector before has taken."""
        width, length = self.features.width, self.features.length
        if length % width == 0:
            return given
        whole = f"vg_set<{vector}>({given})"
        return f"(q * {width} > {length - width} ? vg_last({whole}, {length % width}) : {whole})"

    def accumulate(self, op: Op, target: str) -> bool:
        """Products are multiplied and added at once, where numbers are added up as what they are."""
        (operand,), result = op.operands(), op.results[0]
        plain = result.dtype.is_floating_point and operand.dtype == result.dtype
        factors = self.product(operand, op) if op.reduction.is_linear and plain else None
        if factors is not None:
            vector = f"vg_t<{NUMBER_TYPES[result.dtype]}, {self.features.width}>"
            one, other = (f"vg_set<{vector}>({factor})" for factor in factors)
            self.put(f"{target} = vg_fma<{vector}>({one}, {other}, {target});")
        return factors is not None

    # ------------------------------------------------------------ running peaks
    def above(self, op: Op, access: Access) -> Steps[str]:
        x = yield self.operand(op, op.args[0], access)
        peak = yield self.operand(op, op.args[1], access)
        return f"{x} - vg_finite({peak})"

    def peak(self, ride: Ride) -> str:
        return self.of_peak(ride, "t")

    def of_peak(self, ride: Ride, letter: str) -> str:
        """What lies in the array of that letter for a peak."""
        access = (0, ride.strides(self.features.shape))
        return self.features.load(f"{letter}{ride.peak.id} + {self.features.index(access)}", access)
