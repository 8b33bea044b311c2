"""Expressions: what each pointwise operator is in the C family.

Takes: an aten op. Gives: a template over its operands; tempo: once a function.
An operator without a template is run by the library, never approximated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from vgraph.ir.program import Op, Value
from vgraph.ir.tdl import op_name

C_TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.int64: "int64_t",
    torch.int32: "int32_t",
    torch.bool: "bool",
}

_TEMPLATES: dict[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "rsub": "{1} - {0}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "abs": "vg_abs({0})",
    "exp": "vg_exp({0})",
    "log": "vg_log({0})",
    "sqrt": "vg_sqrt({0})",
    "rsqrt": "{T}(1) / vg_sqrt({0})",
    "reciprocal": "{T}(1) / {0}",
    "square": "{0} * {0}",
    "sigmoid": "vg_sigmoid({0})",
    "tanh": "vg_tanh({0})",
    "relu": "vg_relu({0})",
    "sigmoid_backward": "{0} * (({T}(1) - {1}) * {1})",
    "tanh_backward": "{0} * ({T}(1) - {1} * {1})",
    "threshold_backward": "({1} <= {2} ? {T}(0) : {0})",
    "leaky_relu": "({0} > {T}(0) ? {0} : {0} * {1})",
    "leaky_relu_backward": "({1} > {T}(0) ? {0} : {0} * {2})",
    "where": "({0} ? {1} : {2})",
    "eq": "({0} == {1})",
    "ne": "({0} != {1})",
    "lt": "({0} < {1})",
    "le": "({0} <= {1})",
    "gt": "({0} > {1})",
    "ge": "({0} >= {1})",
    "logical_not": "(!{0})",
    "maximum": "({0} > {1} || {0} != {0} ? {0} : {1})",
    "minimum": "({0} < {1} || {0} != {0} ? {0} : {1})",
    "clamp_min": "({0} < {1} ? {1} : {0})",
    "clamp_max": "({0} > {1} ? {1} : {0})",
    "zeros_like": "{T}(0)",
    "ones_like": "{T}(1)",
    "clone": "{0}",
    "_to_copy": "{T}({0})",
}
_NUM_OPERANDS = {name: 1 + max((int(d) for d in "012" if f"{{{d}}}" in t), default=0) for name, t in _TEMPLATES.items()}


_POWERS = {  # what torch computes for these exponents, too
    0.5: "vg_sqrt({0})",
    1: "{0}",
    2: "{0} * {0}",
    3: "{0} * {0} * {0}",
    -1: "{T}(1) / {0}",
    -2: "{T}(1) / ({0} * {0})",
}


def has_expression(op: Op) -> bool:
    """Whether the op can be part of a kernel."""
    name = op_name(op.target)
    if name == "pow":
        return _power(op) in _POWERS and not op.kwargs and _same_types(name, op)
    if name not in _TEMPLATES or len(op.results) != 1 or op.results[0].dtype not in C_TYPES:
        return False
    if any(v.dtype not in C_TYPES for v in op.operands()):
        return False
    if name in ("zeros_like", "ones_like", "_to_copy", "clone"):
        return set(op.kwargs) <= {"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking"}
    return not op.kwargs and len(op.args) == _NUM_OPERANDS[name] and _same_types(name, op)


def _power(op: Op) -> Any:
    """A constant exponent; None for any other."""
    exponent = op.args[1]
    return exponent if isinstance(exponent, (int, float)) and isinstance(op.args[0], Value) else None


def _same_types(name: str, op: Op) -> bool:
    """Promotion between dtypes stays with the library."""
    values = [arg for arg in op.args if isinstance(arg, Value)]
    if name == "where":
        values = values[1:]
    dtypes = {v.dtype for v in values}
    result = op.results[0].dtype
    if name in ("eq", "ne", "lt", "le", "gt", "ge"):
        return len(dtypes) == 1
    if name == "logical_not":
        return dtypes == {torch.bool}
    return dtypes == {result} and result.is_floating_point


def expression(op: Op, text_of: Callable[[Any], str]) -> str:
    """The op as an expression; ``text_of`` gives operands, numbers included."""
    operand = next((v.dtype for v in op.operands()), op.results[0].dtype)
    kind = C_TYPES[op.results[0].dtype]
    args = [text_of(arg) if isinstance(arg, Value) else number(arg, operand) for arg in op.args[:3]]
    name = op_name(op.target)
    template = _POWERS[_power(op)] if name == "pow" else _TEMPLATES[name]
    return template.format(*args, T=kind)


def number(value: Any, dtype: torch.dtype) -> str:
    """A Python number as a constant of the operand's type, exactly."""
    if not isinstance(value, (int, float)):
        return "0"
    kind = C_TYPES[dtype]
    if isinstance(value, float) and not math.isfinite(value):
        special = "vg_nan" if math.isnan(value) else ("vg_inf" if value > 0 else "-vg_inf")
        return f"{kind}({special})"
    if not dtype.is_floating_point:
        return f"{kind}({int(value)})"
    return f"{kind}({float(value).hex()})"
