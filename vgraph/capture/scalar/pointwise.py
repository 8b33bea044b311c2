"""Pointwise functions: what a Python function of scalars does, as ops that a loop can compute.

Takes: a function of tensors, dtypes. Gives: a Pointwise, or why there is none. Runs at every call, on three numbers.
Recording anew costs less than guards: only what reads nothing but its arguments and modules is remembered.
"""

from __future__ import annotations

import builtins
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from vgraph import config
from vgraph.capture.errors import CaptureError
from vgraph.capture.guards.code_names import Words, words_of
from vgraph.capture.guards.purity import impurity, is_pure_module, question_of
from vgraph.capture.recheck import check_same
from vgraph.capture.record.aliases import Ref
from vgraph.capture.record.cut_short import as_it_was
from vgraph.capture.record.tracer import Recording, Tracer
from vgraph.capture.recording_lock import recording
from vgraph.errors import FunctionError
from vgraph.fusion.expressions import has_expression
from vgraph.ir.moves import Random
from vgraph.ir.program import Pointwise, Value, needed_ops, op_name
from vgraph.ir.reductions import REDUCTIONS
from vgraph.ir.space import SHARED

Function = Callable[..., Tensor]
_EXAMPLES = 3  # numbers in each operand while the function is recorded
_MOST_KNOWN = 512
_TENSOR_NAMES = frozenset(dir(Tensor))
_NUMBERS = (bool, int, float, complex)
_known: dict[object, Pointwise | str] = {}


def identity_of(dtype: torch.dtype) -> Pointwise:
    """What is given, as it is."""
    value = Value(0, SHARED, dtype, ())
    return Pointwise((value,), (), value)


def record_pointwise(function: Function, dtypes: Sequence[torch.dtype]) -> Pointwise | str:
    """The function's ops, under torch's modes; a reason if it is not pointwise, or has ops without an expression."""
    key = _key(function, dtypes)
    if key is None or key not in _known:
        found = _record(function, dtypes)
        if key is None:
            return found
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = found
    elif config.checks_captures():
        check_same(getattr(function, "__name__", "a function"), str(_known[key]), str(_record(function, dtypes)))
    return _known[key]


def _key(function: object, dtypes: Sequence[torch.dtype]) -> object:
    """Equal for functions that do the same; None for those that read what may change beside numbers and functions."""
    if not isinstance(function, types.FunctionType) or torch.is_autocast_enabled("cpu"):
        return None
    code = function.__code__
    inner = any(isinstance(constant, types.CodeType) for constant in code.co_consts)
    words = _words(code)
    kept = (function.__closure__, function.__defaults__, function.__kwdefaults__, function.__dict__)
    if inner or words.imports or any(kept):
        return None
    found: list[object] = [getattr(Tensor, name, None) for name in sorted(words.names & _TENSOR_NAMES)]
    for name in sorted(words.globals):
        thing = function.__globals__.get(name, vars(builtins).get(name))
        if not _collect(thing, words.of(name), words, found):
            return None
    return code, tuple(dtypes), torch.get_default_dtype(), torch.is_grad_enabled(), tuple(found)


_words = functools.lru_cache(_MOST_KNOWN)(words_of)


def _collect(thing: object, names: set[str] | None, words: Words, found: list[object]) -> bool:
    """Adds what is read of a global; whether all of it is the same whenever it is equal."""
    if isinstance(thing, types.ModuleType):
        if names is None:
            return False
        return all(_collect(getattr(thing, name, None), words.of(name), words, found) for name in sorted(names))
    found.append((type(thing), repr(thing) if isinstance(thing, _NUMBERS) else thing))  # 0.0 equals -0.0
    return isinstance(thing, (*_NUMBERS, type(None), torch.dtype)) or _answers_alike(thing)


def _answers_alike(thing: object) -> bool:
    if isinstance(thing, types.BuiltinFunctionType):
        return not impurity(thing) and not question_of(thing)
    return isinstance(thing, (type, types.FunctionType)) and is_pure_module(thing.__module__, thing.__name__)


def _record(function: Function, dtypes: Sequence[torch.dtype]) -> Pointwise | str:
    tracer = Tracer({})
    try:
        with recording:
            return as_it_was(functools.partial(_recorded, tracer, function, dtypes))
    except CaptureError as error:
        return error.reason
    except Exception as error:  # whatever the function stumbles over with these examples
        return f"{type(error).__name__}: {error}".splitlines()[0]
    finally:
        tracer.forget()


def _recorded(tracer: Tracer, function: Function, dtypes: Sequence[torch.dtype]) -> Pointwise | str:
    given = [tracer.new_input(f"x{i}", SHARED, (_EXAMPLES,), dtype) for i, dtype in enumerate(dtypes)]
    with tracer:
        out: Any = function(*given)
        if not isinstance(out, Tensor) or out.shape != (_EXAMPLES,):
            return "what it gives has another shape than its arguments"
        return _pointwise(tracer.recording, [tracer.ref(x) for x in given], tracer.ref(out))


def _pointwise(found: Recording, given: Sequence[Ref], out: Ref) -> Pointwise | str:
    values: dict[int, Value] = {}

    def value(ref: Ref) -> Value:
        if ref.index not in values:
            values[ref.index] = Value(ref.index, SHARED, found.tensors[ref.index].dtype, ())
        return values[ref.index]

    if found.lifted:
        return "it reads a tensor that is not among its arguments"
    ops = needed_ops([record.as_op(value) for record in found.records], [value(out).id])
    for op in reversed(ops):
        shapes = [tuple(found.tensors[v.id].shape) for v in (*op.operands(), *op.results)]
        is_scalar = all(shape in ((), (_EXAMPLES,)) for shape in shapes)  # numbers at one position to a number there
        if isinstance(op.target, Random) or not has_expression(op) or not is_scalar:
            return f"{op_name(op.target)} is not computed inside loops over modes"
    return Pointwise(tuple(value(ref) for ref in given), ops, value(out))


def checked(op: object) -> Function:
    """The function, with errors that say what is wrong with it."""
    if not callable(op):
        raise FunctionError(f"op is a {type(op).__name__}", cure=f"one of {', '.join(REDUCTIONS)}, or a function")

    def combine(a: Tensor, b: Tensor) -> Tensor:
        cure = "compute with torch on tensors of any shape: torch.where(a > b, a, b) in place of an if"
        try:
            out: object = op(a, b)
        except Exception as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            raise FunctionError(f"the function of two scalars fails: {said}", cure=cure) from error
        if not isinstance(out, Tensor) or out.shape != a.shape or out.dtype != a.dtype:
            kind = f"{tuple(out.shape)} of {out.dtype}" if isinstance(out, Tensor) else type(out).__name__
            fact = f"the function of two scalars gives {kind} for two of {tuple(a.shape)} of {a.dtype}"
            raise FunctionError(fact, cure=cure)
        return out

    return combine
