"""Reduction loops: a Reduction as C++, for operands that lie in a given way.

Takes: a Reduction, what each operand does along a run. Gives: source text. Runs once per function and layout.
Source: Koç, multi-mode tensor reduction; the loops are kernels/vgraph_kernels/reduction.h.
"""

from __future__ import annotations

from collections.abc import Sequence

from vgraph.fusion.expressions import C_TYPES, NUMBER_TYPES, expression
from vgraph.ir.program import Pointwise, Reduction, Value
from vgraph.ir.reduction import ACCUMULATED
from vgraph.ir.reductions import reduce_info

UNIT, SAME, STRIDED = "unit", "same", "strided"  # neighbours in a run: next to each other, one number, apart
_LOADS = {
    UNIT: "vg_load<W>((const {kind}*)p[{k}] + i)",
    SAME: "vg_load<1>((const {kind}*)p[{k}])",
    STRIDED: "vg_gather<W, {kind}>((const char*)p[{k}] + i * pace[{k}], pace[{k}])",
}
_WORDS = {"T": "A", "V": "vg_t<A, W>"}


def emit_reduction(reduction: Reduction, kinds: Sequence[str]) -> str:
    """``void kernel0(const int64_t* a)``; reduction.h says what the entries of ``a`` are."""
    total = ACCUMULATED[reduction.dtype]
    lanes = 64 // total.itemsize
    loads = [
        _LOADS[kind].format(kind=C_TYPES[value.dtype], k=k)
        for k, (value, kind) in enumerate(zip(reduction.element.operands, kinds, strict=True))
    ]
    lines = [
        '#include "prelude.h"',
        '#include "reduction.h"',
        "struct body {",
        f"  typedef {NUMBER_TYPES[total]} A;",
        f"  typedef {C_TYPES[reduction.dtype]} Out;",
        f"  static constexpr int operands = {len(loads)}, lanes = {lanes};",
        f"  static constexpr bool ordered = {'true' if reduction.is_ordered else 'false'};",
        "  template <int W> static inline vg_t<A, W> at(const int64_t* p, int64_t i, const int64_t* pace) {",
        "    (void)p, (void)i, (void)pace;",
        *element(reduction, loads),
        "  }",
        "  template <int W> static inline vg_t<A, W> combine(vg_t<A, W> x, vg_t<A, W> y) {",
        *combination(reduction),
        "  }",
        "  template <int W> static inline vg_t<A, W> after(vg_t<A, W> x) {",
        *finish(reduction),
        "  }",
        "};",
        'extern "C" int64_t kernel0(const int64_t* a) { vg_reduce<body>(a); return 0; }',
    ]
    return "\n".join(lines) + "\n"


def combination(reduction: Reduction) -> list[str]:
    """The body of ``combine(x, y)``."""
    if reduction.function is None:
        return [f"    return {reduce_info(reduction.name).combine.format(a='x', x='y', **_WORDS)};"]
    return statements(reduction.function, ["x", "y"])


def element(reduction: Reduction, loads: Sequence[str]) -> list[str]:
    """The body of ``at``: an element, as an accumulator."""
    lift = reduce_info(reduction.name).lift if reduction.name else ""
    if not lift:
        return statements(reduction.element, loads)
    *lines, last = statements(reduction.element, loads)
    return [*lines, last.replace("return", "const auto x =", 1), f"    return {lift.format(x='x', **_WORDS)};"]


def finish(reduction: Reduction) -> list[str]:
    """The body of ``after(x)``."""
    text = reduce_info(reduction.name).finish if reduction.name else ""
    given = text.format(x="x", **_WORDS) if text else "x"
    return [f"    return {given};"] if reduction.after is None else statements(reduction.after, [given])


def statements(pointwise: Pointwise, given: Sequence[str]) -> list[str]:
    """One line an op; the result in as many lanes as the loop has, whatever it depends on."""
    names: dict[int, str] = {}
    lines: list[str] = []
    for value, text in zip(pointwise.operands, given, strict=True):
        names[value.id] = f"v{value.id}"
        lines.append(f"    const auto v{value.id} = {text}; (void)v{value.id};")

    def name(value: Value) -> str:
        return names[value.id]

    for op in pointwise.ops:
        (result,) = op.results
        lines.append(f"    const auto v{result.id} = {expression(op, name, 'W')};")
        names[result.id] = f"v{result.id}"
    return [*lines, f"    return vg_set<vg_t<A, W>>({name(pointwise.result)});"]
