"""What is known of tensors, by the tensor itself, and let go with it.

Takes: tensors. Gives: what was kept of each. Asked at every call.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Generic, TypeVar, cast
from weakref import ReferenceType, ref

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

T = TypeVar("T")


class ByTensor(Generic[T]):
    """A dict whose keys are tensors, held weakly and told apart by identity.

    Weak keys of torch's know a tensor again that Python has let go of in between; looking one up takes eight calls.
    Those that Python still holds are found by their ids.
    """

    def __init__(self) -> None:
        self._kept = cast("MutableMapping[Tensor, T]", WeakTensorKeyDictionary())
        self._lately: dict[int, tuple[ReferenceType[Tensor], T]] = {}

    def get(self, tensor: Tensor) -> T | None:
        """What was kept of this tensor."""
        lately = self._lately.get(id(tensor))
        if lately is not None and lately[0]() is tensor:
            return lately[1]
        value = self._kept.get(tensor)
        if value is not None:
            self._note(tensor, value)
        return value

    def __getitem__(self, tensor: Tensor) -> T:
        return self._kept[tensor]

    def __setitem__(self, tensor: Tensor, value: T) -> None:
        self._kept[tensor] = value
        self._note(tensor, value)

    def _note(self, tensor: Tensor, value: T) -> None:
        key, lately = id(tensor), self._lately

        def forget(gone: ReferenceType[Tensor]) -> None:
            held = lately.get(key)
            if held is not None and held[0] is gone:
                del lately[key]

        lately[key] = ref(tensor, forget), value
