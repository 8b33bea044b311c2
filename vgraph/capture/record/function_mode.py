"""Border: between what a function computes and what it was given, while it is recorded.

Takes: calls of torch functions. Gives: the same calls on what stands for tensors from outside. Runs while a function
is traced.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,  # pyright: ignore[reportPrivateUsage]
    _pop_mode,  # pyright: ignore[reportPrivateUsage]
    _push_mode,  # pyright: ignore[reportPrivateUsage]
)

from vgraph.capture.errors import BackwardHookError
from vgraph.capture.record.aliases import leaves_of
from vgraph.capture.record.profiler import unseen
from vgraph.capture.record.row_counts import plain_number
from vgraph.ir.program import map_leaves
from vgraph.user_line import recorded_line

P = ParamSpec("P")
T = TypeVar("T")
Change = Callable[[object], object]
_ESCAPES = frozenset[Callable[..., object]]({Tensor.numpy, Tensor.tolist, Tensor.__array__})
_HOOKS = frozenset[Callable[..., object]]({Tensor.register_hook, Tensor.register_post_accumulate_grad_hook})
# What tells nothing of a tensor's numbers; our own work asks for it all the time.
_ASKS = frozenset[Callable[..., object]](
    {getattr(Tensor, name).__get__ for name in "shape dtype device layout requires_grad is_meta ndim".split()}
    | {Tensor.size, Tensor.dim, Tensor.numel, Tensor.stride, Tensor.data_ptr, Tensor.is_neg, Tensor.is_conj}
)
_OWN = "vgraph."
_NoOverrides: Callable[[], AbstractContextManager[None]] = torch._C.DisableTorchFunction  # noqa: TID251  # pyright: ignore
_OF_C = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType)


class Border(TorchFunctionMode):
    """Sees every torch function with the very objects that the function's Python names.

    ``enter`` maps what is given to a call, ``leave`` what it returns; ``refuse`` is told the name of a call that
    hands an example's numbers to what is not recorded.
    """

    def __init__(self, enter: Change, leave: Change, refuse: Callable[[str], None]) -> None:
        super().__init__()
        self.enter, self.leave, self.refuse = enter, leave, refuse

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if func in _ASKS:
            return func(*args, **(kwargs or {}))
        if isinstance(func, _OF_C) and runs_no_others(types, args, kwargs):
            return self._pass_unseen(func, args, kwargs)
        return self._pass(func, args, kwargs)

    def _pass(
        self, func: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object] | None
    ) -> object:
        if func in _ESCAPES:
            self.refuse(func.__name__)
        if func in _HOOKS:  # it would see gradients of examples, while these are recorded, and never another
            raise BackwardHookError("it registers a hook on a tensor", recorded_line())
        named = {name: map_leaves(value, self._entered) for name, value in kwargs.items()} if kwargs else {}
        return map_leaves(func(*map_leaves(args, self._entered), **named), self.leave)

    def _entered(self, leaf: object) -> object:
        return self.enter(plain_number(leaf))

    _pass_unseen = unseen(_pass)


def beneath(function: Callable[P, T]) -> Callable[P, T]:
    """The same function, which sees tensors as torch does: what it asks of them passes no mode and no subclass.

    Under a mode that is written in Python a tensor's shape takes ten times as long, and recording asks all the time.
    """

    @wraps(function)
    def plainly(*args: P.args, **kwargs: P.kwargs) -> T:
        with _NoOverrides():
            return function(*args, **kwargs)

    return plainly


def runs_no_others(types: Sequence[type], args: tuple[object, ...], kwargs: Mapping[str, object] | None) -> bool:
    """Whether what is written in C runs no Python but ours on these arguments; ``types``: with overrides."""
    leaves = leaves_of((args, tuple(kwargs.values())) if kwargs else args)
    return all(map(_is_known, types)) and all(map(_is_known, map(type, leaves)))


@lru_cache(256)
def _is_known(kind: type) -> bool:
    """Ours, or of a kind on which operators run no Python: numbers, names, plain tensors."""
    return (
        kind in (Tensor, nn.Parameter) or kind.__module__ in ("builtins", "torch") or kind.__module__.startswith(_OWN)
    )


def num_function_modes() -> int:
    """How many modes see this thread's torch functions."""
    return len(_get_current_function_mode_stack())


def leave_function_modes(count: int) -> None:
    """Leaves what was entered since there were ``count``, and has not been left."""
    while num_function_modes() > count:
        _pop_mode()


def innermost_function_mode() -> object:
    """The mode that sees this thread's torch functions first; None: there is none."""
    modes = _get_current_function_mode_stack()
    return modes[-1] if modes else None


@contextmanager
def without_innermost_function_mode() -> Generator[None]:
    """As if the mode that was entered last had not been."""
    mode = _pop_mode()
    try:
        yield
    finally:
        _push_mode(mode)
