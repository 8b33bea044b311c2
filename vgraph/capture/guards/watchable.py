"""Watchable: the kinds of values of which guards know what may change in them.

Takes: values and their types. Gives: how to watch them. Runs once per function.
A kind that is not listed here, and is not the user's own class, cannot be watched.
"""

from __future__ import annotations

import abc
import argparse
import array
import collections
import collections.abc
import contextlib
import datetime
import decimal
import enum
import fractions
import pathlib
import re
import types
import typing
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from vgraph.capture.guards.purity import LIBRARIES, library_of

if TYPE_CHECKING:
    from typing_extensions import TypeIs

_T = TypeVar("_T")
NUMBERS = frozenset({int, float, complex})
SINGLES = frozenset({type(None), bool, torch.dtype})  # of which each is there once
CONSTANTS = frozenset({*SINGLES, str, bytes, range, torch.device, torch.Size})
CONTAINERS = frozenset(
    {tuple, list, dict, set, frozenset, collections.deque, collections.OrderedDict, collections.defaultdict}
    | {collections.Counter, types.MappingProxyType}
)
# Never change, and are equal where they mean the same.
SAME = (
    decimal.Decimal, fractions.Fraction, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo,
    pathlib.PurePath, uuid.UUID, array.array, bytearray, types.GenericAlias, types.UnionType, np.dtype,
    torch.finfo, torch.iinfo, types.MethodWrapperType, types.ClassMethodDescriptorType,
)  # fmt: skip
SNAPSHOTS: dict[type, Callable[[Any], object]] = {array.array: lambda it: it[:], bytearray: bytes}


class _Pair(typing.NamedTuple):
    first: int


_FIELD: Any = vars(_Pair)["first"].__class__
_OF_TYPING: Any = (
    type(typing.ClassVar), type(typing.ClassVar[int]), type(typing.Generator), type(typing.Callable),
)  # fmt: skip
# Never change, or say nothing about what a function computes.
FIXED = (
    re.Pattern, torch.layout, torch.memory_format, np.ufunc, type(np.prod), types.CodeType,
    types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.DynamicClassAttribute, property, types.EllipsisType, types.NotImplementedType,
    typing.TypeVar, _FIELD, *_OF_TYPING, type(torch.ops.aten.add), type(torch.ops.aten.add.Tensor),
    torch.no_grad, torch.enable_grad, torch.set_grad_enabled, torch.inference_mode, torch.autocast,
    RemovableHandle,
)  # fmt: skip
# What code may read of a logger, which else says nothing about what a function computes.
OF_LOGGERS = frozenset(
    "level isEnabledFor getEffectiveLevel disabled handlers hasHandlers filters propagate parent manager".split()
)
# Classes of libraries that keep nothing but the attributes of their instances.
_IN_THE_OPEN = frozenset(
    {*argparse.Namespace.__mro__[:-1], types.SimpleNamespace, collections.ChainMap}
    | {collections.UserDict, collections.UserList, collections.UserString}
)
# Classes of libraries that keep nothing at all, or what a visit of containers sees.
_WITHOUT_STATE = frozenset(
    {object, abc.ABC, typing.Generic, typing.Protocol, contextlib.AbstractContextManager, contextlib.ContextDecorator}
    | {enum.Enum, enum.IntEnum, enum.Flag, enum.IntFlag, torch.autograd.Function, torch.Size}
    | {thing for thing in vars(collections.abc).values() if isinstance(thing, type)}
)

_LAYERS = ("torch.nn.", "vgraph.nn.")

# What else code may ask of a tensor than its shape and dtype.
FACTS_OF_TENSORS = {
    **{
        name: f"{{}}.{name}()"
        for name in "stride is_contiguous storage_offset is_conj is_neg is_pinned is_inference".split()
    },
    **{name: f"{{}}.{name}" for name in "layout is_sparse is_leaf is_quantized is_mkldnn _version".split()},
    **{name: f"{{}}.{name} is None" for name in "grad grad_fn _base _backward_hooks".split()},
}
NAMES_OF_THINGS = frozenset({"__name__", "__qualname__", "__doc__"})
OF_AUTOGRAD = frozenset({"is_leaf", "_version", "grad", "grad_fn", "_base", "_backward_hooks"})


def is_of(thing: object, kinds: type[_T] | tuple[type[_T], ...]) -> TypeIs[_T]:
    """``isinstance`` by the class alone: what is of none of the kinds is not asked for its ``__class__``.

    To answer may run code of the program's, as objects do that stand for another, and a dead weak proxy raises.
    """
    return issubclass(type(thing), kinds)


def is_library(thing: object) -> bool:
    """Whether a class or a function is of a library, by its module."""
    module: object = getattr(thing, "__module__", None)
    return not isinstance(module, str) or library_of(module) in LIBRARIES


def is_open(kind: type) -> bool:
    """Whether the class is a library's, and all that its instances hold lies in their attributes."""
    return kind in _IN_THE_OPEN


def is_watched_class(kind: type) -> bool:
    """Whether the class is of torch's or vgraph's layers, whose code is watched like a user's."""
    is_vgraphs = library_of(kind.__module__) == "vgraph" and issubclass(kind, nn.Module)
    return is_vgraphs or kind.__module__.startswith(_LAYERS)


def hides_nothing(kind: type) -> bool:
    """Whether all that instances of the class hold can be seen: no base of it is a library's that keeps more."""
    known = _WITHOUT_STATE | CONTAINERS | _IN_THE_OPEN
    return all(
        base in known or is_watched_class(base) or not (is_library(base) or _is_of_c(base)) for base in kind.__mro__
    )


def _is_of_c(kind: type) -> bool:
    """Whether the class is written in C, where it may keep what nobody sees."""
    of_c = (types.MethodDescriptorType, types.WrapperDescriptorType)
    return any(is_of(f, of_c) and f.__objclass__ is kind for f in kind.__dict__.values())


def hashes_itself(kind: type) -> bool:
    """Whether a class has a hash, or none, by its metaclass's own code: it cannot be looked for among others."""
    return type(kind) is not type and type(kind).__hash__ is not type.__hash__


def is_structural(kind: type) -> bool:
    """Whether ``isinstance`` asks things for the attributes that a protocol has."""
    return bool(vars(kind).get("_is_runtime_protocol"))


def is_plain(value: object) -> bool:
    """Whether a key or an item of a set can never change."""
    if is_of(value, tuple):
        return all(is_plain(thing) for thing in value)
    if hashes_itself(type(value)):
        return False
    return type(value) in NUMBERS or type(value) in CONSTANTS or is_of(value, (enum.Enum, type, np.generic))
