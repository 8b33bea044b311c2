"""Border: between what a function computes and what it was given, while it is recorded.

Takes: calls of torch functions. Gives: the same calls on what stands for tensors from outside. Runs while a function
is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from torch import Tensor
from torch.overrides import TorchFunctionMode

from vgraph.ir.program import map_leaves

T = TypeVar("T")
Change = Callable[[object], object]
_ESCAPES = frozenset[Callable[..., object]]({Tensor.numpy, Tensor.tolist, Tensor.__array__})


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
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if func in _ESCAPES:
            self.refuse(func.__name__)
        named = {name: map_leaves(value, self.enter) for name, value in (kwargs or {}).items()}
        return map_leaves(func(*map_leaves(args, self.enter), **named), self.leave)


def enter_both(border: Border, enter_inner: Callable[[], T]) -> T:
    """Enters two modes or none: where Ctrl-C comes between them, nobody would leave the first."""
    border.__enter__()
    try:
        return enter_inner()
    except BaseException:
        border.__exit__(None, None, None)
        raise
