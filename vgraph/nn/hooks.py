"""Hooks: whether calling a module does what its class says and nothing more.

Takes: a module. Gives: a truth value. Runs at every call of a layer that would reach past a module's call.
Source: torch's ``nn.Module`` (which hooks there are).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules import module as torch_module

_FORWARD, _BACKWARD = ("_forward_hooks", "_forward_pre_hooks"), ("_backward_hooks", "_backward_pre_hooks")
_INSTEAD = ("forward", "_compiled_call_impl")  # which an object may have of its own
_GLOBAL_HOOKS = tuple(f"_global{hooks}" for hooks in (*_FORWARD, *_BACKWARD))


def is_plain(module: nn.Module) -> bool:
    """Whether a call is one of the class's ``forward``: there are no hooks, compiled code or own method."""
    own = vars(module)
    for name in (*_FORWARD, *_BACKWARD, *_INSTEAD):
        if own.get(name):
            return False
    return torch.compiler.is_compiling() or not has_global_hooks()


def has_global_hooks() -> bool:
    """Whether hooks run around calls of all modules."""
    return any(map(vars(torch_module).__getitem__, _GLOBAL_HOOKS))
