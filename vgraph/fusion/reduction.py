"""Reduction loops: a Reduction as C++ or CUDA C++, for operands that lie in a given way.

Takes: a Reduction, what each operand does along a run, or a division of blocks. Gives: source text. Runs once per
function and layout. Source: Koç, multi-mode tensor reduction; the loops are reduction.h and reduction.cuh of
kernels/vgraph_kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vgraph.fusion.expressions import C_TYPES, NUMBER_TYPES, expression
from vgraph.fusion.text import block, indented
from vgraph.fusion.widths import numbers_of
from vgraph.ir.program import Pointwise, Reduction, Value
from vgraph.ir.reduction import ACCUMULATED, DeviceShape
from vgraph.ir.reductions import reduce_info

UNIT, SAME, STRIDED = "unit", "same", "strided"  # neighbours in a run: next to each other, one number, apart
_CPU_LOADS = {
    UNIT: "vg_load<W>((const {kind}*)p[{k}] + i)",
    SAME: "vg_load<1>((const {kind}*)p[{k}])",
    STRIDED: "vg_gather<W, {kind}>((const char*)p[{k}] + i * pace[{k}], pace[{k}])",
}
_CUDA_LOADS = {
    UNIT: "vg_load<W>((const {kind}*)p[{k}])",
    SAME: "vg_load<1>((const {kind}*)p[{k}])",
    STRIDED: "vg_load<1>((const {kind}*)p[{k}])",  # one number at a time
}
_WORDS = {"T": "A", "V": "vg_t<A, W>"}


def emit_reduction(reduction: Reduction, kinds: Sequence[str]) -> str:
    """``void kernel0(const int64_t* a)``; reduction.h says what the entries of ``a`` are."""
    constants = f"operands = {len(kinds)}, lanes = {numbers_of(ACCUMULATED[reduction.dtype].itemsize)}"
    at = "at(const int64_t* p, int64_t i, const int64_t* pace)"
    text = block(
        '#include "prelude.h"\n#include "reduction.h"',
        _body(reduction, _loads(reduction, kinds, _CPU_LOADS), constants, "static inline", at),
        'extern "C" int64_t kernel0(const int64_t* a) { vg_reduce<body>(a); return 0; }',
    )
    return indented(text)


def emit_reduction_cuda(reduction: Reduction, shape: DeviceShape) -> str:
    """``kernel0`` reduces, ``kernel1`` combines what chunks left; reduction.cuh says what they are given."""
    constants = f"operands = {len(shape.kinds)}, kept = {shape.num_kept}, reduced = {shape.num_reduced}, "
    constants += f"lanes = {shape.lanes}, team = {shape.team}"
    words = [f"a{i}" for i in range(shape.num_words)]
    loads = _loads(reduction, shape.kinds, _CUDA_LOADS)
    text = block(
        '#include "prelude.cuh"\n#include "reduction.cuh"',
        _body(reduction, loads, constants, "static __device__ __forceinline__", "at(const int64_t* p)"),
        _entry("kernel0", f"vg_reduce_{'columns' if shape.columns else 'rows'}", words),
        _entry("kernel1", "vg_reduce_chunks", words),
    )
    return indented(text)


def _entry(name: str, function: str, words: list[str]) -> str:
    given = ", ".join(f"int64_t {word}" for word in words)
    return f"""
    extern "C" __global__ void __launch_bounds__(256) {name}({given}) {{
      const int64_t a[] = {{{", ".join(words)}}};
      {function}<body>(a);
    }}
    """


def _loads(reduction: Reduction, kinds: Sequence[str], texts: Mapping[str, str]) -> list[str]:
    both = zip(reduction.element.operands, kinds, strict=True)
    return [texts[kind].format(kind=C_TYPES[value.dtype], k=k) for k, (value, kind) in enumerate(both)]


def _body(reduction: Reduction, loads: Sequence[str], constants: str, qualifiers: str, at: str) -> str:
    """What the loops are made with: an element as an accumulator, two as one, and the result."""
    functions = {
        at: _element(reduction, loads),
        "combine(vg_t<A, W> x, vg_t<A, W> y)": _combination(reduction),
        "after(vg_t<A, W> x)": _finish(reduction),
    }
    texts = (f"template <int W> {qualifiers} vg_t<A, W> {name} {{\n{text}\n}}" for name, text in functions.items())
    return f"""
    struct body {{
      typedef {NUMBER_TYPES[ACCUMULATED[reduction.dtype]]} A;
      typedef {C_TYPES[reduction.dtype]} Out;
      static constexpr int {constants};
      static constexpr bool ordered = {"true" if reduction.is_ordered else "false"};
      {block(texts)}
    }};
    """


def _element(reduction: Reduction, loads: Sequence[str]) -> str:
    lift = reduce_info(reduction.name).lift if reduction.name else ""
    if not lift:
        return _statements(reduction.element, loads)
    return _statements(reduction.element, loads, "const auto x =") + f"\nreturn {lift.format(x='x', **_WORDS)};"


def _combination(reduction: Reduction) -> str:
    if reduction.function is None:
        return f"return {reduce_info(reduction.name).combine.format(a='x', x='y', **_WORDS)};"
    return _statements(reduction.function, ["x", "y"])


def _finish(reduction: Reduction) -> str:
    text = reduce_info(reduction.name).finish if reduction.name else ""
    given = text.format(x="x", **_WORDS) if text else "x"
    return f"return {given};" if reduction.after is None else _statements(reduction.after, [given])


def _statements(pointwise: Pointwise, given: Sequence[str], last: str = "return") -> str:
    """One line an op; the result in as many lanes as the loop has, whatever it depends on."""

    def name(value: Value) -> str:
        return f"v{value.id}"

    both = zip(pointwise.operands, given, strict=True)
    return block(
        (f"const auto {name(value)} = {text}; (void){name(value)};" for value, text in both),
        (f"const auto {name(op.results[0])} = {expression(op, name, 'W')};" for op in pointwise.ops),
        f"{last} vg_set<vg_t<A, W>>({name(pointwise.result)});",
    )
