"""Fake results: what an operator gives for fake tensors, of which torch is asked once for all that look alike.

Takes: an operator and its arguments, while a step is recorded. Gives: what torch's FakeTensorMode gives. Runs at every
operator of a step; layers repeat, so most operators have run before on tensors of the same look.
Source: the cache of FakeTensorMode itself, of which a result takes four to five times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from vgraph.capture.record.aliases import bare_all, storage_key
from vgraph.capture.record.op_tables import Kwargs, Overload

# Arguments that are no tensors: their type and their value are all that a result can depend on.
_CONSTANTS = frozenset(
    {bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)
_DEVICE = torch.ops.prim.device.default
_CPU = torch.device("cpu")
# Within it no mode sees what is called: a tensor made on the meta device is a plain one.
_NoModes: Callable[[], AbstractContextManager[None]] = torch._C._DisableTorchDispatch  # pyright: ignore
_META = torch.device("meta")
_refuse_pointers: Callable[[Tensor], None] = torch._C._set_throw_on_mutable_data_ptr  # pyright: ignore


@dataclass(frozen=True, eq=False)
class FakeResult:
    """A tensor that an operator gives.

    ``given``: it is this one of the tensors among the arguments; ``viewed``: it lies in the memory of this one.
    """

    given: int | None
    viewed: int | None
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # in its memory
    dtype: torch.dtype
    device: torch.device

    @property
    def is_new(self) -> bool:
        return self.given is None and self.viewed is None

    @staticmethod
    def is_dense(tensor: Tensor) -> bool:
        """Whether such a tensor fills its memory."""
        return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.itemsize


@dataclass(frozen=True, eq=False)
class Results:
    """All that an operator gives; None is a tensor that it leaves out."""

    items: tuple[FakeResult | None, ...]
    collect: Callable[[list[Tensor | None]], object]


class FakeResults:
    """Runs operators on the fake tensors of its mode."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._attributes: dict[torch.device, dict[str, object]] = {}
        self._known: dict[tuple[object, ...], Results | None] = {}  # None: torch is asked every time

    def stand_in(self, tensor: Tensor) -> Tensor:
        """A fake tensor of the same shape, strides and dtype, which says that it is on the CPU."""
        with _NoModes():
            made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=_META)
        return self._fake(made, _CPU)

    def run(self, func: Overload, args: Sequence[object], kwargs: Kwargs) -> object:
        """What ``func(*args, **kwargs)`` gives."""
        tensors: list[Tensor] = []
        key = self.key(func, args, kwargs, tensors)
        if key is None:
            return func(*bare_all(args), **{name: bare_all(item) for name, item in kwargs.items()})
        if key not in self._known:
            memories = memories_of(tensors)
            out = func(*args, **kwargs)
            # unsqueeze_, set_ and their kind change what they are given
            is_as_it_was = self.key(func, args, kwargs, []) == key and memories_of(tensors) == memories
            self._known[key] = results_of(out, tensors, memories) if is_as_it_was else None
            return out
        known = self._known[key]
        if known is None:
            return func(*args, **kwargs)
        return known.collect(self.make(known, tensors))

    def make(self, results: Results, tensors: Sequence[Tensor]) -> list[Tensor | None]:
        """Such results of an operator on these tensors, one by one."""
        return [None if item is None else self._make(item, tensors) for item in results.items]

    def ask(self, func: Overload, args: Sequence[object], kwargs: Kwargs) -> object:
        """What a tensor says of itself: of its device, for which torch asks all the time, without its mode."""
        if func is _DEVICE and not self.mode.in_kernel_invocation:
            (tensor,) = args
            if type(tensor) is FakeTensor:
                return tensor.fake_device
        return func(*args, **kwargs)

    def key(
        self, func: Overload, args: Sequence[object], kwargs: Kwargs, tensors: list[Tensor]
    ) -> tuple[object, ...] | None:
        """All that the look of the results depends on; None if that is not known, or no tensor is among the arguments.

        ``tensors`` takes those of the arguments.
        """
        key: list[object] = [id(func), torch.get_default_dtype(), torch.is_inference_mode_enabled(), *kwargs]
        is_known = self._describe(args, key, tensors) and self._describe(kwargs.values(), key, tensors)
        return tuple(key) if is_known and tensors else None

    def _describe(self, items: Iterable[object], key: list[object], tensors: list[Tensor]) -> bool:
        """Adds the looks of arguments to a key; whether they tell all about them."""
        for item in items:
            kind = type(item)
            if type(item) is FakeTensor:
                if item.constant is not None or item.layout != torch.strided or item.fake_mode is not self.mode:
                    return False
                key += (item.shape, item.stride(), item.storage_offset(), item.dtype, item.fake_device)
                key += (item.is_neg(), item.is_conj())
                tensors.append(item)
            elif kind in _CONSTANTS:
                key += (kind, repr(item) if item == 0 or kind is complex else item)  # 0.0 equals -0.0
            elif isinstance(item, (list, tuple)) and kind in (list, tuple):
                key += (kind, len(item))
                if not self._describe(item, key, tensors):
                    return False
            else:
                return False
        return True

    def _make(self, result: FakeResult, tensors: Sequence[Tensor]) -> Tensor:
        if result.given is not None:
            return tensors[result.given]
        with _NoModes():
            made = torch.empty_strided(result.shape, result.stride, dtype=result.dtype, device=_META)
            if result.viewed is not None:
                memory = tensors[result.viewed].untyped_storage()
                made.set_(memory, result.offset, result.shape, result.stride)
        return self._fake(made, result.device)

    def _fake(self, meta: Tensor, device: torch.device) -> Tensor:
        """``FakeTensor(self.mode, meta, device)``, whose attributes are found once a device: a fifth of its time."""
        known = self._attributes.get(device)
        if known is None:
            made = FakeTensor(self.mode, meta, device)
            self._attributes[device] = vars(made).copy()
            return made
        made = Tensor._make_subclass(FakeTensor, meta, False, dispatch_device=True, device_for_backend_keys=device)
        _refuse_pointers(made)
        vars(made).update(known)
        return made


def memories_of(tensors: Sequence[Tensor]) -> list[object]:
    """Equal for tensors of one memory."""
    return [storage_key(tensor) for tensor in tensors]


def results_of(out: Any, tensors: Sequence[Tensor], memories: Sequence[object]) -> Results | None:
    """How to make such results again; None where one is no such tensor as ``_make`` gives."""
    found = out if isinstance(out, (tuple, list)) else (out,)
    if not all(tensor is None or _can_be_made(tensor) for tensor in found):
        return None
    items = tuple(None if tensor is None else _result_of(tensor, tensors, memories) for tensor in found)
    own = [storage_key(tensor) for tensor, item in zip(found, items, strict=True) if item and item.is_new]
    if len(set(own)) != len(own):  # they share memory with one another
        return None
    return Results(items, getattr(out, "_make", type(out)) if found is out else _only)


def _can_be_made(tensor: object) -> bool:
    return (
        type(tensor) is FakeTensor
        and tensor.constant is None
        and tensor.layout == torch.strided
        and not (tensor.is_neg() or tensor.is_conj())
    )


def _result_of(tensor: FakeTensor, tensors: Sequence[Tensor], memories: Sequence[object]) -> FakeResult:
    given = next((i for i, one in enumerate(tensors) if one is tensor), None)
    memory = storage_key(tensor)
    viewed = memories.index(memory) if memory in memories else None
    shape, stride = tuple(tensor.shape), tensor.stride()
    return FakeResult(given, viewed, shape, stride, int(tensor.storage_offset()), tensor.dtype, tensor.fake_device)


def _only(items: list[Tensor | None]) -> Tensor | None:
    (item,) = items
    return item
