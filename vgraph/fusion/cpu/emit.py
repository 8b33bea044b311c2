"""Emit: a KernelSpec as C++: for each row, loops over its edges and features.

Takes: a KernelSpec. Gives: source text. Runs once per function.
Source: DGL section 4 (SpMM and SDDMM as one loop nest), with whatever is pointwise around them inside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from vgraph.fusion.expressions import C_TYPES, NUMBER_TYPES
from vgraph.fusion.feature_body import Body
from vgraph.fusion.features import Features
from vgraph.fusion.layout import Layout, Loop, Stage
from vgraph.fusion.scratch import Scratch, bytes_of
from vgraph.fusion.stages import lay_out
from vgraph.fusion.stores import accumulated, combined, finished, put_loop_store, start
from vgraph.ir.kernel import KernelSpec
from vgraph.ir.moves import OuterSum, SegmentReduce
from vgraph.ir.program import Op, Value
from vgraph.ir.space import SHARED

INDICES = ("in_ptr", "src_rows", "out_ptr", "out_edges", "out_dst", "vertex_ids", "edge_ids")
NUM_FIXED = 3 + len(INDICES)  # v0, v1, pool, then INDICES; then loads, then stores
WIDE_INDICES = ("in_ptr", "out_ptr", "vertex_ids", "edge_ids")
_MOST_REGISTERS = 24  # vectors of sums that one loop over edges keeps
_AHEAD = (12, 32)  # least and most edges between a prefetch and its use
_MOST_SHORT = 8  # vectors of a loop that is written out
_LINES_AHEAD = 256  # cache lines that are on their way meanwhile
_MOST_LINES = 16  # cache lines of one row that are fetched ahead
_BLOCK = 32  # rows whose outer products are summed at once, as in products.h


def emit_kernels(specs: Sequence[KernelSpec]) -> str:
    """One source with ``void kernel<i>(const int64_t* a)``; a holds v0, v1, pool, INDICES, loads, stores."""
    return "\n".join(['#include "prelude.h"', *(_source(spec, i) for i, spec in enumerate(specs))])


def _source(spec: KernelSpec, number: int) -> str:
    """A kernel's text, with what the stack has no place for on the heap."""
    emitter = _Emitter(spec, number)
    text, spilled = emitter.source(), emitter.scratch.spilled()
    return _Emitter(spec, number, Scratch(spilled)).source() if spilled else text


@dataclass(eq=False)
class _Pass:
    """One pass over the edges of a chain; ``first`` and ``last``: of every chain."""

    before: list[str] = field(default_factory=list[str])
    first: list[str] = field(default_factory=list[str])
    edges: list[str] = field(default_factory=list[str])
    last: list[str] = field(default_factory=list[str])
    after: list[str] = field(default_factory=list[str])


@dataclass(eq=False)
class _Emitter:
    spec: KernelSpec
    number: int
    scratch: Scratch = field(default_factory=Scratch)
    lines: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.layout: Layout = lay_out(self.spec)
        self.width = 8 if any(v.dtype.itemsize == 8 and v.dtype.is_floating_point for v in self._values()) else 16
        self.fetched: set[tuple[int, str]] = set()
        used = {v.id for op in self.spec.ops for v in op.operands()} | {v.id for v in self.spec.stores}
        used |= {p.base.id for p in self.spec.places.values()}
        self.used = used

    def _values(self) -> list[Value]:
        return [v for op in self.spec.ops for v in (*op.results, *op.operands())]

    # ------------------------------------------------------------ text
    def source(self) -> str:
        for stage in self.layout.stages:
            if not stage.over:
                self.lines += self._row_stage(stage)
            elif stage.joined is None:
                self.lines += self._edge_stage(stage)
        self.lines += ["  }", *self._close(), "  return 0;", "}", ""]
        body = [*self._open(), *self.lines]  # when it is known how large the scratch is
        over = {stage.over for stage in self.layout.stages} - {""}
        ptr = "out_ptr" if self.spec.is_source or "out" in over else "in_ptr"
        place = 3 + INDICES.index(ptr)
        cost = max((math.prod(v.row_shape) for op in self.spec.ops for v in op.results if v.space != SHARED), default=1)
        cost *= max(1, len(self.spec.ops) // 4)
        body += [
            f'extern "C" int64_t kernel{self.number}(const int64_t* a) {{',
            f"  const int64_t* ptr = {f'(const int64_t*)a[{place}]' if over else 'nullptr'};",
            f"  return vg_run(a[0], a[1], ptr, {cost}, body{self.number}, (void*)a, (void*)a[2]);",
            "}",
        ]
        return "\n".join(["", *body]) + "\n"

    def _open(self) -> list[str]:
        lines = [
            f"static int64_t body{self.number}(int64_t begin, int64_t end, int64_t piece, void* context) {{",
            "  const int64_t* a = (const int64_t*)context; (void)piece;",
        ]
        for place, name in enumerate(INDICES, start=3):
            kind = "int64_t" if name in WIDE_INDICES else "int32_t"
            lines.append(f"  const {kind}* {name} = (const {kind}*)a[{place}]; (void){name};")
        place = NUM_FIXED
        for value in self.spec.loads:
            kind = C_TYPES[value.dtype]
            lines.append(f"  const {kind}* __restrict l{value.id} = (const {kind}*)a[{place}];")
            place += 1
        for value in self.spec.stores:
            kind, own = C_TYPES[value.dtype], ""
            if value.space == SHARED:
                kind, own = NUMBER_TYPES[value.dtype], f" + piece * {math.prod(value.row_shape)}"
            lines.append(f"  {kind}* __restrict o{value.id} = ({kind}*)a[{place}]{own};")
            place += 1
        arrays = [f"  {self._array('t', v, math.prod(v.row_shape))}" for v in self._arrays()]
        for op in self._outer_sums():
            (left, right), name = op.args, op.results[0].id
            for side, value in (("left", left), ("right", right)):
                kind, count = NUMBER_TYPES[value.dtype], _BLOCK * value.shape[1]
                arrays.append(f"  {self.scratch.array(kind, f'{side}{name}', count, bytes_of(value))}")
            arrays.append(f"  int rows{name} = 0;")
        room = self.scratch.open(self._kept(), "out_ptr" if self.spec.is_source else "in_ptr")
        return [*lines, *room, *arrays, "  for (int64_t v = begin; v < end; ++v) {"]

    def _array(self, letter: str, value: Value, count: int) -> str:
        """The declaration of numbers of a value's type."""
        return self.scratch.array(NUMBER_TYPES[value.dtype], f"{letter}{value.id}", count, bytes_of(value))

    def _vectors(self, letter: str, value: Value, features: Features) -> str:
        """The declaration of vectors that hold a whole row."""
        kind, width = f"vg_t<{NUMBER_TYPES[value.dtype]}, {features.width}>", features.width
        return self.scratch.array(kind, f"{letter}{value.id}", features.num_tiles(), width * bytes_of(value))

    def _arrays(self) -> list[Value]:
        needed = self.layout.row_arrays.union(*(stage.arrays for stage in self.layout.stages))
        made = [v for op in self.spec.ops for v in op.results if v.id in needed]
        return [v for v in made if self._is_used(v)]

    def _is_used(self, value: Value) -> bool:
        return value.id in self.used

    def _kept(self) -> list[Value]:
        found = {
            s.value.id: s.value
            for stage in self.layout.stages
            for loop in stage.loops
            for s in loop.loop_stores
            if s.kind == "keep"
        }
        return list(found.values())

    def _close(self) -> list[str]:
        rest = [f"  {self._add_outer(op)}" for op in self._outer_sums()]
        return [*rest, *self.scratch.close(self._kept())]

    # ------------------------------------------------------------ sums of outer products
    def _outer_sums(self) -> list[Op]:
        return [op for op in self.spec.ops if isinstance(op.target, OuterSum)]

    def _add_outer(self, op: Op) -> str:
        (left, right), name = op.args, op.results[0].id
        columns = right.shape[1]
        width = min(self.width, 1 << (columns.bit_length() - 1))
        sizes = f"{width}, {left.shape[1]}, {columns}"
        return f"vg_outer<{sizes}>(o{name}, left{name}, right{name}, rows{name});"

    def _full_blocks(self, stage: Stage) -> list[str]:
        """After an edge's rows are in their blocks: the sum of a full one."""
        ops = {id(s.op): s.op for loop in stage.loops for s in loop.loop_stores if s.kind == "left"}
        return [
            f"      if (++rows{op.results[0].id} == vg_block) {{ {self._add_outer(op)} rows{op.results[0].id} = 0; }}"
            for op in ops.values()
        ]

    # ------------------------------------------------------------ stages
    def _row_stage(self, stage: Stage) -> list[str]:
        lines: list[str] = []
        for loop in stage.loops:
            features = Features(self.layout, stage, loop, self.width)
            features.unrolled = _is_short_sum(loop, features)
            lines += features.text(lambda body, loop=loop: self._statements(body, loop), "    ")
        return lines

    def _edge_stage(self, stage: Stage) -> list[str]:
        """Chains of edges; what is joined takes each chain once more, when its peak is known."""
        ptr = "in_ptr" if stage.over == "in" else "out_ptr"
        joined = [other for other in self.layout.stages if other.joined == stage.number]
        parts = [self._over_edges(stage, ptr)]
        if joined:
            self._raise_peaks(stage, joined, parts[0])
            parts += [self._over_edges(other, ptr) for other in joined]
        step = "vg_turn" if joined else "vg_chain"
        chains = [
            f"    for (int64_t from = {ptr}[v], stop = {ptr}[v + 1]; ; from += {step}) {{",
            f"      const int64_t to = from + {step} < stop ? from + {step} : stop;",
        ]
        tail = ["      if (to == stop) break;", "    }"]
        inside = [line for part in parts for line in (*part.first, *part.edges, *part.last)]
        before = [line for part in parts for line in part.before]
        after = [line for part in parts for line in part.after]
        return [*before, *chains, *inside, *tail, *after]

    def _over_edges(self, stage: Stage, ptr: str) -> _Pass:
        made = _Pass()
        inside: list[str] = []
        rows: set[str] = set()
        fetch: list[tuple[Value, str]] = []
        for loop in stage.loops:
            features = Features(self.layout, stage, loop, self.width)
            features.unrolled = self._reduces_in_registers(loop, features) or _is_short_sum(loop, features)
            inside += features.text(lambda body, loop=loop: self._statements(body, loop), "      ")
            rows |= features.rows
            fetch += features.irregular
            for op in _reductions(loop):
                opened = self._open_reduction(op, features)
                if op.reduction.in_chains:
                    made.first += opened
                    made.before += self._open_chains(op, features)
                    made.last += self._close_chain(op, features, stage)
                else:
                    made.before += opened
                made.after += self._close_reduction(op, features, stage, ptr)
        edge, other = ("e", "src_rows[{}]") if stage.over == "in" else ("k", "out_dst[{}]")
        head = [f"      for (int64_t {edge} = from; {edge} < to; ++{edge}) {{"]
        if edge == "k" and self.spec.names_edges:
            head.append("      const int64_t e = out_edges[k]; (void)e;")
        if "o" in rows:
            head.append(f"      const int64_t o = {other.format(edge)};")
        head.append(f"      const int64_t j = {edge} - {ptr}[v]; (void)j;")
        head += self._prefetches(fetch, edge, other)
        made.edges = [*head, *inside, *self._full_blocks(stage), "      }"]
        return made

    def _raise_peaks(self, stage: Stage, joined: list[Stage], made: _Pass) -> None:
        """Between the passes over a chain: the peaks so far, and how much what is relative to others fades."""
        peaks = {peak for other in joined for peak in other.online_sums.above.values()}
        for loop in stage.loops:
            features = Features(self.layout, stage, loop, self.width)
            features.unrolled = self._reduces_in_registers(loop, features)
            for peak in (op.results[0] for op in _reductions(loop) if op.results[0].id in peaks):
                kind, flat = NUMBER_TYPES[peak.dtype], features.flat()
                width, name, now = features.width, peak.id, f"a{peak.id}[{features.tile()}]"
                lowest = f"vg_store<{width}>(t{name} + {flat}, -({kind})vg_inf);"
                fades = f"vg_store<{width}>(fade{name} + {flat}, vg_fade(vg_load<{width}>(t{name} + {flat}), {now}));"
                declared = self._array("fade", peak, math.prod(peak.row_shape))
                made.before += [f"    {declared}", *features.text(lambda b, s=lowest: b.put(s), "    ")]
                made.last += features.text(lambda b, s=fades: b.put(s), "    ")
                store = f"vg_store<{width}>(t{name} + {flat}, {now});"
                made.last += features.text(lambda b, s=store: b.put(s), "    ")

    def _close_chain(self, op: Op, features: Features, stage: Stage) -> list[str]:
        """Sums of sums; those before fade where the peak was raised."""
        name, tile, ride = op.results[0].id, features.tile(), stage.online_sums.rides.get(op.results[0].id)
        if ride is None:
            joined = combined(op, f"c{name}[q]", f"a{name}[q]", features.width)
            return _over_tiles(features.num_tiles(), joined, features.unrolled)
        text = f"c{name}[{tile}] = c{name}[{tile}] * {features.of_peak(ride, 'fade')} + a{name}[{tile}];"
        return features.text(lambda body: body.put(text), "    ")

    def _prefetches(self, fetch: list[tuple[Value, str]], edge: str, other: str) -> list[str]:
        """Rows that the next edges will read from somewhere else."""
        lines: list[str] = []
        new = {(v.id, row): v for v, row in fetch if (v.id, row) not in self.fetched and (row, edge) != ("e", "e")}
        self.fetched |= set(new)
        starts = {key: range(0, math.prod(v.row_shape), 64 // v.dtype.itemsize)[:_MOST_LINES] for key, v in new.items()}
        least, most = _AHEAD
        far = max(least, min(most, _LINES_AHEAD // max(1, sum(map(len, starts.values())))))
        for (key, row), value in new.items():
            ahead = other.format(f"{edge} + {far}") if row == "o" else f"out_edges[{edge} + {far}]"
            place = f"l{key} + (int64_t){ahead} * {math.prod(value.row_shape)}"
            lines.append(f"      const {C_TYPES[value.dtype]}* p{key}{row} = {place};")
            lines += [f"      __builtin_prefetch(p{key}{row} + {start});" for start in starts[key, row]]
        return lines

    # ------------------------------------------------------------ reductions over edges
    def _reduces_in_registers(self, loop: Loop, features: Features) -> bool:
        count = sum(1 + self._needs_slot(op) for op in _reductions(loop))
        return 0 < count * features.num_tiles() <= _MOST_REGISTERS

    def _needs_slot(self, op: Op) -> bool:
        return len(op.results) > 1 and self._is_used(op.results[1])

    def _open_reduction(self, op: Op, features: Features) -> list[str]:
        result, tiles = op.results[0], features.num_tiles()
        kind = NUMBER_TYPES[result.dtype]
        vector, first = f"vg_t<{kind}, {features.width}>", start(op.reduction, kind)
        lines = [f"    {self._vectors('a', result, features)}"]
        lines += _over_tiles(tiles, f"a{result.id}[q] = vg_set<{vector}>({first});", features.unrolled)
        if self._needs_slot(op):
            places = f"vg_t<int32_t, {features.width}>"
            declared = self.scratch.array(places, f"b{result.id}", tiles, 4 * features.width)
            lines.append(f"    {declared}")
            lines += _over_tiles(tiles, f"b{result.id}[q] = vg_set<{places}>(-1);", features.unrolled)
        return lines

    def _open_chains(self, op: Op, features: Features) -> list[str]:
        """Sums of sums: a long row's error grows with the length of a chain, and with their number."""
        result, tiles, row = op.results[0], features.num_tiles(), op.reduction
        kind = NUMBER_TYPES[result.dtype]
        vector = f"vg_t<{kind}, {features.width}>"
        nothing = f"vg_set<{vector}>({start(row, kind)})" if row.identity else f"{vector}{{}}"
        first = _over_tiles(tiles, f"c{result.id}[q] = {nothing};", features.unrolled)
        return [f"    {self._vectors('c', result, features)}", *first]

    def _close_reduction(self, op: Op, features: Features, stage: Stage, ptr: str) -> list[str]:
        """From registers to the scratch that later stages read."""
        result, ride = op.results[0], stage.online_sums.rides.get(op.results[0].id)

        def body(text: Body) -> None:
            if self._is_used(result):
                letter = "c" if op.reduction.in_chains else "a"
                given = finished(op, f"{letter}{result.id}[{features.tile()}]", features.width)
                if ride is not None:
                    given = f"vg_settle({given}, {features.of_peak(ride, 't')}, {ptr}[v] < {ptr}[v + 1])"
                text.put(f"vg_store<{features.width}>(t{result.id} + {features.flat()}, {given});")
            if self._needs_slot(op):
                slots = f"vg_cast<int64_t>(b{result.id}[{features.tile()}])"
                text.put(f"vg_store<{features.width}>(t{op.results[1].id} + {features.flat()}, {slots});")

        return features.text(body, "    ")

    def _statements(self, body: Body, loop: Loop) -> None:
        for store in loop.loop_stores:
            put_loop_store(body, store, self._accumulate)

    def _accumulate(self, body: Body, op: Op) -> None:
        (operand,) = op.operands()
        result, features = op.results[0], body.features
        target, vector = f"a{result.id}[{features.tile()}]", f"vg_t<{NUMBER_TYPES[result.dtype]}, {features.width}>"
        factors = body.product(operand, op) if op.reduction.is_linear and _is_summed_as_is(op) else None
        if factors is not None:
            one, other = (f"vg_set<{vector}>({factor})" for factor in factors)
            body.put(f"{target} = vg_fma<{vector}>({one}, {other}, {target});")
            return
        given = body.get(operand, reader=op)
        if op.reduction.picks:
            given = f"vg_set<{vector}>({given})"
        place = f"b{result.id}[{features.tile()}]" if self._needs_slot(op) else ""
        body.put(accumulated(op, target, given, features.width, place=place, position="(int32_t)j", first="j == 0"))


def _is_short_sum(loop: Loop, features: Features) -> bool:
    """A few vectors that are summed over features: one after the other, they wait for nothing."""
    return any(store.kind == "feature" for store in loop.loop_stores) and features.num_tiles() <= _MOST_SHORT


def _is_summed_as_is(op: Op) -> bool:
    """Floating-point numbers, added up as what they are."""
    return op.results[0].dtype.is_floating_point and op.args[0].dtype == op.results[0].dtype


def _reductions(loop: Loop) -> list[Op]:
    return [
        store.op for store in loop.loop_stores if isinstance(store.op.target, SegmentReduce) and store.kind == "reduce"
    ]


def _over_tiles(tiles: int, statement: str, unrolled: bool) -> list[str]:
    head = ["    VG_UNROLL"] if unrolled else []
    return [*head, f"    for (int q = 0; q < {tiles}; ++q) {statement}"]
