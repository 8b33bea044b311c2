"""Emit: a KernelSpec as C++: for each vertex, loops over its edges and features.

Takes: a KernelSpec. Gives: source text; tempo: once a function.
Source: DGL section 4 (SpMM and SDDMM as one loop nest), with whatever is pointwise around them inside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from vgraph.fusion.expressions import C_TYPES, expression
from vgraph.fusion.grouping import slice_start
from vgraph.ir.kernel import KernelSpec
from vgraph.ir.moves import Gather, SegmentReduce
from vgraph.ir.program import EDGE, SHARED, Op, Value

ARGUMENTS = ("v0", "v1", "pool", "in_ptr", "src_rows", "dst_rows", "out_ptr", "out_edges")


def emit_kernels(specs: Sequence[KernelSpec]) -> str:
    """One source with ``void kernel<i>(const int64_t* a)``; a holds ARGUMENTS, then loads, then stores."""
    return "\n".join(['#include "prelude.h"', *(_Emitter(spec, i).source() for i, spec in enumerate(specs))])


@dataclass(eq=False)
class _Emitter:
    spec: KernelSpec
    number: int
    makers: dict[int, Op] = field(default_factory=dict[int, Op])
    stages: dict[int, int] = field(default_factory=dict[int, int])  # value id to stage
    starts: dict[int, int] = field(default_factory=dict[int, int])  # slices: value id to start
    lines: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        loads = {v.id for v in self.spec.loads}
        for op in self.spec.ops:
            for value in op.results:
                self.makers[value.id] = op
            self.starts.update(slice_start(op) or {})
        for op in self.spec.ops:
            for value in op.results:
                self.stages[value.id] = self._stage(op)
        self.size = math.prod(self.spec.shape)
        self.load_ids = loads
        self.local = self._local_values()

    # ------------------------------------------------------------ stages: even per vertex, odd per in-edge
    def _stage(self, op: Op) -> int:
        if op.target == SegmentReduce("src", "sum"):
            return 0
        before = [self._stage_of_operand(v, op) for v in op.operands()]
        stage = max(before, default=0)
        is_edge = op.results[0].space == EDGE or isinstance(op.target, SegmentReduce)
        return stage if (stage % 2 == 1) == is_edge else stage + 1

    def _stage_of_operand(self, value: Value, reader: Op) -> int:
        if reader.target == Gather("src") or value.id not in self.stages:
            return 0
        stage = self.stages[value.id]
        maker = self.makers.get(value.id)
        reduced = maker is not None and maker.target == SegmentReduce("dst", "sum")
        return stage + 1 if reduced else stage

    def ready(self, value: Value) -> int:
        """The vertex stage from which a vertex value can be read."""
        maker = self.makers[value.id]
        if maker.target == SegmentReduce("dst", "sum"):
            return self.stages[value.id] + 1
        return self.stages[value.id]

    def _local_values(self) -> set[int]:
        """Vertex values kept in a row of scratch: sums, and what a later stage reads."""
        kept = {op.results[0].id for op in self.spec.ops if isinstance(op.target, SegmentReduce)}
        for op in self.spec.ops:
            for value in op.operands():
                if self._is_made_here(value, op) and not self._is_wide(value):
                    if self.stages[op.results[0].id] > self.stages[value.id]:
                        kept.add(value.id)
        return kept

    def _is_made_here(self, value: Value, reader: Op) -> bool:
        """A vertex value of this row, not one that a Gather reads at another."""
        if value.id not in self.makers or value.space == EDGE or value.id in self.starts:
            return False
        return value.id not in self.load_ids or reader.target != Gather("src")

    def _is_wide(self, value: Value) -> bool:
        return value.row_shape != self.spec.shape

    # ------------------------------------------------------------ text
    def source(self) -> str:
        self._open()
        last = max(self.stages.values(), default=0)
        self._out_sums()
        for stage in range(last + 2):
            if stage % 2 == 0:
                self._vertex_stage(stage)
            else:
                self._edge_stage(stage)
        self.lines += ["  }", "}", ""]
        self.lines += [
            f'extern "C" void kernel{self.number}(const int64_t* a) {{',
            f"  const int64_t* ptr = (const int64_t*)a[{6 if self.spec.is_source else 3}];",
            f"  int64_t work = (a[1] - a[0] + ptr[a[1]] - ptr[a[0]]) * {self.size};",
            f"  vg_run(a[0], a[1], work, body{self.number}, (void*)a, (void*)a[2]);",
            "}",
        ]
        return "\n".join(["", *self.lines]) + "\n"

    def _open(self) -> None:
        self.lines += [
            f"static void body{self.number}(int64_t begin, int64_t end, void* context) {{",
            "  const int64_t* a = (const int64_t*)context;",
        ]
        for place, name in enumerate(ARGUMENTS[3:], start=3):
            self.lines.append(f"  const int64_t* {name} = (const int64_t*)a[{place}];")
        self.lines.append("  (void)in_ptr; (void)src_rows; (void)dst_rows; (void)out_ptr; (void)out_edges;")
        place = len(ARGUMENTS)
        for value in self.spec.loads:
            kind = C_TYPES[value.dtype]
            self.lines.append(f"  const {kind}* __restrict l{value.id} = (const {kind}*)a[{place}];")
            place += 1
        for value in self.spec.stores:
            kind = C_TYPES[value.dtype]
            self.lines.append(f"  {kind}* __restrict o{value.id} = ({kind}*)a[{place}];")
            place += 1
        for value_id in sorted(self.local):
            kind = C_TYPES[self.makers[value_id].results[0].dtype]
            self.lines.append(f"  {kind} t{value_id}[{max(self.size, 1)}];")
        self.lines.append("  for (int64_t v = begin; v < end; ++v) {")

    def _features(self, body: list[str], indent: str) -> list[str]:
        """The loop over features, nested where an operand repeats along some dims only."""
        if self.size == 1:
            return [f"{indent}{{", f"{indent}  const int64_t f = 0; (void)f;", *body, f"{indent}}}"]
        if self._is_flat():
            head = [f"{indent}#pragma GCC ivdep", f"{indent}for (int64_t f = 0; f < {self.size}; ++f) {{"]
            return [*head, *body, f"{indent}}}"]
        head: list[str] = []
        for dim, size in enumerate(self.spec.shape):
            head.append(f"{indent}for (int64_t f{dim} = 0; f{dim} < {size}; ++f{dim}) {{")
        head.append(f"{indent}  const int64_t f = {self._index(self.spec.shape, 0, nested=True)};")
        return [*head, *body, indent + "}" * len(self.spec.shape)]

    def _is_flat(self) -> bool:
        """Whether every operand either walks along with the features or stays put."""
        for value in (*self.spec.loads, *(v for op in self.spec.ops for v in op.results)):
            shape = value.row_shape
            if math.prod(shape) == 1 or shape == self.spec.shape:
                continue
            if shape[:-1] == self.spec.shape[:-1] and math.prod(shape[:-1]) == 1:
                continue  # one wide row, of which a slice is read
            if len(shape) == 1 and len(self.spec.shape) == 1:
                continue
            return False
        return True

    def _index(self, shape: tuple[int, ...], start: int, *, nested: bool | None = None) -> str:
        """The place of feature f within a row of ``shape``, moved by ``start`` along the last dim."""
        if math.prod(shape) == 1:
            return "0"
        nested = not self._is_flat() if nested is None else nested
        moved = start if shape and shape[-1] != 1 else 0
        if not nested:
            return f"f + {moved}" if moved else "f"
        terms, step = [str(moved)] if moved else [], 1
        for back in range(1, len(shape) + 1):
            if shape[-back] != 1:
                terms.append(f"f{len(self.spec.shape) - back} * {step}")
            step *= shape[-back]
        return " + ".join(terms) or "0"

    # ------------------------------------------------------------ stages as loops
    def _out_sums(self) -> None:
        """Sums over out-edges; what they add is computed anew for each edge, or was stored."""
        sums = [op for op in self.spec.ops if op.target == SegmentReduce("src", "sum")]
        if not sums:
            return
        scope = _Scope(self, "e", 0, is_out=True)
        for op in sums:
            (source,), name = tuple(op.operands()), f"t{op.results[0].id}"
            self.lines.append(f"    for (int64_t f = 0; f < {self.size}; ++f) {name}[f] = 0;")
            scope.lines.append(f"{name}[f] += {scope.get(source, 0)};")
        self.lines += [
            "    for (int64_t k = out_ptr[v]; k < out_ptr[v + 1]; ++k) {",
            "      const int64_t e = out_edges[k];",
            "      const int64_t d = dst_rows[e]; (void)d;",
            *self._features([f"        {line}" for line in scope.lines], "      "),
            "    }",
        ]

    def _vertex_stage(self, stage: int) -> None:
        sums = [op for op in self.spec.ops if op.target == SegmentReduce("dst", "sum")]
        scope = _Scope(self, "v", stage)
        for op in self.spec.ops:
            value = op.results[0]
            if value.space == EDGE or value.id in self.starts or self._is_wide(value):
                continue
            if self.ready(value) != stage:
                continue
            is_sum = isinstance(op.target, SegmentReduce)
            if value.id in self.local and not is_sum:
                scope.put(f"t{value.id}[f]", scope.get(value, 0))
            if value.id in {v.id for v in self.spec.stores}:
                scope.put(f"o{value.id}[v * {self.size} + f]", scope.get(value, 0))
        if scope.lines:
            self.lines += self._features([f"      {line}" for line in scope.lines], "    ")
        for op in sums:
            if self.stages[op.results[0].id] == stage + 1:
                name = f"t{op.results[0].id}"
                self.lines.append(f"    for (int64_t f = 0; f < {self.size}; ++f) {name}[f] = 0;")

    def _edge_stage(self, stage: int) -> None:
        scope = _Scope(self, "e", stage)
        for op in self.spec.ops:
            value = op.results[0]
            if self.stages[value.id] != stage or value.id in self.starts or self._is_wide(value):
                continue
            if op.target == SegmentReduce("dst", "sum"):
                (source,) = op.operands()
                scope.lines.append(f"t{value.id}[f] += {scope.get(source, 0)};")
            elif value.id in {v.id for v in self.spec.stores}:
                scope.put(f"o{value.id}[e * {self.size} + f]", scope.get(value, 0))
        if not scope.lines:
            return
        self.lines.append("    for (int64_t e = in_ptr[v]; e < in_ptr[v + 1]; ++e) {")
        if scope.reads_source:
            self.lines.append("      const int64_t s = src_rows[e];")
        self.lines += self._features([f"        {line}" for line in scope.lines], "      ")
        self.lines.append("    }")


@dataclass(eq=False)
class _Scope:
    """The body of one loop over features: each value is computed once."""

    emitter: _Emitter
    row: str  # v or e
    stage: int
    is_out: bool = False  # over out-edges of v: the other end is d, and its values were stored
    lines: list[str] = field(default_factory=list[str])
    names: dict[tuple[int, int, str], str] = field(default_factory=dict[tuple[int, int, str], str])
    reads_source: bool = False

    def put(self, place: str, name: str) -> None:
        self.lines.append(f"{place} = {name};")

    def get(self, value: Value, start: int, row: str = "") -> str:
        """The variable with this value at the current feature, computed where it is not yet."""
        row = row or ("v" if value.space not in (EDGE, SHARED) else self.row)
        key = (value.id, start, row)
        if key not in self.names:
            text = self._text(value, start, row)
            name = f"x{len(self.names)}_{value.id}"
            self.lines.append(f"const {C_TYPES[value.dtype]} {name} = {text};")
            self.names[key] = name
        return self.names[key]

    def _text(self, value: Value, start: int, row: str) -> str:
        emitter = self.emitter
        if self.is_out and value.space != EDGE:
            return self._load(value, start, row)
        if value.id in emitter.local and emitter.ready(value) <= self.stage and row == "v":
            is_sum = isinstance(emitter.makers[value.id].target, SegmentReduce)
            if is_sum or emitter.ready(value) < self.stage:
                return f"t{value.id}[f]"
        maker = emitter.makers.get(value.id)
        if maker is None or row == "s":
            return self._load(value, start, row)
        if value.id in emitter.starts:
            return self.get(maker.args[0], start + emitter.starts[value.id])
        if maker.target == Gather("src"):
            self.reads_source = True
            (source,) = maker.operands()
            return self.get(source, start, "v" if self.is_out else "s")
        if maker.target == Gather("dst"):
            (source,) = maker.operands()
            return self.get(source, start, "d" if self.is_out else "v")
        return expression(maker, lambda operand: self.get(operand, start))

    def _load(self, value: Value, start: int, row: str) -> str:
        index = self.emitter._index(value.row_shape, start)  # pyright: ignore[reportPrivateUsage]
        if value.space == SHARED:
            return f"l{value.id}[{index}]"
        return f"l{value.id}[{row} * {math.prod(value.row_shape)} + {index}]"
