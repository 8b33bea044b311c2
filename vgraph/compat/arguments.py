"""``dgl.utils``: what layers written outside of DGL import to read their arguments.

Takes: features and graphs. Gives: pairs, tensors. Runs at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

import vgraph
from vgraph.errors import FeatureError


def expand_as_pair(input_: Any, g: vgraph.Graph | None = None) -> tuple[Any, Any]:
    """Features of sources and of destinations: a pair as it is, else the same twice.

    In a block the destinations are the first of the sources; in a dict, type by type.

    >>> import torch
    >>> x = torch.ones(2)
    >>> expand_as_pair(x)[0] is expand_as_pair(x)[1]
    True
    """
    if isinstance(input_, tuple):
        return input_
    if g is not None and g.is_block:
        if isinstance(input_, Mapping):
            return input_, {t: rows[: g.num_dst_nodes(t)] for t, rows in input_.items()}
        return input_, input_[: g.num_dst_nodes()]
    return input_, input_


def check_eq_shape(input_: object) -> None:
    """FeatureError: features of sources and destinations differ in width."""
    source, destination = expand_as_pair(input_)
    if source.shape[1:] != destination.shape[1:]:
        fact = f"sources have rows of {tuple(source.shape[1:])}, destinations of {tuple(destination.shape[1:])}"
        raise FeatureError(fact, cure="give both the same")


def to_dgl_context(ctx: torch.device | str | int) -> torch.device:
    """A device."""
    return torch.device(ctx)


def toindex(data: object, dtype: str = "int64") -> Tensor:
    """Ids as a tensor."""
    return torch.as_tensor(data, dtype=getattr(torch, dtype)).reshape(-1)


def apply_each(data: object, fn: Callable[..., object], *args: object, **kwargs: object) -> Any:
    """A function of every tensor in a nest of lists, tuples and dicts."""
    if isinstance(data, Mapping):
        return {key: apply_each(value, fn, *args, **kwargs) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        found = [apply_each(value, fn, *args, **kwargs) for value in data]
        return found if isinstance(data, list) else tuple(found)
    return fn(data, *args, **kwargs)
