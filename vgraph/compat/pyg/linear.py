"""PyG's linear layers within layers that are accelerated: by vgraph's products, where there is much to multiply.

Takes: PyG's class of them. Gives: the same, which chooses. Installed once per process; runs at every call.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from vgraph.api.linear import linear
from vgraph.compat.pyg.askers import is_within_accelerated

_MUCH = 1 << 26  # products of two numbers; with fewer, an autograd function in Python may cost more than it gains


class _OwnProducts(TorchFunctionMode):
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


def install_linear() -> None:
    """Lets PyG's linear layers ask whether a layer that is accelerated calls them.

    By ``__call__``: guards watch ``forward``, which messages call, too.
    """
    kind = importlib.import_module("torch_geometric.nn.dense.linear").Linear
    if "__call__" not in vars(kind):
        kind.__call__ = _call_linear


def _call_linear(layer: nn.Module, *args: object, **named: object) -> object:
    if torch.compiler.is_dynamo_compiling() or not is_within_accelerated() or not _is_much(layer, args):
        return nn.Module.__call__(layer, *args, **named)
    with _OwnProducts():
        return nn.Module.__call__(layer, *args, **named)


def _is_much(layer: nn.Module, args: Sequence[object]) -> bool:
    if len(args) != 1 or type(args[0]) is not Tensor or args[0].dim() != 2:
        return False
    return args[0].numel() * int(vars(layer)["out_channels"]) >= _MUCH
