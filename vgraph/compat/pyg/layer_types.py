"""What is asked of PyG's layers, so that none of them needs to be there.

Takes: nothing. Gives: protocols. Source: PyG, ``torch_geometric.nn.MessagePassing`` and ``torch_geometric.inspector``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import wraps
from inspect import Parameter
from types import FunctionType
from typing import Protocol

from torch import Tensor

Method = Callable[..., object]
Given = Mapping[str, object]  # keyword arguments
Size = Sequence[int | None]  # how many nodes either end of edges has, where it is known


class Inspector(Protocol):
    """What a layer's functions ask for."""

    def get_param_dict(self, func: str) -> dict[str, Parameter]: ...


class Layer(Protocol):
    """A ``MessagePassing``."""

    inspector: Inspector
    special_args: Collection[str]
    flow: str
    node_dim: int
    fuse: bool
    training: bool
    explain: bool | None
    decomposed_layers: int

    def parameters(self) -> Iterator[Tensor]: ...
    def buffers(self) -> Iterator[Tensor]: ...
    def _check_input(self, edge_index: object, size: object) -> list[int | None]: ...


def is_of_pyg(function: object) -> bool:
    """Whether a function is PyG's own; one that a program has made of text may have no module at all."""
    return module_of(function).startswith("torch_geometric.")


def module_of(function: object) -> str:
    """The name of the module that has a function; "": it has none."""
    return getattr(function, "__module__", None) or ""


def in_place_of(theirs: FunctionType, function: FunctionType) -> Method:
    """``function`` under the name of PyG's, with its signature for those who ask for it.

    torch.jit.script reads the source of PyG's, and looks its names up among the globals of what stands in its place.
    """
    as_theirs = FunctionType(function.__code__, theirs.__globals__, theirs.__name__, None, function.__closure__)
    return wraps(theirs)(as_theirs)
