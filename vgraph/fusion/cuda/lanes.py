"""Lanes: a loop over the features of a row, dealt out to the lanes of a GPU.

Takes: a Loop of a kernel's layout. Gives: its text in CUDA C++. Runs once per function.
A lane has every G-th vector of a row; vectors are as wide as 16 aligned bytes, and never overlap. Sums over
features are made of sums within lanes, then across them, in an order that the shapes alone decide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

from vgraph.fusion.expressions import NUMBER_TYPES
from vgraph.fusion.feature_body import Body
from vgraph.fusion.features import Access, Features
from vgraph.fusion.layout import sum_strides
from vgraph.fusion.online_softmax import Ride
from vgraph.fusion.text import block
from vgraph.ir.program import Op, Value
from vgraph.ir.trampoline import Steps, run_deep


def widest(length: int, most: int) -> int:
    """The widest vectors that ``length`` numbers divide into."""
    width = most
    while length % width:
        width //= 2
    return width


@dataclass(eq=False)
class LaneBody(Body):
    """``lanes``: how many share the loop; ``lane``: the variable with this one's number.

    ``span``: vectors that a block of the grid's second dim has, one tile of many; 0: all. ``only``: which lanes put
    anything. ``peaks``: of the running peaks of this loop, by name, the type of their vectors.
    """

    lanes: int = 1
    lane: str = "lane"
    span: int = 0
    only: str = ""
    peaks: dict[str, str] = field(init=False, default_factory=dict[str, str])
    ahead: list[str] = field(init=False, default_factory=list[str])  # of loops that one lane walks alone
    behind: list[str] = field(init=False, default_factory=list[str])

    counter = "n"
    first = "fresh"
    position = "vg_set<vg_t<int32_t, {width}>>((int32_t)j)"

    # ------------------------------------------------------------ vectors
    def widened(self, features: Features) -> Features:
        """Every access is aligned; what sums up no group walked by lanes goes number by number."""
        width = self.most
        while width > 1 and (features.length % width or not all(_fits(features, width, *read) for read in self.reads)):
            width //= 2
        own = replace(self, features=features)
        return replace(features, width=width if own.summed is None or any(own.taken) else 1)

    @property
    def num_vectors(self) -> int:
        return -(-(self.span or self.num_dealt) // self.lanes)

    @property
    def vector(self) -> str:
        return "n"

    # ------------------------------------------------------------ how vectors are dealt out
    @cached_property
    def summed(self) -> Op | None:
        """The sum over features that the loop makes."""
        return next((store.op for store in self.loop.loop_stores if store.kind == "feature"), None)

    @cached_property
    def taken(self) -> list[bool]:
        """Of every group, whether that sum takes it."""
        strides = () if self.summed is None else sum_strides(self.summed)
        return [bool(strides) and self.features.stride(strides, g) == 0 for g in range(len(self.features.groups))]

    @cached_property
    def kept(self) -> list[int]:
        """Groups that it leaves, which lanes share, from the slowest."""
        return [group for group, is_taken in enumerate(self.taken) if not is_taken]

    @cached_property
    def side_by_side(self) -> list[int]:
        """Groups that it takes, if those are the last, which neighbouring lanes hold."""
        return list(range(len(self.kept), len(self.taken))) if not self.in_turn else []

    @cached_property
    def in_turn(self) -> list[int]:
        """Groups that one lane walks from end to end: those that it takes elsewhere."""
        return [] if self.taken == sorted(self.taken) else [g for g, is_taken in enumerate(self.taken) if is_taken]

    @cached_property
    def real_tiles(self) -> int:
        """Vectors of the groups that a sum takes."""
        return self._count(self.side_by_side)

    @cached_property
    def tiles(self) -> int:
        """The same, padded as they are dealt out."""
        return 1 << (self.real_tiles - 1).bit_length()

    def _count(self, groups: list[int]) -> int:
        return math.prod(self._vectors_of(group) for group in groups)

    def _vectors_of(self, group: int) -> int:
        features = self.features
        return features.tiles_inside if group == len(features.groups) - 1 else features.size(group)

    @cached_property
    def num_dealt(self) -> int:
        """Vectors that lanes share, those that only pad a sum included."""
        return self._count(self.kept) * self.tiles

    # ------------------------------------------------------------ text
    @property
    def live(self) -> list[str]:
        """What tells whether this lane has a vector in this round."""
        tests = [self.only] if self.only else []
        if self.span and self.span % self.lanes:
            tests.append(f"{self.lane} + n * {self.lanes} < {self.span}")
        if self.num_dealt % (self.span or self.lanes):
            tests.append(f"u < {self.num_dealt}")
        if self.real_tiles != self.tiles:
            tests.append(f"u % {self.tiles} < {self.real_tiles}")
        return tests

    def text(self) -> str:
        if not self.lines:
            return block(self.before)
        tile = f" + (int)blockIdx.y * {self.span}" if self.span else ""
        live = " && ".join(self.live)
        return f"""
        {block(self.before)}
        {"VG_UNROLL" if self.unrolled else ""}
        for (int n = 0; n < {self.num_vectors}; ++n) {{
          const int u = {self.lane} + n * {self.lanes}{tile}; (void)u;
          {block(self.around)}
          {f"if ({live}) {{" if live else ""}
            {self.positions()}
            {block(self.ahead)}
            {block(map(self._turn, self.in_turn))}
              {block(self.lines)}
            {block("}" for _ in self.in_turn)}
            {block(self.behind)}
          {"}" if live else ""}
          {block(self.after)}
        }}
        """

    def positions(self) -> str:
        """i0, i1 ... and f of the vector ``u``."""
        if not self.features.groups:
            return "constexpr int64_t f = 0; (void)f;"
        if not self.side_by_side:
            return block(self._unravel("u", self.kept))
        taken = self._unravel(f"u % {self.tiles}", self.side_by_side)
        return block(self._unravel(f"u / {self.tiles}", self.kept), taken)

    def _unravel(self, text: str, groups: list[int]) -> list[str]:
        lines: list[str] = []
        step = 1
        for group in reversed(groups):
            count = self._vectors_of(group)
            place = f"({text})" if step == 1 else f"({text}) / {step}"
            if group != groups[0]:
                place = f"{place} % {count}"
            if group == len(self.features.groups) - 1:
                lines.append(f"const int64_t f = (int64_t)({place}) * {self.features.width}; (void)f;")
            else:
                lines.append(f"const int64_t i{group} = {place}; (void)i{group};")
            step *= count
        return lines

    def _turn(self, group: int) -> str:
        """The head of a loop over what one lane walks from end to end."""
        features = self.features
        name, step = f"i{group}", f"++i{group}"
        if group == len(features.groups) - 1:
            name, step = "f", f"f += {features.width}"
        return f"for (int64_t {name} = 0; {name} < {features.size(group)}; {step}) {{"

    # ------------------------------------------------------------ sums
    def add_up(self, result: Value, given: str, access: Access, scale: str) -> None:
        features, kind, name = self.features, NUMBER_TYPES[result.dtype], f"w{result.id}"
        place = f"t{result.id} + {features.index(access)}"
        vector = f"vg_t<{kind}, {features.width}>"
        if self.in_turn:
            self.ahead.append(f"{vector} {name} = vg_set<{vector}>({kind}(0));")
            self.put(f"{name} = {name} + {given};")
            width, total = (features.width, name) if features.steps(access) else (1, f"vg_lane_sum({name})")
            self.behind.append(f"vg_store<{width}>({place}, {total}{scale});")
            return
        self.around.append(f"{kind} {name} = 0;")
        self.put(f"{name} = vg_lane_sum(vg_set<{vector}>({given}));")
        self.after += self._across_lanes(name, f"*({place})", kind, scale)

    def _across_lanes(self, name: str, target: str, kind: str, scale: str) -> list[str]:
        """Adds up the sums of lanes; one of these keeps the whole."""
        across, rounds = min(self.tiles, self.lanes), self.tiles // self.lanes
        first = f"u % {self.tiles} == 0" if self.tiles <= self.lanes else f"{self.lane} == 0"
        before = f"(n % {rounds} ? {target} : {kind}(0)) + " if rounds > 1 else ""
        return [
            f"{name} = vg_team_add<{across}, 1>({name});" if across > 1 else "",
            f"if ({first} && u < {self.num_dealt}) {{",
            self.positions(),
            f"{target} = {before}{name}{scale};",
            "}",
        ]

    def accumulate(self, op: Op, target: str) -> bool:
        """Sums relative to a running peak fade when an edge raises it."""
        ride = self.stage.online_sums.rides.get(op.results[0].id)
        if ride is not None:
            (operand,) = op.operands()
            given = self.get(operand, reader=op)
            self.put(f"{target} = {target} * fade{self._raise_peak(ride)} + {given};")
        return ride is not None

    # ------------------------------------------------------------ running peaks
    def peak(self, ride: Ride) -> str:
        return f"{self._peak_name(ride)}[n]"

    def _peak_name(self, ride: Ride) -> str:
        return f"p{ride.peak.id}_{self.stage.loops.index(self.loop)}"

    def _raise_peak(self, ride: Ride) -> str:
        """The name of a running peak of this loop, once an edge's number has raised it; fade<name> is by how much."""
        access, name = (0, ride.strides(self.features.shape)), self._peak_name(ride)
        if name not in self.peaks:
            kind = f"vg_t<{NUMBER_TYPES[ride.peak.dtype]}, {self.width(access)}>"
            self.peaks[name] = kind
            x = run_deep(self.operand(ride.below, ride.below.args[0], access))
            self.put(f"const auto fade{name} = vg_raise({name}[n], vg_set<{kind}>({x}));")
        return name

    def above(self, op: Op, access: Access) -> Steps[str]:
        ride = next(r for r in self.stage.online_sums.rides.values() if r.below is op)
        # as long as the row that is summed, or as the number itself
        name = self._raise_peak(replace(ride, axes=tuple(d for d, stride in enumerate(access[1]) if stride)))
        x = yield self.operand(op, op.args[0], access)
        return f"{x} - vg_finite({name}[n])"


def _fits(features: Features, width: int, row: int, access: Access) -> bool:
    """Whether all vectors of an access to rows of that length are aligned."""
    offset, strides = access
    if features.stride(strides, -1) == 0:
        return True
    others = [features.stride(strides, group) for group in range(len(features.groups) - 1)]
    return row % width == 0 and offset % width == 0 and all(stride % width == 0 for stride in others)
