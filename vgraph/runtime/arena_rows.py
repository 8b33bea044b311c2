"""Arena rows: the values of one call that lie in its arena, as tensors where somebody wants one.

Takes: values, a MemoryPlan, a buffer. Gives: tensors and addresses by id. Runs at every step.
Source: Cavs section 3.3 (dynamic tensors): a loop needs where a value lies, and no tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vgraph.ir.memory import MemoryPlan
from vgraph.ir.program import Rows, Value


class Form(NamedTuple):
    """What all tensors of a value have in common: ``strides`` of a row's dims; several entries a row are one dim."""

    dtype: torch.dtype
    row_shape: tuple[int, ...]
    strides: tuple[int, ...]
    times: int
    dim: int


def forms_of(values: Sequence[Value]) -> dict[int, Form]:
    """Once a function."""
    return {value.id: _form(value) for value in values}


def _form(value: Value) -> Form:
    strides, step = list[int](), 1
    for size in reversed(value.row_shape):
        strides.append(step)
        step *= size
    dim = value.row_dim
    assert dim is not None
    rows = value.shape[dim]
    assert isinstance(rows, Rows)
    return Form(value.dtype, value.row_shape, (step, *strides[::-1]), rows.times, dim)


class ArenaRows(Mapping[int, Tensor]):
    """``buffer``, uint8, holds what a plan says of the values whose ``forms`` are given."""

    def __init__(self, forms: Mapping[int, Form], plan: MemoryPlan, buffer: Tensor) -> None:
        self.forms, self.plan, self.buffer, self.start = forms, plan, buffer, buffer.data_ptr()
        self._made, self._typed = dict[int, Tensor](), dict[torch.dtype, Tensor]()

    def address(self, value_id: int) -> int:
        """Of the first row."""
        return self.start + self.plan.offsets[value_id]

    def __getitem__(self, value_id: int) -> Tensor:
        found = self._made.get(value_id)
        if found is None:
            found = self._made[value_id] = self._make(value_id, self.forms[value_id])
        return found

    def _make(self, value_id: int, form: Form) -> Tensor:
        typed = self._typed.get(form.dtype)
        if typed is None:
            typed = self._typed[form.dtype] = self.buffer.view(form.dtype)
        start = typed.storage_offset() + self.plan.offsets[value_id] // form.dtype.itemsize
        made = typed.as_strided((self.plan.rows[value_id], *form.row_shape), form.strides, start)
        if form.times != 1:
            made = made.flatten(0, 1)
        return made.movedim(0, form.dim) if form.dim else made

    def __contains__(self, value_id: object) -> bool:
        return value_id in self.forms

    def __iter__(self) -> Iterator[int]:
        return iter(self.forms)

    def __len__(self) -> int:
        return len(self.forms)


class CallValues(dict[int, Tensor]):
    """Values of one call by id; those that loops made are found in the arena."""

    def __init__(self, known: Mapping[int, Tensor], arena: ArenaRows) -> None:
        super().__init__(known)
        self.arena = arena

    def __missing__(self, value_id: int) -> Tensor:
        return self.arena[value_id]
