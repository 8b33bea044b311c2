"""Pointwise functions: what a Python function of scalars does, as ops that a loop can compute.

Takes: a function of tensors, dtypes. Gives: a Pointwise, or why there is none; tempo: every call, on three numbers.
Recording anew costs less than guards: only what reads nothing but its arguments and modules is remembered.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from vgraph.api.aliases import Ref
from vgraph.api.capture import recording
from vgraph.api.reading import global_names
from vgraph.api.tracer import CaptureError, Record, Recording, Tracer, user_line
from vgraph.errors import FunctionError
from vgraph.fusion.expressions import has_expression
from vgraph.ir.moves import Random
from vgraph.ir.notation import op_name
from vgraph.ir.program import SHARED, Op, Value, map_leaves
from vgraph.ir.reduction import Pointwise

Function = Callable[..., Tensor]
NAMES = ("sum", "prod", "max", "min")  # what a reduction may be without a function
_EXAMPLES = 3  # numbers in each operand while the function is recorded
_MOST_KNOWN = 512
_known: dict[Any, Pointwise | str] = {}


def identity_of(dtype: torch.dtype) -> Pointwise:
    """What is given, as it is."""
    value = Value(0, SHARED, dtype, ())
    return Pointwise((value,), (), value)


def record_pointwise(function: Function, dtypes: Sequence[torch.dtype]) -> Pointwise | str:
    """The function's ops; a reason if it is not pointwise, or has ops without an expression."""
    key = _key(function, dtypes)
    if key is None or key not in _known:
        found = _record(function, dtypes)
        if key is None:
            return found
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = found
    return _known[key]


def _key(function: Any, dtypes: Sequence[torch.dtype]) -> Any:
    """Equal for functions that do the same; None for those that read more than their arguments and modules."""
    if not isinstance(function, types.FunctionType) or torch.is_autocast_enabled("cpu"):
        return None
    code = function.__code__
    names = [function.__globals__[name] for name in global_names(code) if name in function.__globals__]
    inner = any(isinstance(constant, types.CodeType) for constant in code.co_consts)
    reads = function.__closure__ or function.__defaults__ or function.__kwdefaults__ or inner
    if reads or not all(isinstance(thing, types.ModuleType) for thing in names):
        return None
    return code, tuple(dtypes), tuple(names)


def _record(function: Function, dtypes: Sequence[torch.dtype]) -> Pointwise | str:
    tracer = Tracer({})
    try:
        with recording, torch.no_grad():
            given = [tracer.new_input(f"x{i}", SHARED, (_EXAMPLES,), dtype) for i, dtype in enumerate(dtypes)]
            with tracer:
                out: Any = function(*given)
                if not isinstance(out, Tensor) or out.shape != (_EXAMPLES,):
                    return "what it gives has another shape than its arguments"
                return _pointwise(tracer.recording, [tracer.ref(x) for x in given], tracer.ref(out))
    except CaptureError as error:
        return error.reason
    except Exception as error:  # whatever the function stumbles over with these examples
        return f"{type(error).__name__}: {error}".splitlines()[0]
    finally:
        tracer.forget()


def _pointwise(found: Recording, given: Sequence[Ref], out: Ref) -> Pointwise | str:
    values: dict[int, Value] = {}

    def value(ref: Ref) -> Value:
        if ref.index not in values:
            values[ref.index] = Value(ref.index, SHARED, found.tensors[ref.index].dtype, ())
        return values[ref.index]

    if found.lifted:
        return "it reads a tensor that is not among its arguments"
    ops: list[Op] = []
    needed = {out}
    for record in reversed(found.records):
        if needed.isdisjoint(record.results):
            continue
        needed |= set(_refs(record))
        op = Op(
            record.target, map_leaves(record.args, lambda x: value(x) if isinstance(x, Ref) else x),
            {k: value(x) if isinstance(x, Ref) else x for k, x in record.kwargs.items()},
            tuple(value(ref) for ref in record.results), record.line,
        )  # fmt: skip
        if isinstance(op.target, Random) or not has_expression(op) or not _is_scalar(found, record):
            return f"{op_name(op.target)} is not computed inside loops over modes"
        ops.append(op)
    return Pointwise(tuple(value(ref) for ref in given), tuple(reversed(ops)), value(out))


def _refs(record: Record) -> list[Ref]:
    found: list[Ref] = []
    map_leaves((record.args, tuple(record.kwargs.values())), lambda x: found.append(x) if isinstance(x, Ref) else None)
    return found


def _is_scalar(found: Recording, record: Record) -> bool:
    """Whether the op takes numbers at one position to a number there."""
    shapes = [tuple(found.tensors[ref.index].shape) for ref in (*_refs(record), *record.results)]
    return all(shape in ((), (_EXAMPLES,)) for shape in shapes)


def checked(op: Any) -> Function:
    """The function, with errors that say what is wrong with it."""
    if not callable(op):
        raise FunctionError(
            f"op is a {type(op).__name__}", line=user_line(), cure=f"one of {', '.join(NAMES)}, or a function"
        )

    def combine(a: Tensor, b: Tensor) -> Tensor:
        cure = "compute with torch on tensors of any shape: torch.where(a > b, a, b) in place of an if"
        try:
            out: Any = op(a, b)
        except Exception as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            raise FunctionError(f"the function of two scalars fails: {said}", line=user_line(), cure=cure) from error
        if not isinstance(out, Tensor) or out.shape != a.shape or out.dtype != a.dtype:
            kind = f"{tuple(out.shape)} of {out.dtype}" if isinstance(out, Tensor) else type(out).__name__
            fact = f"the function of two scalars gives {kind} for two of {tuple(a.shape)} of {a.dtype}"
            raise FunctionError(fact, line=user_line(), cure=cure)
        return out

    return combine
