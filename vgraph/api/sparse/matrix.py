"""SparseMatrix: what can be done with one, as its methods and operators.

Takes: matrices, dense tensors, scalars. Gives: matrices and dense tensors, with gradients of values. Runs at every
call. Source: DGL 1.1, ``dgl.sparse`` (names and meanings).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, overload

import numpy as np
import torch
from torch import Tensor

from vgraph.api.messages.segments import softmax_segments
from vgraph.api.sparse.entries import check_single, common, divided, merged, united
from vgraph.api.sparse.formats import Formats
from vgraph.api.sparse.given import DIM, REDUCTION
from vgraph.api.sparse.pattern import Pattern
from vgraph.api.sparse.products import sampled_dense, times_dense, times_sparse
from vgraph.api.sparse.reductions import reduce_rows, reduce_values
from vgraph.api.sparse.selection import draw_in_rows, select_rows, without_empty_rows
from vgraph.arguments import COUNT, MOST, Bound, checked
from vgraph.errors import FeatureError, FunctionError
from vgraph.graphs.frame import resolve_ids
from vgraph.graphs.given import TENSOR

if TYPE_CHECKING:
    from typing_extensions import Self

Scalar = int | float | Tensor
_AS_PRODUCT = (
    "A @ x is the product of matrices, and vgraph.sparse.sp_mul_v(A, v) broadcasts a vector; x and v are tensors"
)


class SparseMatrix(Formats):
    """A matrix of which the entries alone are stored, each a number or a row of numbers that may have gradients.

    Entries stand in any order, several perhaps at one place. ``A @ B``, ``A + B``, ``A - B``, ``A * B``, ``A / B``,
    ``A ** 2`` and ``-A`` are what they are of matrices; ``*`` and ``/`` are elementwise and take numbers as well.
    Products with dense tensors run as fused message passing. ``torch.mm``, ``torch.matmul`` and ``torch.sparse.mm``
    take it, too. ``vgraph.sparse.spmatrix`` makes one.

    Raises:
        FeatureError: there is not one value an entry, or it is elsewhere than the places.

    Source: DGL 1.1, ``dgl.sparse.SparseMatrix``.

    Example:
        >>> import torch, vgraph.sparse
        >>> A = vgraph.sparse.spmatrix(torch.tensor([[0, 0, 1], [0, 2, 1]]), torch.tensor([1.0, 2.0, 3.0]), (2, 3))
        >>> A @ torch.ones(3)
        tensor([3., 3.])
        >>> A.softmax().val
        tensor([0.2689, 0.7311, 1.0000])
    """

    __array_ufunc__ = None  # else NumPy's arrays would take a matrix for a number, and give an array of matrices

    # ------------------------------------------------------------ arithmetic
    def __add__(self, other: SparseMatrix) -> Self:
        return self._combined(united, other)

    def __sub__(self, other: SparseMatrix) -> Self:
        if not isinstance(other, SparseMatrix):  # pyright: ignore[reportUnnecessaryIsInstance]
            return self._combined(united, other)
        return self + -other

    def __mul__(self, other: SparseMatrix | Scalar) -> Self:
        if is_scalar(other):
            return self._with(self.val * other)
        return self._combined(common, other)

    def __rmul__(self, other: Scalar) -> Self:
        return self * other

    def __truediv__(self, other: SparseMatrix | Scalar) -> Self:
        if is_scalar(other):
            return self._with(self.val / other)
        return self._combined(divided, other)

    def __pow__(self, exponent: Scalar) -> Self:
        if not is_scalar(exponent):
            return NotImplemented
        return self._with(self.val**exponent)

    def __neg__(self) -> Self:
        return self._with(-self.val)

    def _combined(self, how: Callable[..., tuple[Pattern, Tensor]], other: object) -> Self:
        if isinstance(other, np.ndarray):
            raise FeatureError(f"a matrix {self.shape} and an array {other.shape}", cure=_AS_PRODUCT)
        if not isinstance(other, SparseMatrix):
            return NotImplemented
        pattern, value = how(self._pattern, self.val, other._pattern, other.val)
        return self._with(value, pattern)

    def neg(self) -> Self:
        """The matrix with every value negated, ``-A``.

        Returns:
            A matrix with entries at the same places.
        """
        return -self

    def inv(self) -> Self:
        """The inverse of a square diagonal matrix.

        Returns:
            A diagonal matrix.

        Raises:
            FunctionError: the matrix was not made by ``diag`` or ``identity``, or is not square.
        """
        if not self.is_diag() or self.shape[0] != self.shape[1]:
            raise FunctionError(f"the matrix {self.shape} is not a square diagonal one", cure="invert to_dense()")
        return self._with(1 / self.val)

    def is_diag(self) -> bool:
        """Whether the matrix was made as a diagonal one.

        Returns:
            True of ``diag``, ``identity``, and of what keeps their places.
        """
        return self._pattern.is_diagonal

    # ------------------------------------------------------------ places
    def transpose(self) -> Self:
        """The matrix with rows and columns exchanged; also ``t()`` and ``T``.

        Returns:
            A matrix (columns, rows) with the same values.
        """
        return self._with(self.val, self._pattern.transposed)

    def t(self) -> Self:
        """The same as ``transpose``.

        Returns:
            A matrix (columns, rows) with the same values.
        """
        return self.transpose()

    @property
    def T(self) -> Self:
        """The matrix with rows and columns exchanged."""
        return self.transpose()

    def coalesce(self) -> Self:
        """The matrix with entries row by row in ascending columns, those at one place added.

        Returns:
            A matrix; this one, where its entries stand so already.
        """
        pattern, value = merged(self._pattern, self.val)
        return self if pattern is self._pattern else self._with(value, pattern)

    def has_duplicate(self) -> bool:
        """Whether several entries stand at one place.

        Returns:
            True if so.
        """
        return self._pattern.has_duplicate

    # ------------------------------------------------------------ products
    @overload
    def __matmul__(self, other: Tensor) -> Tensor: ...
    @overload
    def __matmul__(self, other: SparseMatrix) -> Self: ...
    def __matmul__(self, other: Tensor | SparseMatrix) -> Tensor | Self:
        if isinstance(other, Tensor):
            return times_dense(self._pattern, self.val, other)
        if not isinstance(other, SparseMatrix):  # pyright: ignore[reportUnnecessaryIsInstance]
            return self._combined(times_sparse, other)
        if self.shape[1] != other.shape[0] or self.val.dim() + other.val.dim() > 2:
            fact = f"matrices {self.shape} and {other.shape} with {self.val.dim() - 1} and {other.val.dim() - 1} dims"
            raise FeatureError(f"{fact} an entry", cure="multiply (l, m) by (m, n), with a number an entry")
        check_single(self._pattern)
        check_single(other._pattern)
        pattern, value = times_sparse(self._pattern, self.val, other._pattern, other.val)
        return self._with(value, pattern)

    @checked(left=TENSOR, right=TENSOR)
    def sddmm(self, left: Tensor, right: Tensor) -> Self:
        """The entries of ``A * (left @ right)``: only products at the places of entries are computed.

        Args:
            left: (rows, n), or (rows,) for an outer product; (rows, n, k) for k numbers an entry.
            right: (n, columns), or (columns,); (n, columns, k).

        Returns:
            A matrix with entries at the same places.

        Raises:
            FeatureError: the shapes do not fit.
            DTypeError: the dtypes are not one.
        """
        return self._with(sampled_dense(self._pattern, self.val, left, right))

    # ------------------------------------------------------------ along rows and columns
    @checked(dim=DIM)
    def softmax(self, dim: int = 1) -> Self:
        """The softmax of the values over the entries of every row, or of every column.

        Args:
            dim: 1: over the entries of a row; 0: of a column.

        Returns:
            A matrix with entries at the same places; zeros take no part.

        Raises:
            FunctionError: ``dim`` is neither 0 nor 1.
        """
        return self._with(softmax_segments(self._along(dim).topology, self.val))

    @checked(dim=DIM.or_none(), rtype=REDUCTION)
    def reduce(self, dim: int | None = None, rtype: str = "sum") -> Tensor:
        """Reduces the values of every row, of every column, or all.

        Args:
            dim: 1: the entries of every row become one; 0: those of every column; None: all.
            rtype: "sum", "smin", "smax", "smean" or "sprod"; entries alone count, not the zeros between them.

        Returns:
            (rows, ...), (columns, ...) or (...), as an entry; 0 where there is no entry.

        Raises:
            FunctionError: ``dim`` or ``rtype`` is something else.
        """
        if dim is None:
            return reduce_values(self.val, rtype)
        return reduce_rows(self._along(dim), self.val, rtype)

    def sum(self, dim: int | None = None) -> Tensor:
        """The sum of every row, of every column, or of all.

        Args:
            dim: 1, 0 or None, as in ``reduce``.

        Returns:
            ``reduce(dim, "sum")``.
        """
        return self.reduce(dim, "sum")

    def smin(self, dim: int | None = None) -> Tensor:
        """The least entry of every row, of every column, or of all.

        Args:
            dim: 1, 0 or None, as in ``reduce``.

        Returns:
            ``reduce(dim, "smin")``.
        """
        return self.reduce(dim, "smin")

    def smax(self, dim: int | None = None) -> Tensor:
        """The largest entry of every row, of every column, or of all.

        Args:
            dim: 1, 0 or None, as in ``reduce``.

        Returns:
            ``reduce(dim, "smax")``.
        """
        return self.reduce(dim, "smax")

    def smean(self, dim: int | None = None) -> Tensor:
        """The mean of the entries of every row, of every column, or of all.

        Args:
            dim: 1, 0 or None, as in ``reduce``.

        Returns:
            ``reduce(dim, "smean")``.
        """
        return self.reduce(dim, "smean")

    def sprod(self, dim: int | None = None) -> Tensor:
        """The product of the entries of every row, of every column, or of all.

        Args:
            dim: 1, 0 or None, as in ``reduce``.

        Returns:
            ``reduce(dim, "sprod")``.
        """
        return self.reduce(dim, "sprod")

    def _along(self, dim: int) -> Pattern:
        """The pattern whose rows are reduced: this one, or its transpose."""
        return self._pattern if dim == 1 else self._pattern.transposed

    # ------------------------------------------------------------ parts
    @checked(dim=DIM)
    def index_select(self, dim: int, index: object) -> Self:
        """Some rows or columns.

        Args:
            dim: 0: rows; 1: columns.
            index: int64 ids (k,), in any order, also several times.

        Returns:
            A matrix of k rows or columns, with the gradient of the values that it has.

        Raises:
            FunctionError: ``dim`` is neither 0 nor 1, or ``index`` is no tensor.
            GraphError: an id is out of range.
        """
        if not isinstance(index, Tensor):
            raise FunctionError(f"index is a {type(index).__name__}", cure="give a tensor of ids")
        return self._part(dim, *select_rows(self._facing(dim), index))

    @checked(dim=DIM)
    def range_select(self, dim: int, index: object) -> Self:
        """A range of rows or columns.

        Args:
            dim: 0: rows; 1: columns.
            index: ``slice(start, stop)``.

        Returns:
            A matrix of the rows or columns in that range.

        Raises:
            FunctionError: ``dim`` is neither 0 nor 1, or ``index`` is no slice, or has a step.
            DTypeError: a bound is no whole number.
        """
        if not isinstance(index, slice) or index.step not in (None, 1):
            raise FunctionError(f"index is {index!r}", cure="give slice(start, stop)")
        kind = "column" if dim else "row"
        return self.index_select(dim, resolve_ids(index, self.shape[dim], self.device, kind))

    @checked(dim=DIM, fanout=COUNT, ids=TENSOR.or_none())
    def sample(
        self, dim: int, fanout: int, ids: Tensor | None = None, replace: bool = False, bias: bool = False
    ) -> Self:
        """Draws entries of every row or column.

        Args:
            dim: 0: of rows; 1: of columns.
            fanout: how many entries of each; all, where there are no more and ``replace`` is False.
            ids: int64 ids (k,) of rows or columns to draw from; None: all.
            replace: an entry may be drawn several times.
            bias: draw in proportion to the values.

        Returns:
            A matrix of k rows or columns. ``vgraph.seed`` makes draws the same again.

        Raises:
            FunctionError: ``dim`` is neither 0 nor 1.
            ArgumentError: the fanout is no whole number, 0 or more.
            FeatureError: ``bias``, and values are no single numbers from 0 up.
            GraphError: an id is out of range.
            DeviceError: the matrix is not on the CPU.
        """
        weights = self.val if bias else None
        return self._part(dim, *draw_in_rows(self._facing(dim), weights, fanout, ids, replace=replace))

    @checked(dim=DIM)
    def compact(self, dim: int, leading_indices: Tensor | None = None) -> tuple[Self, Tensor]:
        """Leaves out rows or columns without entries, and numbers the others anew.

        Args:
            dim: 0: rows; 1: columns.
            leading_indices: ids that come first and stay, also without entries; others keep their order.

        Returns:
            The matrix, and the former id of each of its rows or columns, int64.

        Raises:
            FunctionError: ``dim`` is neither 0 nor 1.
            GraphError: an id is out of range.
        """
        pattern, former = without_empty_rows(self._facing(dim), leading_indices)
        return self._with(self.val, pattern if dim == 0 else pattern.transposed), former

    def _facing(self, dim: int) -> Pattern:
        return self._along(1 - dim)

    def _part(self, dim: int, pattern: Pattern, entries: Tensor) -> Self:
        return self._with(self.val[entries], pattern if dim == 0 else pattern.transposed)

    # ------------------------------------------------------------ torch's functions of matrices
    @classmethod
    def __torch_function__(
        cls, func: object, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, object] | None = None
    ) -> Any:
        if func not in _TAKEN or len(args) != 2 or kwargs:
            return NotImplemented
        left, right = args
        if func in (torch.mul, Tensor.mul):
            matrix, other = (left, right) if isinstance(left, SparseMatrix) else (right, left)
            if isinstance(other, Tensor) and not is_scalar(other):  # which Python would hand to and fro
                fact = f"a matrix {matrix.shape} times a tensor {tuple(other.shape)}, number by number"
                raise FeatureError(fact, cure=_AS_PRODUCT)
            return matrix * other
        if isinstance(left, SparseMatrix):
            return left @ right
        return (right.transpose() @ left.transpose(-1, 0)).transpose(-1, 0)


_TAKEN = (torch.mul, Tensor.mul, torch.mm, Tensor.mm, torch.matmul, Tensor.matmul, Tensor.__rmatmul__, torch.sparse.mm)


def is_scalar(value: object) -> TypeGuard[Scalar]:
    """Whether a value scales a matrix: a number, or a tensor of no dims."""
    return isinstance(value, (int, float, np.number)) or (isinstance(value, Tensor) and value.dim() == 0)


MATRIX = Bound("a vgraph.sparse.SparseMatrix", lambda given: isinstance(given, SparseMatrix), FunctionError)
SCALAR = Bound(
    "a number", lambda given: is_scalar(given) and not (isinstance(given, int) and abs(given) > MOST), FunctionError
)
