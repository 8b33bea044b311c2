"""Moving numbers: where a tensor that stands for a Python number would give something else than the number.

Takes: recorded ops, and which values stand for numbers. Gives: nothing, or an error, on which the number stays one.
Runs once per recording in which numbers are tensors. A tensor has a dtype of its own: float64 where a number would
take that of the rows, or the default one beside rows of whole numbers. Quotients of whole numbers have the default
dtype, where Python's are float64, and whole powers are whole numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch

from vgraph.capture.errors import CaptureError
from vgraph.ir.program import Op, Value, op_name

_LONG = (torch.float64, torch.complex128)


def refuse_other_results(ops: Iterable[Op], standing: Collection[int], default: torch.dtype) -> None:
    """Raises where a result is not what the numbers themselves would give.

    Args:
        ops: what was recorded, in order.
        standing: ids of the values that stand for numbers.
        default: torch's default dtype in the recording.

    Raises:
        CaptureError: a result has another dtype or fewer digits, or is a power that is no whole number.
    """
    numbers = set(standing)
    for op in ops:
        given = [value for value in op.operands() if value.id in numbers]
        others = [value for value in op.operands() if value.id not in numbers]
        if not others:  # computed of numbers alone, or made of one that is written in the function
            numbers.update(value.id for value in op.results if not value.shape)
        if not given:
            continue
        is_as_with_numbers = (
            _has_dtype_of(op.results, others, default) and _has_all_digits(op, given) and not _is_whole_power(op, given)
        )
        if not is_as_with_numbers:
            raise CaptureError("a tensor in the place of a number would give something else", op.line)


def _has_fractions(value: Value) -> bool:
    return value.dtype.is_floating_point or value.dtype.is_complex


def _has_dtype_of(results: Iterable[Value], others: Collection[Value], default: torch.dtype) -> bool:
    """Whether results have the dtype of what meets the numbers, or the default one."""
    dtypes = {default, *(value.dtype for value in others)}
    return not others or all(value.dtype in dtypes for value in results if _has_fractions(value))


def _has_all_digits(op: Op, given: Iterable[Value]) -> bool:
    """Whether results of 64 bits are made of numbers that have as many."""
    is_long = any(value.dtype in _LONG for value in op.results)
    return not is_long or all(value.dtype in _LONG for value in given if _has_fractions(value))


def _is_whole_power(op: Op, given: Collection[Value]) -> bool:
    """Whether an exponent is a number, which might be negative, and the result a whole number all the same."""
    is_power = op_name(op.target) == "pow" and any(op.args[1] is value for value in given)
    return is_power and not _has_fractions(op.results[0])
