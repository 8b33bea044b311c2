"""How sparse matrices are made, and how they become torch's.

Takes: index tensors, values, torch's sparse tensors. Gives: matrices, and torch's sparse tensors. Runs at every call.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vgraph.api.sparse.given import DTYPE, SHAPE
from vgraph.api.sparse.matrix import MATRIX, SparseMatrix
from vgraph.api.sparse.pattern import Shape, as_given, check_ids, in_compressed_cols, in_compressed_rows, on_diagonal
from vgraph.arguments import COUNT, checked
from vgraph.errors import DTypeError, FeatureError, FunctionError, GraphError
from vgraph.graphs.edge_formats import check_device
from vgraph.graphs.given import TENSOR


@checked(val=TENSOR.or_none(), shape=SHAPE.or_none())
def spmatrix(indices: Tensor, val: Tensor | None = None, shape: Shape | None = None) -> SparseMatrix:
    """A sparse matrix from the places and the values of its entries.

    Args:
        indices: int64 rows and columns, (2, entries), in any order; several may be the same.
        val: (entries,) or (entries, k), with or without a gradient; None: float32 ones.
        shape: numbers of rows and columns; None: as many as ``indices`` ask for.

    Returns:
        A matrix that shares the memory of ``val``; it copies ``indices``, and gives them back.

    Raises:
        DTypeError: ``indices`` is no tensor.
        GraphError: indices are no ids (2, entries), or out of range.
        FeatureError: there is not one value an entry, or it is on another device.

    Source: DGL 1.1, ``dgl.sparse.spmatrix``.

    Example:
        >>> import torch, vgraph.sparse
        >>> vgraph.sparse.spmatrix(torch.tensor([[1, 1, 2], [2, 4, 3]]))
        SparseMatrix(indices=tensor([[1, 1, 2],
                                     [2, 4, 3]]),
                     values=tensor([1., 1., 1.]),
                     shape=(3, 5), nnz=3)
    """
    _check_tensors(indices=indices)
    if indices.dim() != 2 or indices.shape[0] != 2:
        raise GraphError(f"indices have shape {tuple(indices.shape)}", cure="give rows and columns, (2, entries)")
    rows, cols = indices
    whole = (_least(rows), _least(cols)) if shape is None else shape
    check_ids("rows", rows, whole[0])
    check_ids("columns", cols, whole[1])
    return SparseMatrix(as_given(indices, whole), _values(val, indices))


def _check_tensors(**given: object) -> None:
    """DTypeError: one of them, by name, is no tensor with rows."""
    for name, value in given.items():
        if not isinstance(value, Tensor) or not value.dim():
            what = f"is {value!r}, " if isinstance(value, (int, float, Tensor)) else f"is a {type(value).__name__}, "
            raise DTypeError(f"{name} {what}which is no tensor with rows", cure=f"give {name} as torch.tensor([...])")


def _least(ids: Tensor) -> int:
    return int(ids.max()) + 1 if ids.numel() else 0


def _values(val: Tensor | None, ids: Tensor) -> Tensor:
    return torch.ones(ids.shape[-1], device=ids.device) if val is None else val


@checked(val=TENSOR.or_none(), shape=SHAPE.or_none())
def from_coo(row: Tensor, col: Tensor, val: Tensor | None = None, shape: Shape | None = None) -> SparseMatrix:
    """A sparse matrix from rows, columns and values of its entries.

    Args:
        row: int64 rows, (entries,).
        col: int64 columns, (entries,).
        val: (entries,) or (entries, k); None: float32 ones.
        shape: numbers of rows and columns; None: as many as the ids ask for.

    Returns:
        A matrix.

    Raises:
        DTypeError: ``row`` or ``col`` is no tensor with rows.
        GraphError: ids are out of range, or there are not as many rows as columns.
        FeatureError: there is not one value an entry.

    Source: DGL 1.1, ``dgl.sparse.from_coo``.

    Example:
        >>> import torch, vgraph.sparse
        >>> vgraph.sparse.from_coo(torch.tensor([0, 1]), torch.tensor([1, 0]), torch.tensor([2.0, 3.0])).to_dense()
        tensor([[0., 2.],
                [3., 0.]])
    """
    _check_tensors(row=row, col=col)
    if row.shape != col.shape:
        fact = f"there are {tuple(row.shape)} rows and {tuple(col.shape)} columns"
        raise GraphError(fact, cure="give one of each an entry")
    return spmatrix(torch.stack([row, col]), val, shape)


@checked(val=TENSOR.or_none(), shape=SHAPE.or_none())
def from_csr(indptr: Tensor, indices: Tensor, val: Tensor | None = None, shape: Shape | None = None) -> SparseMatrix:
    """A sparse matrix from compressed rows.

    Args:
        indptr: int64, (rows + 1,): where the entries of every row begin.
        indices: int64 columns, (entries,), row by row.
        val: (entries,) or (entries, k); None: float32 ones.
        shape: numbers of rows and columns; None: as many columns as ``indices`` ask for.

    Returns:
        A matrix that shares the memory of ``val``; it copies the ids, and gives them back.

    Raises:
        DTypeError: ``indptr`` or ``indices`` is no tensor with rows.
        GraphError: ``indptr`` does not ascend from 0 to the number of entries, or columns are out of range.
        FeatureError: there is not one value an entry.

    Source: DGL 1.1, ``dgl.sparse.from_csr``.

    Example:
        >>> import torch, vgraph.sparse
        >>> vgraph.sparse.from_csr(torch.tensor([0, 1, 3]), torch.tensor([1, 0, 2])).row
        tensor([0, 1, 1])
    """
    _check_tensors(indptr=indptr, indices=indices)
    whole = (len(indptr) - 1, _least(indices)) if shape is None else shape
    _check_compressed(indptr, indices, ("rows", whole[0]), ("columns", whole[1]))
    return SparseMatrix(in_compressed_rows(indptr, indices, whole), _values(val, indices))


def _check_compressed(indptr: Tensor, indices: Tensor, outer: tuple[str, int], inner: tuple[str, int]) -> None:
    """``outer``: what is compressed, and how many there are; ``inner``: what ``indices`` are ids of."""
    what, count = outer
    if indptr.dim() != 1 or not len(indptr) or len(indptr) != count + 1:
        fact = f"indptr has shape {tuple(indptr.shape)} for {max(count, 0)} {what}"
        raise GraphError(fact, cure="give where each begins and where the last ends")
    if int(indptr[0]) or int(indptr[-1]) != len(indices) or bool((indptr.diff() < 0).any()):
        fact = f"indptr goes from {int(indptr[0])} to {int(indptr[-1])} for {len(indices)} entries, or descends"
        raise GraphError(fact, cure="let it ascend from 0 to the number of entries")
    check_ids(inner[0], indices, inner[1])


@checked(val=TENSOR.or_none(), shape=SHAPE.or_none())
def from_csc(indptr: Tensor, indices: Tensor, val: Tensor | None = None, shape: Shape | None = None) -> SparseMatrix:
    """A sparse matrix from compressed columns.

    Args:
        indptr: int64, (columns + 1,): where the entries of every column begin.
        indices: int64 rows, (entries,), column by column.
        val: (entries,) or (entries, k); None: float32 ones.
        shape: numbers of rows and columns; None: as many rows as ``indices`` ask for.

    Returns:
        A matrix that shares the memory of ``val``; it copies the ids, and gives them back.

    Raises:
        DTypeError: ``indptr`` or ``indices`` is no tensor with rows.
        GraphError: ``indptr`` does not ascend from 0 to the number of entries, or rows are out of range.
        FeatureError: there is not one value an entry.

    Source: DGL 1.1, ``dgl.sparse.from_csc``.

    Example:
        >>> import torch, vgraph.sparse
        >>> vgraph.sparse.from_csc(torch.tensor([0, 1, 3]), torch.tensor([1, 0, 2])).coo()
        (tensor([1, 0, 2]), tensor([0, 1, 1]))
    """
    _check_tensors(indptr=indptr, indices=indices)
    whole = (_least(indices), len(indptr) - 1) if shape is None else shape
    _check_compressed(indptr, indices, ("columns", whole[1]), ("rows", whole[0]))
    return SparseMatrix(in_compressed_cols(indptr, indices, whole), _values(val, indices))


@checked(mat=MATRIX, val=TENSOR)
def val_like(mat: SparseMatrix, val: Tensor) -> SparseMatrix:
    """A matrix with entries at the same places, and other values.

    Args:
        mat: where entries stand.
        val: (entries,) or (entries, k), in the order of ``mat``.

    Returns:
        A matrix that shares what is known of the places.

    Raises:
        FeatureError: there is not one value an entry, or it is on another device.

    Source: DGL 1.1, ``dgl.sparse.val_like``.

    Example:
        >>> import torch, vgraph.sparse
        >>> vgraph.sparse.val_like(vgraph.sparse.identity((2, 2)), torch.tensor([4.0, 5.0])).to_dense()
        tensor([[4., 0.],
                [0., 5.]])
    """
    return mat.with_values(val)


@checked(shape=SHAPE.or_none())
def diag(val: Tensor, shape: Shape | None = None) -> SparseMatrix:
    """A diagonal matrix.

    Args:
        val: the diagonal, (n,) or (n, k).
        shape: numbers of rows and columns, the lesser of them n; None: (n, n).

    Returns:
        A matrix; products with it scale rows or columns.

    Raises:
        DTypeError: ``val`` is no tensor with rows.
        FeatureError: the lesser number is not n.

    Source: DGL 1.1, ``dgl.sparse.diag``.

    Example:
        >>> import torch, vgraph.sparse
        >>> vgraph.sparse.diag(torch.tensor([1.0, 2.0]), (2, 3)).to_dense()
        tensor([[1., 0., 0.],
                [0., 2., 0.]])
    """
    _check_tensors(val=val)
    whole = (len(val), len(val)) if shape is None else shape
    if min(whole) != len(val):
        fact = f"{len(val)} values for the diagonal of a matrix {whole}"
        raise FeatureError(fact, cure=f"give {min(whole)} values, or another shape")
    return SparseMatrix(on_diagonal(whole, val.device), val)


@checked(shape=SHAPE, d=COUNT.or_none(), dtype=DTYPE.or_none())
def identity(
    shape: Shape,
    d: int | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> SparseMatrix:
    """The identity: ones on the diagonal.

    Args:
        shape: numbers of rows and columns.
        d: that many numbers an entry; None: one.
        dtype: that of the values; None: torch's default.
        device: where it is made; None: torch's default.

    Returns:
        A diagonal matrix.

    Raises:
        ArgumentError: ``shape`` or ``d`` are no whole numbers from 0 up.
        DeviceError: there is no such device here.

    Source: DGL 1.1, ``dgl.sparse.identity``.

    Example:
        >>> import vgraph.sparse
        >>> vgraph.sparse.identity((2, 3)).sum(1)
        tensor([1., 1.])
    """
    if device is not None:
        check_device(device, "the matrix")
    size = (min(shape),) if d is None else (min(shape), d)
    ones = torch.ones(size, dtype=dtype, device=device)
    return SparseMatrix(on_diagonal(shape, ones.device), ones)


# ---------------------------------------------------------------- torch's sparse tensors
@checked(torch_sparse_tensor=TENSOR)
def from_torch_sparse(torch_sparse_tensor: Tensor) -> SparseMatrix:
    """A matrix from torch's sparse tensor.

    Args:
        torch_sparse_tensor: a COO, CSR or CSC tensor (rows, columns), or a COO tensor with a dense last dim.

    Returns:
        A matrix that shares the memory of its values.

    Raises:
        FunctionError: the layout is another, or the tensor is no matrix.
        GraphError: its indices are out of range, which torch does not always check.

    Source: DGL 1.1, ``dgl.sparse.from_torch_sparse``.

    Example:
        >>> import torch, vgraph.sparse
        >>> vgraph.sparse.from_torch_sparse(torch.eye(2).to_sparse()).nnz
        2
    """
    given, layout = torch_sparse_tensor, torch_sparse_tensor.layout
    shape = (int(given.shape[0]), int(given.shape[1])) if given.dim() > 1 else (0, 0)
    if layout == torch.sparse_coo and given.sparse_dim() == 2:
        return spmatrix(given._indices(), given._values(), shape)
    if layout == torch.sparse_csr and given.dim() == 2:
        return from_csr(given.crow_indices(), given.col_indices(), given.values(), shape)
    if layout == torch.sparse_csc and given.dim() == 2:
        return from_csc(given.ccol_indices(), given.row_indices(), given.values(), shape)
    fact = f"a tensor {tuple(given.shape)} of layout {layout}"
    raise FunctionError(fact, cure="give a sparse COO, CSR or CSC matrix")


@checked(spmat=MATRIX)
def to_torch_sparse_coo(spmat: SparseMatrix) -> Tensor:
    """The matrix as torch's COO tensor, which shares its memory.

    Args:
        spmat: a matrix.

    Returns:
        A sparse COO tensor (rows, columns), or (rows, columns, k); entries in the same order, not coalesced.

    Source: DGL 1.1, ``dgl.sparse.to_torch_sparse_coo``.

    Example:
        >>> import vgraph.sparse
        >>> vgraph.sparse.to_torch_sparse_coo(vgraph.sparse.identity((2, 2))).layout
        torch.sparse_coo
    """
    shape = (*spmat.shape, *spmat.val.shape[1:])
    return torch.sparse_coo_tensor(spmat.indices(), spmat.val, shape, check_invariants=False)


@checked(spmat=MATRIX)
def to_torch_sparse_csr(spmat: SparseMatrix) -> Tensor:
    """The matrix as torch's CSR tensor, which shares its memory where entries stand row by row.

    Args:
        spmat: a matrix with a number an entry.

    Returns:
        A sparse CSR tensor (rows, columns).

    Source: DGL 1.1, ``dgl.sparse.to_torch_sparse_csr``.

    Example:
        >>> import warnings, vgraph.sparse
        >>> warnings.simplefilter("ignore")  # torch warns that its CSR tensors are in beta state
        >>> vgraph.sparse.to_torch_sparse_csr(vgraph.sparse.identity((2, 2))).layout
        torch.sparse_csr
    """
    indptr, indices, order = spmat.csr()
    value = spmat.val if order is None else spmat.val[order]
    return torch.sparse_csr_tensor(indptr, indices, value, spmat.shape, check_invariants=False)


@checked(spmat=MATRIX)
def to_torch_sparse_csc(spmat: SparseMatrix) -> Tensor:
    """The matrix as torch's CSC tensor, which shares its memory where entries stand column by column.

    Args:
        spmat: a matrix with a number an entry.

    Returns:
        A sparse CSC tensor (rows, columns).

    Source: DGL 1.1, ``dgl.sparse.to_torch_sparse_csc``.

    Example:
        >>> import warnings, vgraph.sparse
        >>> warnings.simplefilter("ignore")  # torch warns that its CSC tensors are in beta state
        >>> vgraph.sparse.to_torch_sparse_csc(vgraph.sparse.identity((2, 2))).layout
        torch.sparse_csc
    """
    indptr, indices, order = spmat.csc()
    value = spmat.val if order is None else spmat.val[order]
    return torch.sparse_csc_tensor(indptr, indices, value, spmat.shape, check_invariants=False)
