"""What methods and operators of sparse matrices do, as functions.

Takes: matrices, dense tensors, numbers. Gives: matrices and dense tensors. Runs at every call.
"""

from __future__ import annotations

from torch import Tensor

from vgraph.api.sparse.matrix import MATRIX, SCALAR, Scalar, SparseMatrix
from vgraph.arguments import Bound, checked
from vgraph.errors import FunctionError
from vgraph.graphs.given import TENSOR


def _or_matrix(words: str, other: Bound) -> Bound:
    def accepts(given: object) -> bool:
        return MATRIX.accepts(given) or other.accepts(given)

    return Bound(f"{MATRIX.words} or {words}", accepts, FunctionError)


_FACTOR, _TIMES = _or_matrix("a number", SCALAR), _or_matrix("a tensor", TENSOR)


# ---------------------------------------------------------------- elementwise
@checked(A=MATRIX, B=MATRIX)
def add(A: SparseMatrix, B: SparseMatrix) -> SparseMatrix:
    """The sum of two matrices, ``A + B``.

    Args:
        A: a matrix.
        B: a matrix of the same shape.

    Returns:
        A matrix with entries at the places of either.

    Source: DGL 1.1, ``dgl.sparse.add``.

    Example:
        >>> import vgraph.sparse as sp
        >>> sp.add(sp.identity((2, 2)), sp.identity((2, 2))).val
        tensor([2., 2.])
    """
    return A + B


@checked(A=MATRIX, B=MATRIX)
def sub(A: SparseMatrix, B: SparseMatrix) -> SparseMatrix:
    """The difference of two matrices, ``A - B``.

    Args:
        A: a matrix.
        B: a matrix of the same shape.

    Returns:
        A matrix with entries at the places of either.

    Source: DGL 1.1, ``dgl.sparse.sub``.

    Example:
        >>> import vgraph.sparse as sp
        >>> sp.sub(sp.identity((2, 2)), sp.identity((2, 2))).val
        tensor([0., 0.])
    """
    return A - B


@checked(A=_FACTOR, B=_FACTOR)
def mul(A: SparseMatrix | Scalar, B: SparseMatrix | Scalar) -> SparseMatrix:
    """The elementwise product, ``A * B``.

    Args:
        A: a matrix, or a number.
        B: a matrix of the same shape, or a number.

    Returns:
        A matrix with entries at the places of both.

    Raises:
        FunctionError: none of them is a matrix.

    Source: DGL 1.1, ``dgl.sparse.mul``.

    Example:
        >>> import vgraph.sparse as sp
        >>> sp.mul(3, sp.identity((2, 2))).val
        tensor([3., 3.])
    """
    if isinstance(A, SparseMatrix):
        return A * B
    if isinstance(B, SparseMatrix):
        return B * A
    raise FunctionError("none of the factors is a sparse matrix", cure="multiply them by themselves")


@checked(A=MATRIX, B=_FACTOR)
def div(A: SparseMatrix, B: SparseMatrix | Scalar) -> SparseMatrix:
    """The elementwise quotient, ``A / B``.

    Args:
        A: a matrix.
        B: a number, or a matrix with entries at the same places, in any order.

    Returns:
        A matrix with entries in the order of ``A``.

    Source: DGL 1.1, ``dgl.sparse.div``.

    Example:
        >>> import vgraph.sparse as sp
        >>> sp.div(sp.identity((2, 2)), 4).val
        tensor([0.2500, 0.2500])
    """
    return A / B


@checked(A=MATRIX, scalar=SCALAR)
def power(A: SparseMatrix, scalar: Scalar) -> SparseMatrix:
    """Every value to a power, ``A ** scalar``.

    Args:
        A: a matrix.
        scalar: the exponent, a number.

    Returns:
        A matrix with entries at the same places.

    Source: DGL 1.1, ``dgl.sparse.power``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> sp.power(sp.diag(torch.tensor([2.0, 3.0])), 2).val
        tensor([4., 9.])
    """
    return A**scalar


@checked(A=MATRIX)
def neg(A: SparseMatrix) -> SparseMatrix:
    """The matrix with every value negated, ``-A``.

    Args:
        A: a matrix.

    Returns:
        A matrix with entries at the same places.

    Source: DGL 1.1, ``dgl.sparse.neg``.

    Example:
        >>> import vgraph.sparse as sp
        >>> sp.neg(sp.identity((2, 2))).val
        tensor([-1., -1.])
    """
    return -A


@checked(A=MATRIX)
def inv(A: SparseMatrix) -> SparseMatrix:
    """The inverse of a square diagonal matrix.

    Args:
        A: a matrix that ``diag`` has made.

    Returns:
        A diagonal matrix.

    Source: DGL 1.1, ``dgl.sparse.inv``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> sp.inv(sp.diag(torch.tensor([2.0, 4.0]))).val
        tensor([0.5000, 0.2500])
    """
    return A.inv()


# ---------------------------------------------------------------- products
@checked(A=MATRIX, B=_TIMES)
def matmul(A: SparseMatrix, B: Tensor | SparseMatrix) -> Tensor | SparseMatrix:
    """The product, ``A @ B``.

    Args:
        A: a matrix (l, m), with a number or k numbers an entry.
        B: dense, (m,), (m, n) or (m, n, k), or a matrix (m, n).

    Returns:
        Dense, (l,), (l, n) or (l, n, k); a matrix (l, n) where ``B`` is one.

    Raises:
        FunctionError: ``A`` is no sparse matrix, or ``B`` is neither.

    Source: DGL 1.1, ``dgl.sparse.matmul``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> sp.matmul(sp.identity((2, 3)), torch.tensor([1.0, 2.0, 3.0]))
        tensor([1., 2.])
    """
    return A @ B


@checked(A=MATRIX, X=TENSOR)
def spmm(A: SparseMatrix, X: Tensor) -> Tensor:
    """The product of a sparse and a dense matrix.

    Args:
        A: a matrix (l, m) with a number an entry.
        X: (m, n) or (m,).

    Returns:
        (l, n) or (l,).

    Raises:
        FunctionError: ``A`` is no sparse matrix, or ``X`` no tensor.

    Source: DGL 1.1, ``dgl.sparse.spmm``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> sp.spmm(sp.identity((2, 3)), torch.tensor([[1.0], [2.0], [3.0]])).squeeze(1)
        tensor([1., 2.])
    """
    return A @ X


@checked(A=MATRIX, X=TENSOR)
def bspmm(A: SparseMatrix, X: Tensor) -> Tensor:
    """The product with k numbers an entry: k products at once.

    Args:
        A: a matrix (l, m) with k numbers an entry.
        X: (m, n, k).

    Returns:
        (l, n, k).

    Raises:
        FunctionError: ``A`` is no sparse matrix, or ``X`` no tensor.

    Source: DGL 1.1, ``dgl.sparse.bspmm``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> sp.bspmm(sp.identity((2, 2), d=3), torch.ones(2, 1, 3)).shape
        torch.Size([2, 1, 3])
    """
    return spmm(A, X)


@checked(A=MATRIX, B=MATRIX)
def spspmm(A: SparseMatrix, B: SparseMatrix) -> SparseMatrix:
    """The product of two sparse matrices, with gradients of the values of both.

    Args:
        A: a matrix (l, m) with a number an entry, and no two at one place.
        B: a matrix (m, n) of the same kind.

    Returns:
        A matrix (l, n).

    Raises:
        FunctionError: ``A`` or ``B`` is no sparse matrix.

    Source: DGL 1.1, ``dgl.sparse.spspmm``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> A = sp.from_coo(torch.tensor([0, 1]), torch.tensor([1, 0]))
        >>> sp.spspmm(A, A).to_dense()
        tensor([[1., 0.],
                [0., 1.]])
    """
    return A @ B


@checked(A=MATRIX, X1=TENSOR, X2=TENSOR)
def sddmm(A: SparseMatrix, X1: Tensor, X2: Tensor) -> SparseMatrix:
    """The entries of ``A * (X1 @ X2)``: only products at the places of entries are computed.

    Args:
        A: a matrix (l, n) with a number an entry.
        X1: (l, m), or (l,) for an outer product.
        X2: (m, n), or (n,).

    Returns:
        A matrix with entries at the same places.

    Source: DGL 1.1, ``dgl.sparse.sddmm``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> sp.sddmm(sp.identity((2, 2)), torch.tensor([2.0, 3.0]), torch.tensor([5.0, 7.0])).val
        tensor([10., 21.])
    """
    return A.sddmm(X1, X2)


@checked(A=MATRIX, X1=TENSOR, X2=TENSOR)
def bsddmm(A: SparseMatrix, X1: Tensor, X2: Tensor) -> SparseMatrix:
    """As ``sddmm`` with k numbers an entry.

    Args:
        A: a matrix (l, n) with k numbers an entry, or one that counts for all k.
        X1: (l, m, k).
        X2: (m, n, k).

    Returns:
        A matrix with entries at the same places.

    Source: DGL 1.1, ``dgl.sparse.bsddmm``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> sp.bsddmm(sp.identity((2, 2), d=3), torch.ones(2, 4, 3), torch.ones(4, 2, 3)).val.tolist()
        [[4.0, 4.0, 4.0], [4.0, 4.0, 4.0]]
    """
    return A.sddmm(X1, X2)


# ---------------------------------------------------------------- along rows and columns
@checked(input=MATRIX)
def softmax(input: SparseMatrix, dim: int = 1) -> SparseMatrix:
    """The softmax of the values over the entries of every row, or of every column.

    Args:
        input: a matrix.
        dim: 1: over the entries of a row; 0: of a column.

    Returns:
        A matrix with entries at the same places.

    Source: DGL 1.1, ``dgl.sparse.softmax``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> sp.softmax(sp.from_coo(torch.tensor([0, 0]), torch.tensor([0, 1]), torch.zeros(2))).val
        tensor([0.5000, 0.5000])
    """
    return input.softmax(dim)


@checked(input=MATRIX)
def reduce(input: SparseMatrix, dim: int | None = None, rtype: str = "sum") -> Tensor:
    """Reduces the values of every row, of every column, or all.

    Args:
        input: a matrix.
        dim: 1: the entries of every row become one; 0: those of every column; None: all.
        rtype: "sum", "smin", "smax", "smean" or "sprod"; entries alone count.

    Returns:
        (rows, ...), (columns, ...) or (...), as an entry; 0 where there is no entry.

    Source: DGL 1.1, ``dgl.sparse.reduce``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> A = sp.from_coo(torch.tensor([0, 0, 1]), torch.tensor([0, 2, 0]), torch.tensor([2.0, 3.0, 4.0]))
        >>> sp.reduce(A, 0, "smax")
        tensor([4., 0., 3.])
    """
    return input.reduce(dim, rtype)


@checked(input=MATRIX)
def sum(input: SparseMatrix, dim: int | None = None) -> Tensor:
    """The sum of every row, of every column, or of all.

    Args:
        input: a matrix.
        dim: 1, 0 or None, as in ``reduce``.

    Returns:
        As ``reduce``.

    Source: DGL 1.1, ``dgl.sparse.sum``.

    Example:
        >>> import vgraph.sparse as sp
        >>> sp.sum(sp.identity((2, 3)), 0)
        tensor([1., 1., 0.])
    """
    return input.sum(dim)


@checked(input=MATRIX)
def smin(input: SparseMatrix, dim: int | None = None) -> Tensor:
    """The least entry of every row, of every column, or of all.

    Args:
        input: a matrix.
        dim: 1, 0 or None, as in ``reduce``.

    Returns:
        As ``reduce``.

    Source: DGL 1.1, ``dgl.sparse.smin``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> sp.smin(sp.diag(torch.tensor([3.0, 2.0])))
        tensor(2.)
    """
    return input.smin(dim)


@checked(input=MATRIX)
def smax(input: SparseMatrix, dim: int | None = None) -> Tensor:
    """The largest entry of every row, of every column, or of all.

    Args:
        input: a matrix.
        dim: 1, 0 or None, as in ``reduce``.

    Returns:
        As ``reduce``.

    Source: DGL 1.1, ``dgl.sparse.smax``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> sp.smax(sp.diag(torch.tensor([3.0, 2.0])))
        tensor(3.)
    """
    return input.smax(dim)


@checked(input=MATRIX)
def smean(input: SparseMatrix, dim: int | None = None) -> Tensor:
    """The mean of the entries of every row, of every column, or of all.

    Args:
        input: a matrix.
        dim: 1, 0 or None, as in ``reduce``.

    Returns:
        As ``reduce``.

    Source: DGL 1.1, ``dgl.sparse.smean``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> sp.smean(sp.diag(torch.tensor([3.0, 2.0])))
        tensor(2.5000)
    """
    return input.smean(dim)


@checked(input=MATRIX)
def sprod(input: SparseMatrix, dim: int | None = None) -> Tensor:
    """The product of the entries of every row, of every column, or of all.

    Args:
        input: a matrix.
        dim: 1, 0 or None, as in ``reduce``.

    Returns:
        As ``reduce``.

    Source: DGL 1.1, ``dgl.sparse.sprod``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> sp.sprod(sp.diag(torch.tensor([3.0, 2.0])))
        tensor(6.)
    """
    return input.sprod(dim)
