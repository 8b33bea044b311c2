"""PyG's linear layers within layers that are accelerated: by vgraph's products, where there is much to multiply.

Takes: PyG's class of them. Gives: the same, which chooses. Installed once per process; runs at every call.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vgraph.compat.pyg.askers import is_within_accelerated
from vgraph.compat.pyg.own_products import OwnProducts, is_much


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
    with OwnProducts():
        return nn.Module.__call__(layer, *args, **named)


def _is_much(layer: nn.Module, args: Sequence[object]) -> bool:
    if len(args) != 1 or type(args[0]) is not Tensor or args[0].dim() != 2:
        return False
    return is_much(args[0], int(vars(layer)["out_channels"]))
