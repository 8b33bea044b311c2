"""Reduction loops for a GPU: a Reduction as CUDA C++, for a number of modes and a division of blocks.

Takes: a Reduction, a DeviceShape. Gives: source text. Runs once per function and layout.
Source: Koç, multi-mode tensor reduction on GPUs; the loops are kernels/vgraph_kernels/reduction.cuh.
"""

from __future__ import annotations

from vgraph.fusion.cpu.reduction import SAME, STRIDED, UNIT, combination, element, finish
from vgraph.fusion.expressions import C_TYPES, NUMBER_TYPES
from vgraph.ir.program import Reduction
from vgraph.ir.reduction import ACCUMULATED, DeviceShape

_LOADS = {
    UNIT: "vg_load<W>((const {kind}*)p[{k}])",
    SAME: "vg_load<1>((const {kind}*)p[{k}])",
    STRIDED: "vg_load<1>((const {kind}*)p[{k}])",  # one number at a time
}


def emit_reduction_cuda(reduction: Reduction, shape: DeviceShape) -> str:
    """``kernel0`` reduces, ``kernel1`` combines what chunks left; reduction.cuh says what they are given."""
    operands = reduction.element.operands
    loads = [
        _LOADS[kind].format(kind=C_TYPES[value.dtype], k=k)
        for k, (value, kind) in enumerate(zip(operands, shape.kinds, strict=True))
    ]
    words = [f"a{i}" for i in range(shape.num_words)]
    form = "columns" if shape.columns else "rows"
    lines = [
        '#include "prelude.cuh"',
        '#include "reduction.cuh"',
        "struct body {",
        f"  typedef {NUMBER_TYPES[ACCUMULATED[reduction.dtype]]} A;",
        f"  typedef {C_TYPES[reduction.dtype]} Out;",
        f"  static constexpr int operands = {len(loads)}, kept = {shape.num_kept}, reduced = {shape.num_reduced};",
        f"  static constexpr int lanes = {shape.lanes}, team = {shape.team};",
        f"  static constexpr bool ordered = {'true' if reduction.is_ordered else 'false'};",
        "  template <int W> static __device__ __forceinline__ vg_t<A, W> at(const int64_t* p) {",
        *element(reduction, loads),
        "  }",
        "  template <int W> static __device__ __forceinline__ vg_t<A, W> combine(vg_t<A, W> x, vg_t<A, W> y) {",
        *combination(reduction),
        "  }",
        "  template <int W> static __device__ __forceinline__ vg_t<A, W> after(vg_t<A, W> x) {",
        *finish(reduction),
        "  }",
        "};",
        *_entry("kernel0", f"vg_reduce_{form}", words),
        *_entry("kernel1", "vg_reduce_chunks", words),
    ]
    return "\n".join(lines) + "\n"


def _entry(name: str, function: str, words: list[str]) -> list[str]:
    given = ", ".join(f"int64_t {word}" for word in words)
    return [
        f'extern "C" __global__ void __launch_bounds__(256) {name}({given}) {{',
        f"  const int64_t a[] = {{{', '.join(words)}}};",
        f"  {function}<body>(a);",
        "}",
    ]
