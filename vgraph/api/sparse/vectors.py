"""Sparse matrices beside vectors, which have a number a column or a number a row, as functions.

Takes: a matrix and a vector. Gives: matrices with entries at the same places. Runs at every call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from torch import Tensor

from vgraph.api.sparse.matrix import MATRIX, SparseMatrix
from vgraph.arguments import checked
from vgraph.errors import FeatureError, FunctionError
from vgraph.graphs.given import TENSOR


@checked(A=MATRIX, v=TENSOR)
def sp_broadcast_v(A: SparseMatrix, v: Tensor, op: str) -> SparseMatrix:
    """Combines every entry with the number of its column, or of its row.

    Args:
        A: a matrix (l, n).
        v: a number a column, (n,) or (1, n); or a number a row, (l, 1).
        op: "add", "sub", "mul" or "truediv".

    Returns:
        A matrix with entries at the same places.

    Raises:
        FunctionError: there is no such ``op``.
        FeatureError: ``v`` has neither a number a column nor a number a row.

    Source: DGL 1.1, ``dgl.sparse.sp_broadcast_v``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> sp.sp_broadcast_v(sp.identity((2, 3)), torch.tensor([[10.0], [20.0]]), "add").val
        tensor([11., 21.])
    """
    if op not in ("add", "sub", "mul", "truediv"):
        raise FunctionError(f"there is no operator {op!r}", cure="one of add, sub, mul, truediv")
    return _with_vector(A, v, getattr(operator, op))


def _with_vector(A: SparseMatrix, v: Tensor, combine: Callable[[Tensor, Tensor], Tensor]) -> SparseMatrix:
    if tuple(v.shape) in ((A.shape[1],), (1, A.shape[1])):
        numbers = v.reshape(-1)[A.col]
    elif tuple(v.shape) == (A.shape[0], 1):
        numbers = v.reshape(-1)[A.row]
    else:
        fact = f"v has shape {tuple(v.shape)}, and the matrix {A.shape}"
        raise FeatureError(fact, cure=f"give ({A.shape[1]},), (1, {A.shape[1]}) or ({A.shape[0]}, 1)")
    numbers = numbers.unsqueeze(1) if A.val.dim() > 1 else numbers
    return A.with_values(combine(A.val, numbers))


@checked(A=MATRIX, v=TENSOR)
def sp_add_v(A: SparseMatrix, v: Tensor) -> SparseMatrix:
    """Adds to every entry the number of its column, or of its row.

    Args:
        A: a matrix.
        v: as in ``sp_broadcast_v``.

    Returns:
        A matrix with entries at the same places.

    Raises:
        FeatureError: ``v`` has neither a number a column nor a number a row.

    Source: DGL 1.1, ``dgl.sparse.sp_add_v``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> sp.sp_add_v(sp.identity((2, 2)), torch.tensor([10.0, 20.0])).val
        tensor([11., 21.])
    """
    return _with_vector(A, v, operator.add)


@checked(A=MATRIX, v=TENSOR)
def sp_sub_v(A: SparseMatrix, v: Tensor) -> SparseMatrix:
    """Subtracts from every entry the number of its column, or of its row.

    Args:
        A: a matrix.
        v: as in ``sp_broadcast_v``.

    Returns:
        A matrix with entries at the same places.

    Raises:
        FeatureError: ``v`` has neither a number a column nor a number a row.

    Source: DGL 1.1, ``dgl.sparse.sp_sub_v``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> sp.sp_sub_v(sp.identity((2, 2)), torch.tensor([10.0, 20.0])).val
        tensor([ -9., -19.])
    """
    return _with_vector(A, v, operator.sub)


@checked(A=MATRIX, v=TENSOR)
def sp_mul_v(A: SparseMatrix, v: Tensor) -> SparseMatrix:
    """Multiplies every entry by the number of its column, or of its row.

    Args:
        A: a matrix.
        v: as in ``sp_broadcast_v``.

    Returns:
        A matrix with entries at the same places.

    Raises:
        FeatureError: ``v`` has neither a number a column nor a number a row.

    Source: DGL 1.1, ``dgl.sparse.sp_mul_v``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> sp.sp_mul_v(sp.identity((2, 2)), torch.tensor([10.0, 20.0])).val
        tensor([10., 20.])
    """
    return _with_vector(A, v, operator.mul)


@checked(A=MATRIX, v=TENSOR)
def sp_div_v(A: SparseMatrix, v: Tensor) -> SparseMatrix:
    """Divides every entry by the number of its column, or of its row.

    Args:
        A: a matrix.
        v: as in ``sp_broadcast_v``.

    Returns:
        A matrix with entries at the same places.

    Raises:
        FeatureError: ``v`` has neither a number a column nor a number a row.

    Source: DGL 1.1, ``dgl.sparse.sp_div_v``.

    Example:
        >>> import torch, vgraph.sparse as sp
        >>> sp.sp_div_v(sp.identity((2, 2)), torch.tensor([10.0, 20.0])).val
        tensor([0.1000, 0.0500])
    """
    return _with_vector(A, v, operator.truediv)
