"""Spoken: the names that code speaks, found in its bytecode: what it can read without asking anybody else.

Takes: a code object. Gives: its Words. Runs once per function.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

_OPERATORS = {
    **{"+": "add", "-": "sub", "*": "mul", "@": "matmul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow"},
    **{"&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift"},
}
_COMPARISONS = {"<": "__lt__", "<=": "__le__", "==": "__eq__", "!=": "__ne__", ">": "__gt__", ">=": "__ge__"}
_BY_OPCODE = {  # up to Python 3.10 every binary operator has one, too
    **{"UNARY_NEGATIVE": ["__neg__"], "UNARY_INVERT": ["__invert__"], "STORE_SUBSCR": ["__setitem__"]},
    **{"BINARY_SUBSCR": ["__getitem__"], "BINARY_SLICE": ["__getitem__"], "STORE_SLICE": ["__setitem__"]},
    **{
        f"{kind}_{opcode}": [f"__{prefix}{name}__", f"__{name}__", f"__r{name}__"]
        for kind, prefix in (("BINARY", ""), ("INPLACE", "i"))
        for opcode, name in {
            **{name.upper(): name for name in ("and", "or", "xor", "lshift", "rshift")},
            **{"ADD": "add", "SUBTRACT": "sub", "MULTIPLY": "mul", "MATRIX_MULTIPLY": "matmul", "MODULO": "mod"},
            **{"TRUE_DIVIDE": "truediv", "FLOOR_DIVIDE": "floordiv", "POWER": "pow"},
        }.items()
    },
}
_EQUAL = ("==", "!=")
_STARTS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_HANDLERS = ("PUSH_EXC_INFO", "SETUP_FINALLY")  # since Python 3.11, and before
_BY_PATTERN = ("isinstance", "getattr")  # what ``case Point(x=0):`` does, whose names are no names of the code


@dataclass(eq=False)
class Words:
    """What some code speaks; code of functions that are written within it included, but for ``names``."""

    names: set[str] = field(default_factory=set[str])  # of attributes and globals
    read: set[str] = field(default_factory=set[str])  # those of them that it does more with than to assign an attribute
    globals: set[str] = field(default_factory=set[str])
    stored: set[str] = field(default_factory=set[str])  # globals that it writes
    after: dict[str, set[str]] = field(default_factory=dict[str, set[str]])  # ``F.relu``: relu is read of F
    bare: set[str] = field(default_factory=set[str])  # what is not only asked for an attribute
    imports: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])  # name and level
    operators: set[str] = field(default_factory=set[str])  # methods by which it may compute, as ``__add__``
    tells_apart: bool = False  # it asks whether two things are one
    handles: bool = False  # it catches errors: it may notice that something is not there

    def of(self, name: str) -> set[str] | None:
        """The attributes that are read of what has this name; None: any of those spoken."""
        return None if name in self.bare else self.after.get(name, set())


@lru_cache(1024)
def words_of(code: types.CodeType) -> Words:
    """The words of one code object.

    >>> import torch
    >>> words = words_of((lambda x: torch.special.exp2(x)).__code__)
    >>> words.of("torch"), words.of("special")
    ({'special'}, {'exp2'})
    """
    words = Words(set(code.co_names))
    _collect(code, words)
    return words


def _collect(code: types.CodeType, words: Words) -> None:
    is_constant = False  # what was loaded last
    before, constant, level = "", None, None  # what was loaded last: a name; a constant, and the one before it
    for op in dis.get_instructions(code):
        name = str(op.argval)
        if op.opcode in dis.hasname and op.opname != "STORE_ATTR":
            words.read.add(name)
        if op.opname in _ATTRIBUTES:
            words.after.setdefault(before, set()).add(name)
            before = name
            continue
        if before:
            words.bare.add(before)
        before = name if op.opname in _STARTS else ""
        if op.opname == "LOAD_NAME" or ("LOAD_" in op.opname and "GLOBAL" in op.opname):
            words.globals.add(name)
        elif op.opname == "STORE_GLOBAL":
            words.stored.add(name)
        elif op.opname == "IMPORT_NAME":
            words.imports.add((name, level if isinstance(level, int) else 0))
        elif op.opname == "MATCH_CLASS":
            words.names.update(_BY_PATTERN)
        words.operators.update(_methods_of(op))
        words.tells_apart = words.tells_apart or (_tells_apart(op) and not is_constant)
        is_constant = op.opname.startswith("LOAD_CONST")
        words.handles = words.handles or op.opname in _HANDLERS
        if op.opname.startswith("LOAD_"):
            constant, level = op.argval, constant
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            _collect(inner, words)


def _tells_apart(op: dis.Instruction) -> bool:
    """Whether it is ``is``; or ``in`` or ``==``, which ask the same of objects that have no ``__eq__``."""
    return op.opname in ("IS_OP", "CONTAINS_OP") or (op.opname == "COMPARE_OP" and op.argrepr.strip("bol()") in _EQUAL)


def _methods_of(op: dis.Instruction) -> list[str]:
    """The methods that an operator of the language calls."""
    if op.opname == "BINARY_OP":
        if op.argrepr.startswith("["):
            return ["__getitem__"]
        name = _OPERATORS[op.argrepr.removesuffix("=")]
        return [f"__{name}__", f"__r{name}__", *([f"__i{name}__"] if op.argrepr.endswith("=") else [])]
    if op.opname == "COMPARE_OP":
        return [method for sign, method in _COMPARISONS.items() if op.argrepr.strip("bol()") == sign]
    return _BY_OPCODE.get(op.opname, [])


def joined(many: Iterable[Words]) -> Words:
    """The words of several code objects together."""
    whole = Words()
    for words in many:
        for kind in ("names", "read", "globals", "stored", "bare", "imports", "operators"):
            getattr(whole, kind).update(getattr(words, kind))
        whole.handles |= words.handles
        whole.tells_apart |= words.tells_apart
        for name, found in words.after.items():
            whole.after.setdefault(name, set()).update(found)
    return whole
