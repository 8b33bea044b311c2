"""What is known of tensors, by the tensor itself, and let go with it.

Takes: tensors. Gives: what was kept of each. Asked at every call.
"""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import KeyedRef

from torch import Tensor

T = TypeVar("T")


class ByTensor(Generic[T]):
    """A dict whose keys are tensors, held weakly and told apart by identity.

    A tensor that Python has let go of while torch still had it is the same object when it comes back, and known.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[KeyedRef[int, Tensor], T]] = {}

    def get(self, tensor: Tensor) -> T | None:
        """What was kept of this tensor."""
        found = self._kept.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    def __getitem__(self, tensor: Tensor) -> T:
        return self._kept[id(tensor)][1]

    def __setitem__(self, tensor: Tensor, value: T) -> None:
        key = id(tensor)
        self._kept[key] = KeyedRef(tensor, self._forget, key), value

    def _forget(self, gone: KeyedRef[int, Tensor]) -> None:
        held = self._kept.get(gone.key)
        if held is not None and held[0] is gone:
            del self._kept[gone.key]
