"""Sequences of samples, as data sets are: one by its number, some by a slice.

Takes: what makes a sample of a number. Gives: the sequence. Runs once per sample.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar, overload

T = TypeVar("T")


class Samples(Sequence[T]):
    """Negative numbers count from the end; a slice is a list."""

    @abstractmethod
    def _sample(self, index: int) -> T:
        """The sample of a number from 0 to one less than there are."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._sample(range(len(self))[index])
