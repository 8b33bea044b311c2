"""``dgl.utils``: what layers written outside of DGL import to read their arguments.

Takes: features and graphs. Gives: pairs, tensors. Runs at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
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


class Index:
    """Ids as DGL's functions pass them on: given as a list or a tensor, or as a slice.

    Args:
        data: the ids, or a slice with a start and a stop.
        dtype: "int64" or "int32".
    """

    def __init__(self, data: object, dtype: str = "int64") -> None:
        self._slice = data if isinstance(data, slice) else None
        ids = torch.arange(data.start, data.stop) if isinstance(data, slice) else torch.as_tensor(data)
        self._ids = ids.to(getattr(torch, dtype)).reshape(-1)

    def __len__(self) -> int:
        return len(self._ids)

    def __dlpack__(self, **wishes: Any) -> object:
        return self._ids.__dlpack__(**wishes)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._ids.__dlpack_device__()

    def tousertensor(self, ctx: torch.device | str | None = None) -> Tensor:
        """The ids as a tensor."""
        return self._ids.to(ctx)

    def tonumpy(self) -> NDArray[np.generic]:
        """The ids as an array."""
        return self._ids.numpy(force=True)

    def slice_data(self) -> slice | None:
        """The slice that was given; None: ids were."""
        return self._slice

    todgltensor = tousertensor


def toindex(data: object, dtype: str = "int64") -> Index:
    """Ids."""
    return data if isinstance(data, Index) else Index(data, dtype)


class Filter:
    """Ids to be found among others.

    Args:
        ids: the ids, (k,).
    """

    def __init__(self, ids: Tensor) -> None:
        self._ids = ids

    def find_included_indices(self, test: Tensor) -> Tensor:
        """Where ``test``, (n,), has ids of the filter."""
        return torch.isin(test, self._ids).nonzero().squeeze(1).to(test.dtype)

    def find_excluded_indices(self, test: Tensor) -> Tensor:
        """Where ``test``, (n,), has other ids."""
        return torch.isin(test, self._ids, invert=True).nonzero().squeeze(1).to(test.dtype)


def is_sorted_srcdst(
    src: Tensor, dst: Tensor, num_src: int | None = None, num_dst: int | None = None
) -> tuple[bool, bool]:
    """Whether edges stand in order of their sources, and those of each source in order of destinations."""
    by_source = bool((src[1:] >= src[:-1]).all())
    return by_source, by_source and bool(((src[1:] != src[:-1]) | (dst[1:] >= dst[:-1])).all())


def apply_each(data: object, fn: Callable[..., object], *args: object, **kwargs: object) -> Any:
    """A function of every tensor in a nest of lists, tuples and dicts."""
    if isinstance(data, Mapping):
        return {key: apply_each(value, fn, *args, **kwargs) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        found = [apply_each(value, fn, *args, **kwargs) for value in data]
        return found if isinstance(data, list) else tuple(found)
    return fn(data, *args, **kwargs)


recursive_apply = apply_each


def recursive_apply_pair(data1: object, data2: object, fn: Callable[..., object], *args: object) -> object:
    """A function of the tensors of two nests of one form, pair by pair."""
    if isinstance(data1, Mapping) and isinstance(data2, Mapping):
        return {key: recursive_apply_pair(data1[key], data2[key], fn, *args) for key in data1}
    if isinstance(data1, (list, tuple)) and isinstance(data2, (list, tuple)):
        return [recursive_apply_pair(one, other, fn, *args) for one, other in zip(data1, data2, strict=True)]
    return fn(data1, data2, *args)
