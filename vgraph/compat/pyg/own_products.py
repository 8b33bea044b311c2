"""Own products: vgraph's in the place of torch's, for what linear layers multiply while a layer of PyG's runs.

Takes: a layer that runs, or one of PyG's linear layers. Gives: a context. Runs at every call of a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from vgraph.api.linear import linear
from vgraph.capture.record.function_mode import innermost_function_mode

_MUCH = 1 << 26  # products of two numbers; with fewer, an autograd function in Python may cost more than it gains


class OwnProducts(TorchFunctionMode):
    """``vgraph.linear`` in the place of torch's."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        return _chosen(func)(*args, **(kwargs or {}))


def _chosen(func: Callable[..., object]) -> Callable[..., object]:
    return linear if func is functional.linear else func


def is_much(rows: Tensor, columns: int) -> bool:
    """Whether a product of so many columns is worth vgraph's own."""
    return rows.numel() * columns >= _MUCH


def own_products_within(layer: nn.Module, args: Sequence[object]) -> AbstractContextManager[object]:
    """For linear layers of torch's that a layer applies to as many rows as it is given, as ``GINConv`` does.

    Outside of its messages: see ``are_own_products_innermost``.
    """
    rows = args[0] if args else None
    if type(rows) is not Tensor or rows.dim() != 2 or not is_much(rows, rows.shape[1]):
        return nullcontext()
    return OwnProducts() if any(type(part) is nn.Linear for part in layer.modules()) else nullcontext()


def are_own_products_innermost() -> bool:
    """Whether messages, which are recorded with torch's operators, would be with vgraph's: see ``propagate.py``."""
    return type(innermost_function_mode()) is OwnProducts
