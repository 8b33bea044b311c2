"""Code writes: the names under which code leaves something, and the attributes that it asks for by a name in quotes.

Takes: a code object. Gives: names. Runs once per function.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import dropwhile

from vgraph.capture.guards.purity import REFLECTION

_STORES = frozenset(f"{verb}_{kind}" for verb in ("STORE", "DELETE") for kind in ("ATTR", "GLOBAL"))
_UNDER_THE_ITEM = {"STORE_SUBSCR": 1, "DELETE_SUBSCR": 1, "STORE_SLICE": 2}  # how much lies above the container
_CHANGING = frozenset(
    "append extend insert add update setdefault pop popitem popleft appendleft remove discard clear sort reverse "
    "move_to_end __setitem__".split()
)
_METHODS = ("LOAD_ATTR", "LOAD_METHOD")
_MOVES, _COPIES = ("SWAP", "ROT_TWO", "ROT_THREE", "ROT_FOUR"), ("COPY", "DUP_TOP_TWO")
_NO_EFFECT = frozenset({"CACHE", "EXTENDED_ARG", "RESUME", "NOP"})


@cache
def written_names(code: types.CodeType) -> frozenset[str]:
    """What code writes: attributes, globals and variables that it assigns, containers whose contents it changes.

    >>> def count(self, key):
    ...     self.calls += 1
    ...     self.known[key] = 2.0
    ...     self.seen.append(key)
    >>> sorted(written_names(count.__code__))
    ['calls', 'known', 'seen']
    """
    ops = [op for op in dis.get_instructions(code) if op.opname not in _NO_EFFECT]
    found = set(_written(ops, code.co_freevars))
    return frozenset(found.union(*map(written_names, _inner(code))))


def _written(ops: Sequence[dis.Instruction], outer: Sequence[str]) -> Iterator[str]:
    """``outer``: variables of functions around this one."""
    for place, op in enumerate(ops):
        if op.opname in _STORES or (op.opname in ("STORE_DEREF", "DELETE_DEREF") and op.argval in outer):
            yield str(op.argval)
        elif op.opname in _METHODS and op.argval in _CHANGING and place:
            yield str(ops[place - 1].argval)
        elif op.opname in _UNDER_THE_ITEM:
            yield from _container(ops, place, _UNDER_THE_ITEM[op.opname])


def _container(ops: Sequence[dis.Instruction], place: int, above: int) -> list[str]:
    """The name of what lies on the stack, before ``place``, below this many others, if it was loaded by its name.

    ``known[key] += 1`` leaves copies of both there, and moves them before it stores.
    """
    place -= 1
    while place > 0 and ops[place].opname in _MOVES:
        place = max((i for i in range(place) if ops[i].opname in _COPIES), default=0)
        while place > 0 and ops[place].opname in _COPIES:
            place -= 1
    while above > 0 and place >= 0:
        above -= dis.stack_effect(ops[place].opcode, ops[place].arg, jump=False)
        place -= 1
    is_named = above == 0 and place >= 0 and ops[place].opname in ("LOAD_GLOBAL", "LOAD_DEREF", *_METHODS)
    return [str(ops[place].argval)] if is_named else []


@cache
def quoted_names(code: types.CodeType) -> frozenset[str] | None:
    """The attributes that code asks for in quotes, as ``getattr(self, "scale")``; None: by names that it computes.

    >>> quoted_names((lambda x: getattr(x, "scale", 1.0)).__code__)
    frozenset({'scale'})
    >>> quoted_names((lambda x, name: getattr(x, name)).__code__)
    """
    found = set[str]()
    ops = [op for op in dis.get_instructions(code) if op.opname not in _NO_EFFECT]
    for place, op in enumerate(ops):
        if str(op.argval) in REFLECTION and op.opname in ("LOAD_GLOBAL", "LOAD_NAME", *_METHODS):
            name, *others = [*dropwhile(_loads_a_path, ops[place + 1 :]), op]
            ends = next(dropwhile(lambda each: each.opname.startswith("LOAD_"), others), op)  # after a default
            is_quoted = type(name.argval) is str and ends.opname.startswith(("CALL", "PRECALL"))
            if op.argval not in ("getattr", "hasattr") or not is_quoted:
                return None
            found.add(name.argval)
    for inner in map(quoted_names, _inner(code)):
        if inner is None:
            return None
        found |= inner
    return frozenset(found)


def _loads_a_path(op: dis.Instruction) -> bool:
    return op.opname == "PUSH_NULL" or (op.opname.startswith("LOAD_") and op.opname != "LOAD_CONST")


def _inner(code: types.CodeType) -> list[types.CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
