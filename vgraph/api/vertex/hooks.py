"""Hooks of a vertex function: they see the call on a graph, as hooks of any module see its call.

Takes: a module with hooks, what evaluates a graph. Gives: what its call gives, with the hooks around it. Runs at every
call of a function that has hooks. Source: torch's ``nn.Module`` (which hooks there are, and in which order they run).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor, nn
from torch.utils.hooks import BackwardHook

from vgraph.errors import FunctionError

Outputs = dict[str, Tensor]

_KINDS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def has_hooks(function: nn.Module) -> bool:
    """Whether anything runs around a call; False where the module was not initialised."""
    return any(function.__dict__.get(kind) for kind in _KINDS)


def refuse_hooks(function: nn.Module, name: str) -> None:
    """FunctionError: hooks would have to run where no whole graph is evaluated."""
    if has_hooks(function):
        raise FunctionError(
            f"{name} has hooks, which run around a call on a graph alone",
            cure="remove them, or put the work into forward",
        )


def call_with_hooks(
    function: nn.Module, evaluate: Callable[..., Outputs], graph: object, features: Mapping[str, object]
) -> Outputs:
    """Forward pre-hooks, the call, forward hooks; full backward hooks when gradients come through it."""
    args, named = _before(function, (graph,), dict(features))
    backward = _backward_hook(function)
    if backward is not None:
        named = dict(zip(named, backward.setup_input_hook(tuple(named.values())), strict=True))
    waiting = dict.fromkeys(vars(function)["_forward_hooks_always_called"])
    try:
        outputs = evaluate(*args, **named)
        for key in list(vars(function)["_forward_hooks"]):
            waiting.pop(key, None)
            found = _after(function, key, args, named, outputs)
            outputs = outputs if found is None else found
    except Exception:
        for key in waiting:
            _after(function, key, args, named, None)
        raise
    if backward is not None:
        outputs = dict(zip(outputs, backward.setup_output_hook(tuple(outputs.values())), strict=True))
    return outputs


Args = tuple[object, ...]
Named = dict[str, object]


def _before(function: nn.Module, args: Args, named: Named) -> tuple[Args, Named]:
    """What forward pre-hooks make of a call's arguments."""
    hooks = vars(function)
    for key, hook in list(hooks["_forward_pre_hooks"].items()):
        if key in hooks["_forward_pre_hooks_with_kwargs"]:
            found = hook(function, args, named)
            args, named = (args, named) if found is None else found
        else:
            found = hook(function, args)
            args = args if found is None else found if isinstance(found, tuple) else (found,)
    return args, named


def _after(function: nn.Module, key: int, args: Args, named: Named, outputs: Outputs | None) -> Outputs | None:
    """What a forward hook makes of a call's outputs; None: it leaves them."""
    hooks = vars(function)
    knows_names = key in hooks["_forward_hooks_with_kwargs"]
    given = (args, named, outputs) if knows_names else (args, outputs)
    return hooks["_forward_hooks"][key](function, *given)


def _backward_hook(function: nn.Module) -> BackwardHook | None:
    """Full backward hooks and pre-hooks, on the features of a call and its outputs, each in the order of its names."""
    hooks = vars(function)
    own, before = list(hooks["_backward_hooks"].values()), list(hooks["_backward_pre_hooks"].values())
    if own and not hooks["_is_full_backward_hook"]:
        fact = f"{type(function).__name__} has a hook of register_backward_hook, which torch has replaced"
        raise FunctionError(fact, cure="register_full_backward_hook")
    return BackwardHook(function, own, before) if own or before else None
