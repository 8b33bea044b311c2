"""Lanes: one loop over the features of a row, dealt out to the lanes of a GPU.

Takes: a Loop of a kernel's layout. Gives: its text in CUDA C++. Runs once per function.
A lane has every G-th vector of a row; vectors are as wide as 16 aligned bytes, and never overlap. Sums over
features are made of sums within lanes, then across them, in an order that the shapes alone decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from vgraph.fusion.expressions import NUMBER_TYPES
from vgraph.fusion.feature_body import Access, Body
from vgraph.fusion.features import Features
from vgraph.fusion.layout import is_mean, sum_strides
from vgraph.fusion.online_softmax import Ride
from vgraph.ir.kernel import Place
from vgraph.ir.program import Op
from vgraph.ir.row_ops import row_product
from vgraph.ir.space import SHARED
from vgraph.ir.trampoline import Steps, run_deep


@dataclass(eq=False)
class LaneFeatures(Features):
    """``lanes``: how many share the loop; ``lane``: the variable with this one's number.

    ``span``: vectors that a block of the grid's second dim has, one tile of many; 0: all.
    """

    lanes: int = 1
    lane: str = "lane"
    span: int = 0
    peaks: dict[str, str] = field(default_factory=dict[str, str])  # name of a running peak to the type of its numbers

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peaks.clear()
        self.num_taken = 0
        self.sum = next((s.op for s in self.loop.loop_stores if s.kind == "feature"), None)
        self.in_turn: frozenset[int] = frozenset()  # groups that one lane walks from end to end
        self.tiles = self.tiles_inside()  # of the innermost group, as they are dealt out
        if self.sum is not None:
            strides = sum_strides(self.sum)
            taken = [self.stride(strides, g) == 0 for g in range(len(self.groups))]
            self.width = self.width if any(taken) else 1
            if taken == sorted(taken):  # the last dims, which neighbouring lanes hold
                self.tiles = 1 << (self._taken_tiles(taken) - 1).bit_length()
                self.num_taken = sum(taken)
            else:
                self.in_turn = frozenset(g for g, is_taken in enumerate(taken) if is_taken)

    def _taken_tiles(self, taken: list[bool]) -> int:
        sizes = [self.size(g) for g, is_taken in enumerate(taken) if is_taken]
        return math.prod(sizes) // self.width if taken and taken[-1] else 1

    def _body(self) -> Body:
        return LaneBody(self)

    def _widest(self, dry: Body) -> int:
        """The widest vector whose every access is aligned."""
        assert isinstance(dry, LaneBody)
        width = self.most
        while width > 1 and (self.length % width or not all(self._fits(width, *found) for found in dry.found)):
            width //= 2
        return width

    def _most_rows(self, dry: Body) -> int:
        return 1  # neighbouring lanes have them

    def _fits(self, width: int, row: int, access: Access) -> bool:
        offset, strides = access
        if self.stride(strides, -1) == 0:
            return True
        others = [self.stride(strides, g) for g in range(len(self.groups) - 1)]
        return row % width == 0 and offset % width == 0 and all(s % width == 0 for s in others)

    # ------------------------------------------------------------ how vectors are dealt out
    def dealt(self) -> list[tuple[int, int]]:
        """(group, number of its vectors) of the groups that lanes share, from the slowest."""
        shared = [g for g in range(len(self.groups)) if g not in self.in_turn]
        return [(g, self.tiles_inside() if g == len(self.groups) - 1 else self.size(g)) for g in shared]

    def num_dealt(self) -> int:
        """Vectors that lanes share, those that only pad a sum included."""
        if self.sum is not None and not self.in_turn:
            return self._num_kept() * self.tiles
        return math.prod(n for _, n in self.dealt())

    def _num_kept(self) -> int:
        return math.prod(self.size(g) for g in range(len(self.groups) - self.num_taken))

    def num_rounds(self) -> int:
        """Vectors of one lane."""
        return -(-(self.span or self.num_dealt()) // self.lanes)

    def vector(self) -> str:
        """The line that says which vector this lane has in round ``n``."""
        tile = f" + (int)blockIdx.y * {self.span}" if self.span else ""
        return f"const int u = {self.lane} + n * {self.lanes}{tile}; (void)u;"

    def tile(self) -> str:
        return "n"

    def text(self, make: Callable[[Body], None], indent: str) -> list[str]:
        body = LaneBody(self)
        make(body)
        lines = list(body.before)
        if body.lines:
            lines += self._rounds(body)
        return [indent + line for line in lines]

    def _rounds(self, body: Body) -> list[str]:
        return [
            *self._pragma(),
            f"for (int n = 0; n < {self.num_rounds()}; ++n) {{",
            f"  {self.vector()}",
            *(f"  {line}" for line in body.around),
            *(f"  {line}" for line in self._guarded(body)),
            *(f"  {line}" for line in body.after),
            "}",
        ]

    def _guarded(self, body: Body) -> list[str]:
        inner = [*self.positions(), *self._turns(body)]
        live = self.live()
        return inner if live is None else [f"if ({live}) {{", *(f"  {line}" for line in inner), "}"]

    def live(self) -> str | None:
        """Whether this lane has a vector in this round; None: every one does."""
        tests: list[str] = []
        if self.span and self.span % self.lanes:
            tests.append(f"{self.lane} + n * {self.lanes} < {self.span}")
        if self.num_dealt() % (self.span or self.lanes):
            tests.append(f"u < {self.num_dealt()}")
        if self.sum is not None and not self.in_turn:
            real = self._taken_tiles([g >= len(self.groups) - self.num_taken for g in range(len(self.groups))])
            if real != self.tiles:
                tests.append(f"u % {self.tiles} < {real}")
        return " && ".join(tests) or None

    def positions(self) -> list[str]:
        """i0, i1 ... and f of the vector ``u``."""
        if not self.groups:
            return ["constexpr int64_t f = 0; (void)f;"]
        lines: list[str] = []
        if self.sum is not None and not self.in_turn and self.num_taken:
            kept = len(self.groups) - self.num_taken
            lines += self._unravel(f"u / {self.tiles}", range(kept))
            return lines + self._unravel(f"u % {self.tiles}", range(kept, len(self.groups)))
        return self._unravel("u", [g for g, _ in self.dealt()])

    def _unravel(self, text: str, groups: list[int] | range) -> list[str]:
        lines: list[str] = []
        step = 1
        last = len(self.groups) - 1
        for group in reversed(list(groups)):
            count = self.tiles_inside() if group == last else self.size(group)
            place = f"({text})" if step == 1 else f"({text}) / {step}"
            if group != next(iter(groups)):
                place = f"{place} % {count}"
            if group == last:
                lines.append(f"const int64_t f = (int64_t)({place}) * {self.width}; (void)f;")
            else:
                lines.append(f"const int64_t i{group} = {place}; (void)i{group};")
            step *= count
        return lines

    def _turns(self, body: Body) -> list[str]:
        """The lines of the body, in loops over what one lane walks from end to end."""
        if not self.in_turn:
            return body.lines
        last = len(self.groups) - 1
        heads: list[str] = []
        for group in sorted(self.in_turn):
            if group == last:
                heads.append(f"for (int64_t f = 0; f < {self.length}; f += {self.width}) {{")
            else:
                heads.append(f"for (int64_t i{group} = 0; i{group} < {self.size(group)}; ++i{group}) {{")
        assert isinstance(body, LaneBody)
        return [*body.ahead, *heads, *body.lines, "}" * len(heads), *body.behind]


@dataclass(eq=False)
class LaneBody(Body):
    """``found``: every access, and the length of the row it is in; ``ahead``, ``behind``: of a lane's own loops."""

    found: list[tuple[int, Access]] = field(default_factory=list["tuple[int, Access]"])
    ahead: list[str] = field(default_factory=list[str])
    behind: list[str] = field(default_factory=list[str])
    raised: set[str] = field(default_factory=set[str])

    def _read(self, place: Place, access: Access, reader: Op | None) -> Steps[str]:
        base = place.base
        self.found.append((0 if base.space == SHARED else math.prod(base.row_shape), access))
        return (yield super()._read(place, access, reader))

    # ------------------------------------------------------------ running peaks
    def raise_peak(self, ride: Ride) -> str:
        """The name of a running peak of this loop, once an edge's number has raised it; fade<name> is by how much."""
        features = self.features
        assert isinstance(features, LaneFeatures)
        access = (0, ride.strides(features.shape))
        name = f"p{ride.peak.id}_{features.stage.loops.index(features.loop)}"
        if name not in self.raised:
            self.raised.add(name)
            kind = f"vg_t<{NUMBER_TYPES[ride.peak.dtype]}, {self._width(access)}>"
            x = run_deep(self._operand(ride.below, ride.below.args[0], access))
            features.peaks[name] = kind
            self.put(f"const auto fade{name} = vg_raise({name}[n], vg_set<{kind}>({x}));")
        return name

    def _above(self, op: Op, access: Access) -> Steps[str]:
        ride = next(r for r in self.features.stage.online_sums.rides.values() if r.below is op)
        # as long as the row that is summed, or as the number itself
        ride = replace(ride, axes=tuple(d for d, stride in enumerate(access[1]) if stride))
        name = self.raise_peak(ride)
        x = yield self._operand(op, op.args[0], access)
        return f"{x} - vg_finite({name}[n])"

    def add_features(self, op: Op) -> None:
        features, result = self.features, op.results[0]
        assert isinstance(features, LaneFeatures)
        (operand,) = op.operands()
        given = self.get(operand, reader=op)
        size, kind = math.prod(result.row_shape), NUMBER_TYPES[result.dtype]
        scale = size / math.prod(operand.row_shape) if is_mean(op) else 1.0
        by = f" * {kind}({scale.hex()})" if scale != 1.0 else ""
        place = f"t{result.id} + {features.index((0, sum_strides(op)))}"
        if features.in_turn:
            self._add_in_turn(op, given, kind, place, by)
            return
        name = f"w{result.id}"
        tiles, lanes = features.tiles, features.lanes
        across = min(tiles, lanes)
        self.around.append(f"{kind} {name} = 0;")
        self.put(f"{name} = vg_lane_sum({self._widened(given, kind)});")
        if across > 1:
            self.after.append(f"{name} = vg_team_add<{across}, 1>({name});")
        first = f"u % {tiles} == 0" if tiles <= lanes else f"{features.lane} == 0"
        test = f"{first} && u < {features.num_dealt()}"
        rounds = tiles // lanes
        target = f"*({place})"
        write = f"{target} = {name}{by};"
        if rounds > 1:
            write = f"{target} = (n % {rounds} ? {target} : {kind}(0)) + {name}{by};"
        self.after += [f"if ({test}) {{", *(f"  {line}" for line in features.positions()), f"  {write}", "}"]

    def _widened(self, given: str, kind: str) -> str:
        return f"vg_set<vg_t<{kind}, {self.features.width}>>({given})"

    def _add_in_turn(self, op: Op, given: str, kind: str, place: str, by: str) -> None:
        """A lane's own sum over dims that are not the last."""
        features, name = self.features, f"w{op.results[0].id}"
        vector = f"vg_t<{kind}, {features.width}>"
        steps = features.steps((0, sum_strides(op)))
        self.put(f"{name} = {name} + {given};")
        self.ahead.append(f"{vector} {name} = vg_set<{vector}>({kind}(0));")
        width, total = (features.width, name) if steps else (1, f"vg_lane_sum({name})")
        self.behind.append(f"vg_store<{width}>({place}, {total}{by});")

    def multiply(self, op: Op) -> None:
        features, result, found = self.features, op.results[0], row_product(op)
        assert found is not None and isinstance(features, LaneFeatures)
        rows, weight, addend = found
        columns = math.prod(features.shape)
        self.accesses.append((1,) * len(features.shape))
        place = features.layout.place(rows)
        step = place.strides[0] if place.strides else 0
        given = self._pointer(place, (place.offset, (0,) * len(features.shape)), self._row(place, op), op)
        assert given is not None, "a row to be multiplied lies in memory"
        bias = f"l{addend.id}" if addend is not None else f"(const {NUMBER_TYPES[result.dtype]}*)nullptr"
        width = widest(columns, features.most)
        sizes = f"{width}, {rows.shape[1]}, {columns}, {features.lanes}"
        self.before.append(
            f"vg_multiply<{sizes}>(t{result.id}, {given}, {step}, l{weight.id}, {bias}, {features.lane});"
        )


def widest(length: int, most: int) -> int:
    """The widest vectors that ``length`` numbers divide into."""
    width = most
    while length % width:
        width //= 2
    return width
