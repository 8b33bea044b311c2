"""Formats: what a sparse matrix is, and every form in which its entries can be had.

Takes: a pattern and values. Gives: index tensors, dense tensors, matrices elsewhere or of another dtype. Runs at every
call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vgraph.api.sparse.given import DTYPE
from vgraph.api.sparse.pattern import Pattern
from vgraph.arguments import checked
from vgraph.errors import FeatureError
from vgraph.graphs.edge_formats import check_device
from vgraph.graphs.given import TENSOR
from vgraph.ir.topology import Compressed

if TYPE_CHECKING:
    from typing_extensions import Self


class Formats:
    """The part of a SparseMatrix that says what it holds."""

    def __init__(self, pattern: Pattern, value: Tensor) -> None:
        if value.dim() not in (1, 2) or value.shape[0] != pattern.num_entries:
            fact = f"values have shape {tuple(value.shape)}, and there are {pattern.num_entries} entries"
            raise FeatureError(fact, cure="give (entries,) or (entries, k)")
        if value.layout != torch.strided:
            raise FeatureError(f"values are laid out as {value.layout}", cure="give a dense tensor of values")
        if value.device != pattern.rows.device:
            fact = f"values are on {value.device}, and places on {pattern.rows.device}"
            raise FeatureError(fact, cure="move one of them to the device of the other")
        self._pattern, self._value = pattern, value

    def __repr__(self) -> str:
        lead = "SparseMatrix("
        told = [
            f"indices={_indented(str(self.indices()), len(lead) + len('indices='))}",
            f"values={_indented(str(self.val), len(lead) + len('values='))}",
            f"shape={self.shape}, nnz={self.nnz}",
        ]
        size = f", val_size={tuple(self.val.shape[1:])}" if self.val.dim() > 1 else ""
        return lead + (",\n" + " " * len(lead)).join(told) + size + ")"

    # ------------------------------------------------------------ what it holds
    @property
    def val(self) -> Tensor:
        """The values, (entries,) or (entries, k), in the order of ``indices``."""
        return self._value

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of columns."""
        return self._pattern.shape

    @property
    def nnz(self) -> int:
        """The number of entries."""
        return self._pattern.num_entries

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the values."""
        return self._value.dtype

    @property
    def device(self) -> torch.device:
        """Where the matrix is."""
        return self._value.device

    @property
    def row(self) -> Tensor:
        """The row of every entry, (entries,)."""
        return self.indices()[0]

    @property
    def col(self) -> Tensor:
        """The column of every entry, (entries,)."""
        return self.indices()[1]

    # ------------------------------------------------------------ formats
    def coo(self) -> tuple[Tensor, Tensor]:
        """Where the entries stand.

        Returns:
            Their rows and their columns, (entries,) each.
        """
        return self.row, self.col

    def indices(self) -> Tensor:
        """Where the entries stand, as one tensor.

        Returns:
            Rows and columns, (2, entries).
        """
        return self._pattern.indices

    def csr(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The entries row by row (compressed sparse rows).

        Returns:
            Where each row begins (rows + 1,), columns (entries,), and the place in ``val`` of each, (entries,); None
            where they stand in this order already.
        """
        return _parts_of(self._pattern.csr)

    def csc(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The entries column by column (compressed sparse columns).

        Returns:
            Where each column begins (columns + 1,), rows (entries,), and the place in ``val`` of each, (entries,); None
            where they stand in this order already.
        """
        return _parts_of(self._pattern.csc)

    def to_dense(self) -> Tensor:
        """The matrix with its zeros; entries at one place are added.

        Returns:
            (rows, columns), or (rows, columns, k) for k numbers an entry.
        """
        made = self.val.new_zeros((*self.shape, *self.val.shape[1:]))
        return made.index_put((self._pattern.rows.long(), self._pattern.cols.long()), self.val, accumulate=True)

    # ------------------------------------------------------------ the same elsewhere
    @checked(val=TENSOR)
    def with_values(self, val: Tensor) -> Self:
        """A matrix with entries at the same places, and other values.

        Args:
            val: (entries,) or (entries, k), in the order of ``indices``.

        Returns:
            A matrix that shares what is known of the places.

        Raises:
            FeatureError: there is not one value an entry, or it is on another device.
        """
        return self._with(val)

    def _with(self, value: Tensor, pattern: Pattern | None = None) -> Self:
        return type(self)(self._pattern if pattern is None else pattern, value)

    @checked(dtype=DTYPE.or_none())
    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """The matrix on another device, or with values of another dtype.

        Args:
            device: where to; None: it stays.
            dtype: that of the values; None: it stays.

        Returns:
            A matrix; this one, where nothing changes.

        Raises:
            DeviceError: there is no such device here.
        """
        if device is not None:
            check_device(device, "the matrix")
        value = self.val.to(device=device, dtype=dtype)
        if value is self.val:
            return self
        if value.device == self.device:
            return self._with(value)
        where = self._pattern
        moved = where.topology.stored(where.cols.to(value.device), where.rows.to(value.device))
        return self._with(value, Pattern(moved, is_diagonal=where.is_diagonal))

    def cuda(self) -> Self:
        """The matrix on the GPU.

        Returns:
            ``to(device="cuda")``.
        """
        return self.to(device="cuda")

    def cpu(self) -> Self:
        """The matrix on the CPU.

        Returns:
            ``to(device="cpu")``.
        """
        return self.to(device="cpu")

    def float(self) -> Self:
        """The matrix with float32 values.

        Returns:
            ``to(dtype=torch.float)``.
        """
        return self.to(dtype=torch.float)

    def double(self) -> Self:
        """The matrix with float64 values.

        Returns:
            ``to(dtype=torch.double)``.
        """
        return self.to(dtype=torch.double)

    def int(self) -> Self:
        """The matrix with int32 values.

        Returns:
            ``to(dtype=torch.int)``.
        """
        return self.to(dtype=torch.int)

    def long(self) -> Self:
        """The matrix with int64 values.

        Returns:
            ``to(dtype=torch.long)``.
        """
        return self.to(dtype=torch.long)


def _indented(text: str, by: int) -> str:
    return text.replace("\n", "\n" + " " * by)


def _parts_of(lists: Compressed) -> tuple[Tensor, Tensor, Tensor | None]:
    return lists.ptr, lists.other, lists.edge_ids
