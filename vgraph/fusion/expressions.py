"""Expressions: what each pointwise operator is in the C family.

Takes: an aten op. Gives: a template over its operands; tempo: once a function.
An operator without a template is run by the library, never approximated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from vgraph.ir.moves import Random
from vgraph.ir.program import Op, Value
from vgraph.ir.tdl.table import op_name
from vgraph_kernels import reference

C_TYPES = {  # as they lie in memory
    torch.float32: "float",
    torch.float64: "double",
    torch.bfloat16: "vg_bf16",
    torch.float16: "vg_half",
    torch.int64: "int64_t",
    torch.int32: "int32_t",
    torch.bool: "bool",
}
NUMBER_TYPES = {**C_TYPES, torch.bfloat16: "float", torch.float16: "float"}  # as they are computed with

# {0} {1} ... operands (one number, or a short vector of them); {T} the result's number, {V} its vector
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
    "log1p": "vg_log1p({0})",
    "expm1": "vg_expm1({0})",
    "sin": "vg_sin({0})",
    "cos": "vg_cos({0})",
    "erf": "vg_erf({0})",
    "floor": "vg_floor({0})",
    "sign": "vg_sign({0})",
    "sqrt": "vg_sqrt({0})",
    "rsqrt": "{T}(1) / vg_sqrt({0})",
    "reciprocal": "{T}(1) / {0}",
    "square": "{0} * {0}",
    "sigmoid": "vg_sigmoid({0})",
    "tanh": "vg_tanh({0})",
    "relu": "vg_relu({0})",
    "silu": "{0} * vg_sigmoid({0})",
    "gelu": "{0} * {T}(0.5) * ({T}(1) + vg_erf({0} * {T}(0.70710678118654752440)))",
    "elu": "vg_select<{V}>({0} > {T}(0), {0} * {2}, vg_expm1({0} * {3}) * ({1} * {2}))",
    "softplus": "vg_select<{V}>({0} * {1} > {2}, {0}, vg_log1p(vg_exp({0} * {1})) / {1})",
    "hardtanh": "vg_select<{V}>({0} < {1}, {1}, vg_select<{V}>({0} > {2}, {2}, {0}))",
    "sigmoid_backward": "{0} * (({T}(1) - {1}) * {1})",
    "tanh_backward": "{0} * ({T}(1) - {1} * {1})",
    "threshold_backward": "vg_select<{V}>({1} <= {2}, {T}(0), {0})",
    "leaky_relu": "vg_select<{V}>({0} > {T}(0), {0}, {0} * {1})",
    "leaky_relu_backward": "vg_select<{V}>({1} > {T}(0), {0}, {0} * {2})",
    "silu_backward": "{0} * vg_sigmoid({1}) * ({T}(1) + {1} * ({T}(1) - vg_sigmoid({1})))",
    "gelu_backward": (
        "{0} * ({T}(0.5) * ({T}(1) + vg_erf({1} * {T}(0.70710678118654752440)))"
        " + {1} * vg_exp({1} * {1} * {T}(-0.5)) * {T}(0.39894228040143267794))"
    ),
    "softplus_backward": (
        "vg_select<{V}>({1} * {2} > {3}, {0}, {0} * vg_exp({1} * {2}) / (vg_exp({1} * {2}) + {T}(1)))"
    ),
    "hardtanh_backward": "vg_select<{V}>(vg_or({1} <= {2}, {1} >= {3}), {T}(0), {0})",
    "where": "vg_select<{V}>({0}, {1}, {2})",
    "masked_fill": "vg_select<{V}>({1}, {2}, {0})",
    "eq": "({0} == {1})",
    "ne": "({0} != {1})",
    "lt": "({0} < {1})",
    "le": "({0} <= {1})",
    "gt": "({0} > {1})",
    "ge": "({0} >= {1})",
    "isnan": "({0} != {0})",
    "logical_not": "vg_not({0})",
    "logical_and": "vg_and({0}, {1})",
    "logical_or": "vg_or({0}, {1})",
    "bitwise_not": "vg_not({0})",
    "bitwise_and": "vg_and({0}, {1})",
    "bitwise_or": "vg_or({0}, {1})",
    "maximum": "vg_select<{V}>(vg_or({0} > {1}, {0} != {0}), {0}, {1})",
    "minimum": "vg_select<{V}>(vg_or({0} < {1}, {0} != {0}), {0}, {1})",
    "clamp_min": "vg_select<{V}>({0} < {1}, {1}, {0})",
    "clamp_max": "vg_select<{V}>({0} > {1}, {1}, {0})",
    "zeros_like": "{T}(0)",
    "ones_like": "{T}(1)",
    "full_like": "{1}",
    "clone": "{0}",
    "alias": "{0}",
    "detach": "{0}",
    "_to_copy": "vg_cast<{T}>({0})",
}
_COSTLY = frozenset(
    """exp log log1p expm1 sin cos erf sigmoid tanh silu gelu elu softplus silu_backward gelu_backward
    softplus_backward div sqrt rsqrt reciprocal""".split()
)  # as dear as reading a few numbers
_OF_TRUTH = frozenset("logical_not logical_and logical_or bitwise_not bitwise_and bitwise_or".split())
_COMPARE = frozenset("eq ne lt le gt ge isnan".split())
_MOST = max(int(d) for d in "0123")


def _num_operands(template: str) -> int:
    return 1 + max((d for d in range(_MOST + 1) if f"{{{d}}}" in template), default=0)


_NUM_OPERANDS = {name: _num_operands(template) for name, template in _TEMPLATES.items()}
_DEFAULTS: dict[str, tuple[Any, ...]] = {"elu": (1.0, 1.0, 1.0), "softplus": (1.0, 20.0), "hardtanh": (-1.0, 1.0)}
_UNREAD_LAST = frozenset({"leaky_relu_backward"})  # whether it is given what went in or what came out: one sign
_POWERS = {  # what torch computes for these exponents, too
    0.5: "vg_sqrt({0})",
    1: "{0}",
    2: "{0} * {0}",
    3: "{0} * {0} * {0}",
    -1: "{T}(1) / {0}",
    -2: "{T}(1) / ({0} * {0})",
}
_LIKE_WORDS = {"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking"}


def has_expression(op: Op) -> bool:
    """Whether the op can be part of a kernel."""
    if isinstance(op.target, Random):
        return _is_plain_random(op)
    name = op_name(op.target)
    if len(op.results) != 1 or op.results[0].dtype not in C_TYPES or any(v.dtype not in C_TYPES for v in op.operands()):
        return False
    if name == "pow":
        return _power(op) in _POWERS and not op.kwargs and _same_types(name, op)
    if name in ("clamp", "clamp_min", "clamp_max") and op.results[0].dtype == torch.int64:
        return not op.kwargs and {v.dtype for v in op.operands()} == {torch.int64}
    if name == "clamp":
        return not op.kwargs and _same_types(name, op)
    if name not in _TEMPLATES:
        return False
    if name in ("zeros_like", "ones_like", "full_like", "_to_copy", "clone"):
        return (set(op.kwargs) <= _LIKE_WORDS and len(op.args) == _NUM_OPERANDS[name]) or name in (
            "zeros_like",
            "ones_like",
        )
    if name in ("gelu", "gelu_backward") and op.kwargs.get("approximate", "none") != "none":
        return False
    known = set(op.kwargs) <= {"approximate"}
    return known and len(_arguments(name, op)) == _NUM_OPERANDS[name] and _same_types(name, op)


def _arguments(name: str, op: Op) -> tuple[Any, ...]:
    """Operands with the defaults that were left out; an argument that changes no number left out."""
    given = op.args[: _NUM_OPERANDS[name]] if name in _UNREAD_LAST else op.args
    if name in _DEFAULTS:
        given += _DEFAULTS[name][len(given) - 1 :]
    return given


def is_costly(op: Op) -> bool:
    """Whether computing the op again costs more than keeping what it gave."""
    return isinstance(op.target, Random) or op_name(op.target) in _COSTLY


def _power(op: Op) -> Any:
    """A constant exponent; None for any other."""
    exponent = op.args[1]
    return exponent if isinstance(exponent, (int, float)) and isinstance(op.args[0], Value) else None


def _same_types(name: str, op: Op) -> bool:
    """Promotion between dtypes stays with the library."""
    values = [arg for arg in op.args if isinstance(arg, Value)]
    result = op.results[0].dtype
    if name == "where":
        values = values[1:]
    elif name == "masked_fill":
        values = [values[0], *values[2:]]
    dtypes = {v.dtype for v in values}
    if name in _COMPARE:
        return len(dtypes) == 1
    if name in _OF_TRUTH:
        return dtypes == {torch.bool}
    return dtypes == {result} and result.is_floating_point


def read_values(op: Op) -> list[Value]:
    """The operands that the op's expression reads, in order."""
    given = op.args if op_name(op.target) in ("clamp", "pow") else _arguments(op_name(op.target), op)
    return [arg for arg in given if isinstance(arg, Value)]


def expression(op: Op, text_of: Callable[[Value], str], width: int | str) -> str:
    """The op as an expression of ``width`` numbers (or as many as a name says); ``text_of`` gives operands."""
    operand = next((v.dtype for v in op.operands()), op.results[0].dtype)
    kind = NUMBER_TYPES[op.results[0].dtype]
    name = op_name(op.target)
    given = op.args if name in ("clamp", "pow") else _arguments(name, op)
    args = [text_of(arg) if isinstance(arg, Value) else number(arg, operand) for arg in given]
    if name in _COMPARE and operand in (torch.bfloat16, torch.float16):
        # one side may be computed again and the other lie in memory, as where a maximum is looked for in its slots
        args = [f"vg_rounded<{C_TYPES[operand]}>({text})" for text in args]
    words = {"T": kind, "V": f"vg_t<{kind}, {width}>"}
    if name == "pow":
        return _POWERS[_power(op)].format(*args, **words)
    if name == "clamp":
        return _clamp(op, args).format(*args, **words)
    if name == "full_like":
        return number(op.args[1], op.results[0].dtype)
    if name == "_to_copy" and torch.bool in (operand, op.results[0].dtype):
        return _convert_truth(args[0], operand, kind, width)
    return _TEMPLATES[name].format(*args, **words)


def _clamp(op: Op, args: list[str]) -> str:
    low = len(args) > 1 and op.args[1] is not None
    high = len(args) > 2 and op.args[2] is not None
    text = _TEMPLATES["clamp_min"] if low else "{0}"
    return _TEMPLATES["clamp_max"].replace("{1}", "{2}").replace("{0}", f"({text})") if high else text


def _convert_truth(given: str, operand: torch.dtype, kind: str, width: int | str) -> str:
    if kind == "bool":
        return given if operand == torch.bool else f"({given} != 0)"
    return f"vg_select<vg_t<{kind}, {width}>>({given}, {kind}(1), {kind}(0))"


def number(value: Any, dtype: torch.dtype) -> str:
    """A Python number as a constant of the operand's type, exactly."""
    if not isinstance(value, (int, float)):
        return "0"
    kind = NUMBER_TYPES[dtype]
    if isinstance(value, float) and not math.isfinite(value):
        special = "vg_nan" if math.isnan(value) else ("vg_inf" if value > 0 else "-vg_inf")
        return f"{kind}({special})"
    if not dtype.is_floating_point:
        return f"{kind}({int(value)})"
    return f"{kind}({float(value).hex()})"


# ---------------------------------------------------------------- random numbers
def _is_plain_random(op: Op) -> bool:
    """Numbers for each element of a row, with constant parameters."""
    _, dtype, extra = op.args
    known = op.target.distribution in ("uniform", "bernoulli", "bernoulli_tensor")
    plain = all(isinstance(x, (int, float)) for x in extra)
    return known and plain and dtype in (torch.float32, torch.float64) and set(op.kwargs) == {"seed"}


def random_expression(op: Op, seed: str, row: str, column: str, width: int) -> str:
    """Numbers ``column``, ``column`` + 1 ... of a row of the user's id ``row``."""
    _, dtype, extra = op.args
    kind = NUMBER_TYPES[dtype]
    bits = f"vg_random<{width}>({seed}, {op.target.number}, {row}, {column})"
    if op.target.distribution != "uniform":
        chance = number(float(extra[0]) if extra else 0.5, torch.float64)
        return f"vg_select<vg_t<{kind}, {width}>>(vg_uniform64<{width}>({bits}) < {chance}, {kind}(1), {kind}(0))"
    drawn = f"vg_uniform{64 if dtype == torch.float64 else 32}<{width}>({bits})"
    if not extra:
        return drawn
    low, high = (float(x) for x in extra)
    spread = f"{drawn} * {number(high - low, dtype)} + {number(low, dtype)}"
    last = number(reference.last_below(high, low, dtype), dtype)
    return _TEMPLATES["clamp_max"].format(f"({spread})", last, V=f"vg_t<{kind}, {width}>")
