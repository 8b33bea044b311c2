"""Hooks of modules within a function that is recorded: whether a capture can do what they are there for.

Takes: a module that is about to run, what its hooks gave. Gives: nothing, or an error. Runs once per function.
What a forward hook computes and returns is recorded with the function. One that returns nothing is there to look on, or
to count, and would do so where the function is recorded, on rows of examples, and never again.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable
from itertools import chain, pairwise

from torch import nn
from torch.nn.modules import module as torch_module

from vgraph.capture.errors import BackwardHookError, HookError

FORWARD_HOOKS = ("_forward_hooks", "_forward_pre_hooks")  # of a module; of all modules with "_global" before it
RUNS_MODULES = vars(nn.Module)["_call_impl"].__code__  # every call of a module, with or without hooks


def forward_hooks_of_all() -> list[Callable[..., object]]:
    """The forward hooks of all modules of the process."""
    of_all = vars(torch_module)
    return [hook for kind in FORWARD_HOOKS for hook in of_all[f"_global{kind}"].values()]


class LookerError(HookError):
    """A forward hook that returns nothing."""


class SeenHooks:
    """The forward hooks, own ones and those of all modules, of what has run so far."""

    def __init__(self) -> None:
        self._kinds: dict[types.CodeType, str] = {}  # of the module that has it

    def begin(self, module: nn.Module) -> None:
        """HookError: it has hooks that nobody needs to try to know that they must see the rows of a call."""
        own, kind = vars(module), type(module).__name__
        if own["_backward_hooks"] or own["_backward_pre_hooks"]:
            raise BackwardHookError("it has a module with backward hooks")
        own_hooks = chain.from_iterable(own[kind].values() for kind in FORWARD_HOOKS)
        for hook in chain(own_hooks, forward_hooks_of_all()):
            code = _code_of(hook)
            if code is None:
                continue
            self._kinds[code] = kind
            if _returns_nothing(code):
                self._refuse(code)

    def end(self, code: types.CodeType) -> None:
        """HookError: what has just returned nothing is one of them."""
        if code in self._kinds:
            self._refuse(code)

    def _refuse(self, code: types.CodeType) -> None:
        reason = f"it has a {self._kinds[code]} with a hook that returns nothing, and so looks on or counts"
        raise LookerError(reason, f"{code.co_filename}:{code.co_firstlineno}")


def _code_of(hook: Callable[..., object]) -> types.CodeType | None:
    """The Python code of a hook of the user's; None: it is torch's own, which sets weights, or has no Python code."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    if str(getattr(hook, "__module__", "")).partition(".")[0] == "torch":
        return None
    function = hook if hasattr(hook, "__code__") else type(hook).__call__
    return getattr(function, "__code__", None)


def _returns_nothing(code: types.CodeType) -> bool:
    """Whether every ``return`` of the code is one of None."""
    steps = list(dis.get_instructions(code))
    values = [before for before, step in pairwise(steps) if step.opname == "RETURN_VALUE"]
    values += [step for step in steps if step.opname == "RETURN_CONST"]
    return bool(values) and all(step.opname.endswith("_CONST") and step.argval is None for step in values)
