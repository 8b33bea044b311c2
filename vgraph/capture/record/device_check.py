"""One device: what a function reads lies where its graph lies.

Takes: tensors and a device. Gives: nothing, or an error that names both devices. Runs at every call.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vgraph.errors import FeatureError
from vgraph.runtime.in_memory import has_memory

_PLAIN = (Tensor, nn.Parameter)


class ElsewhereError(FeatureError):
    """A tensor lies on another device than the graph."""


def refuse_elsewhere(what: str, tensor: Tensor, device: torch.device | None) -> None:
    """Refuses a tensor that lies elsewhere; single numbers may."""
    if tensor.device != device and tensor.dim():
        fact = f"{what}, of shape {tuple(tensor.shape)}, is on {tensor.device}, the graph on {device}"
        raise ElsewhereError(fact, cure="move model and graph to one device with .to(...)")


def check_devices(function: str, names: Sequence[str], tensors: Sequence[Tensor], device: torch.device) -> None:
    """The same for all inputs of a call, by name."""
    for name, tensor in zip(names, tensors, strict=True):
        if tensor.device != device:
            what = "tensor that it reads" if name.startswith("lifted:") else f"feature {name!r}"
            refuse_elsewhere(f"{function}: a {what}", tensor, device)
        if tensor.layout is not torch.strided and not name.startswith("lifted:"):
            fact = f"{function}: feature {name!r} has the layout {tensor.layout}, without rows in memory"
            raise FeatureError(fact, cure="give it as .to_dense()")
        if type(tensor) not in _PLAIN and not has_memory(tensor):
            what = "a tensor that it reads" if name.startswith("lifted:") else f"feature {name!r}"
            fact = f"{function}: {what} is a {type(tensor).__name__}, which has no memory of its own"
            raise FeatureError(fact, cure="give the plain tensor that it wraps, or stands for")
