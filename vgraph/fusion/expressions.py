"""Expressions: pointwise operators of the table (``ir/operators.py``) in the C family.

Takes: an aten op. Gives: its text over given operands. Runs once per function.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from vgraph.ir.moves import Random
from vgraph.ir.operators import OPERATORS, OpInfo, bounded
from vgraph.ir.program import Op, Value
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
NUMBER_TYPES = {  # as they are computed with; truth values are compared as numbers
    **C_TYPES,
    torch.bfloat16: "float",
    torch.float16: "float",
    torch.int8: "int8_t",
}

_FLOATS = {torch.float32, torch.bfloat16, torch.float16}
_UNKNOWN = object()
_LIKE_WORDS = {"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking"}


def has_expression(op: Op) -> bool:
    """Whether the op can be part of a kernel."""
    if isinstance(op.target, Random):
        return _is_plain_random(op)
    row = OPERATORS.get(op.name)
    if row is None or not row.template(op.args) or len(op.results) != 1:
        return False
    if op.results[0].dtype not in C_TYPES or any(v.dtype not in C_TYPES for v in op.operands()):
        return False
    if row.types == "any":
        return row.is_constant or (op.kwargs.keys() <= _LIKE_WORDS and len(op.args) == row.num_arguments)
    if any(op.kwargs[word] != row.words.get(word, _UNKNOWN) for word in op.kwargs):
        return False
    if row.whole_numbers and op.results[0].dtype == torch.int64:
        return {v.dtype for v in op.operands()} == {torch.int64}
    is_whole = row.choose is not None or len(row.arguments(op.args)) == row.num_arguments
    return is_whole and _has_fitting_types(row, op)


def is_costly(op: Op) -> bool:
    """Whether computing the op again costs more than keeping what it gave."""
    if isinstance(op.target, Random):
        return True
    row = OPERATORS.get(op.name)
    return row is not None and row.costly


def _has_fitting_types(row: OpInfo, op: Op) -> bool:
    """Promotion between dtypes stays with the library, but for short floats, which are computed with as floats."""
    values = [arg for place, arg in enumerate(op.args) if isinstance(arg, Value) and place != row.mask]
    dtypes, result = {v.dtype for v in values}, op.results[0].dtype
    if row.types == "compare":
        return len(dtypes) == 1 and all(_is_compared_alike(arg, *dtypes) for arg in op.args)
    if row.types == "truth":
        return dtypes == {torch.bool}
    promoted = result == torch.float32 and result in dtypes and dtypes <= _FLOATS
    return promoted or (dtypes == {result} and result.is_floating_point)


def _is_compared_alike(arg: object, dtype: torch.dtype) -> bool:
    """Whether torch, too, compares it in this dtype: whole numbers and truth values with a fraction as fractions."""
    if isinstance(arg, Value) or dtype.is_floating_point:
        return isinstance(arg, Value | int | float)
    about = torch.iinfo(torch.int8 if dtype == torch.bool else dtype)
    return isinstance(arg, int) and about.min <= arg <= about.max


def read_values(op: Op) -> list[Value]:
    """The operands that the op's expression reads, in order."""
    row = OPERATORS.get(op.name)
    given = op.args if row is None else row.arguments(op.args)
    return [arg for arg in given if isinstance(arg, Value)]


def expression(op: Op, text_of: Callable[[Value], str], width: int | str) -> str:
    """The op as an expression of ``width`` numbers (or as many as a name says); ``text_of`` gives operands."""
    operand = next((v.dtype for v in op.operands()), op.results[0].dtype)
    kind = NUMBER_TYPES[op.results[0].dtype]
    row = OPERATORS[op.name]
    compares_truth = row.types == "compare" and operand == torch.bool

    def text(arg: object) -> str:
        if not isinstance(arg, Value):
            return number(arg, torch.int8 if compares_truth else operand)
        # true is a lane of ones, which as a number would be less than none
        return _convert_truth(text_of(arg), torch.bool, "int8_t", width) if compares_truth else text_of(arg)

    args = [text(arg) for arg in row.arguments(op.args)]
    if row.types == "compare" and operand in (torch.bfloat16, torch.float16):
        # one side may be computed again and the other lie in memory, as where a maximum is looked for in its slots
        args = [f"vg_rounded<{C_TYPES[operand]}>({text})" for text in args]
    if row.name == "full_like":
        return number(op.args[1], op.results[0].dtype)
    if row.name == "_to_copy" and torch.bool in (operand, op.results[0].dtype):
        return _convert_truth(args[0], operand, kind, width)
    made = row.template(op.args).format(*args, T=kind, V=f"vg_t<{kind}, {width}>")
    return _round(made, op.results[0].dtype) if row.name == "_to_copy" and op.results[0].dtype != operand else made


def _round(text: str, dtype: torch.dtype) -> str:
    """A conversion to a short dtype is asked for so that numbers are rounded, whether or not they are stored."""
    return f"vg_rounded<{C_TYPES[dtype]}>({text})" if dtype in (torch.bfloat16, torch.float16) else text


def _convert_truth(given: str, operand: torch.dtype, kind: str, width: int | str) -> str:
    if kind == "bool":
        return given if operand == torch.bool else f"({given} != 0)"
    return f"vg_select<vg_t<{kind}, {width}>>({given}, {kind}(1), {kind}(0))"


def number(value: object, dtype: torch.dtype) -> str:
    """A Python number as a constant of the operand's type, exactly."""
    if value is None:
        return "0"
    assert isinstance(value, (int, float)), f"{value!r} is no number of a kernel"
    kind = NUMBER_TYPES[dtype]
    if isinstance(value, float) and not math.isfinite(value):
        special = "vg_nan" if math.isnan(value) else ("vg_inf" if value > 0 else "-vg_inf")
        return f"{kind}({special})"
    if not dtype.is_floating_point:
        return f"{kind}({int(bool(value) if dtype == torch.bool else value)})"
    return f"{kind}({float(value).hex()})"


# ---------------------------------------------------------------- random numbers
def _is_plain_random(op: Op) -> bool:
    """Numbers for each element of a row, with constant parameters."""
    _, dtype, extra = op.args
    assert isinstance(op.target, Random)
    known = op.target.distribution in ("uniform", "bernoulli", "bernoulli_tensor")
    plain = all(isinstance(x, (int, float)) for x in extra)
    return known and plain and dtype in (torch.float32, torch.float64) and set(op.kwargs) == {"seed"}


def _least_not_below(chance: float) -> int:
    """Of the numbers of 53 bits, the least that is not below ``chance`` of them all; none is below a chance of NaN.

    >>> _least_not_below(0.5) == 2**52, _least_not_below(1.0) == 2**53, _least_not_below(math.nan)
    (True, True, 0)
    """
    return math.ceil(min(chance, 1.0) * 2**53) if chance > 0.0 else 0


def random_expression(op: Op, seed: str, row: str, column: str, width: int) -> str:
    """Numbers ``column``, ``column`` + 1 ... of a row of the user's id ``row``."""
    _, dtype, extra = op.args
    assert isinstance(op.target, Random)
    kind = NUMBER_TYPES[dtype]
    bits = f"vg_random<{width}>({seed}, {op.target.number}, {row}, {column})"
    if op.target.distribution != "uniform":
        limit = _least_not_below(float(extra[0]) if extra else 0.5)
        return f"vg_cast<{kind}>(vg_is_below<{width}>({bits}, {limit}))"
    drawn = f"vg_uniform{64 if dtype == torch.float64 else 32}<{width}>({bits})"
    if not extra:
        return drawn
    low, high = (float(x) for x in extra)
    spread = f"{drawn} * {number(high - low, dtype)} + {number(low, dtype)}"
    last = reference.last_below(high, low, dtype)
    return bounded("{0}", ">", last).format(f"({spread})", number(last, dtype), V=f"vg_t<{kind}, {width}>")
