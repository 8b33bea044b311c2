"""Sparse matrices against dense ones: values, gradients of both orders, every format and every error."""

from __future__ import annotations

import copy
import operator
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.sparse as sp
from vgraph.errors import ArgumentError, DTypeError, FeatureError, FunctionError, GraphError

F64 = torch.float64


def draw(shape: tuple[int, int], nnz: int, seed: int = 0, k: int | None = None, unique: bool = True) -> sp.SparseMatrix:
    generator = torch.Generator().manual_seed(seed)
    places = torch.randperm(shape[0] * shape[1], generator=generator)[:nnz]
    if not unique:
        places = places[torch.randint(0, nnz, (nnz,), generator=generator)]
    size = (nnz,) if k is None else (nnz, k)
    value = torch.randn(size, generator=generator, dtype=F64).requires_grad_()
    return sp.from_coo(places // shape[1], places % shape[1], value, shape)


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def check_gradients(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    assert torch.autograd.gradcheck(function, inputs) and torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("unique", [True, False])
def test_products_with_dense_matrices(k: int | None, unique: bool) -> None:
    A = draw((6, 9), 20, k=k, unique=unique)
    x = torch.randn(9, 4, *(() if k is None else (k,)), dtype=F64, requires_grad=True)
    wanted = A.to_dense() @ x if k is None else torch.einsum("ijk,jnk->ink", A.to_dense(), x)
    close(A @ x, wanted)
    check_gradients(lambda value, x: sp.val_like(A, value) @ x, A.val, x)
    if k is None:
        vector = torch.randn(9, dtype=F64)
        close(A @ vector, A.to_dense() @ vector)
        close(A.T @ torch.ones(6, dtype=F64), A.to_dense().sum(0))
        for multiply in (torch.mm, torch.matmul, torch.sparse.mm):
            close(multiply(A, x), wanted)
        close(x.detach().T @ A.T, wanted.T)


def test_a_product_with_a_matrix_without_entries_has_a_gradient() -> None:
    x = torch.randn(3, 2, requires_grad=True)
    made = sp.spmatrix(torch.zeros(2, 0, dtype=torch.int64), shape=(4, 3)) @ x
    made.sum().backward()
    assert made.shape == (4, 2) and x.grad is not None and not x.grad.any()


@pytest.mark.parametrize("shapes", [((5, 6), (6, 4)), ((3, 3), (3, 3))])
def test_products_of_sparse_matrices(shapes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    A, B = draw(shapes[0], 8), draw(shapes[1], 7, 1)
    C = A @ B
    assert not C.has_duplicate()
    close(C.to_dense(), A.to_dense() @ B.to_dense())
    check_gradients(lambda a, b: (sp.val_like(A, a) @ sp.val_like(B, b)).val, A.val, B.val)


def test_scaling_by_a_diagonal_keeps_what_is_known_of_the_places() -> None:
    A, left, right = draw((4, 5), 9), torch.randn(4, dtype=F64), torch.randn(5, dtype=F64)
    made = sp.diag(left) @ A @ sp.diag(right)
    assert made._pattern is A._pattern
    close(made.to_dense(), left[:, None] * A.to_dense() * right)
    wide = sp.diag(torch.randn(3, dtype=F64), (3, 4))  # rows are left out: not a scaling
    close((wide @ A).to_dense(), wide.to_dense() @ A.to_dense())


def test_sampled_products() -> None:
    A = draw((5, 4), 9)
    left, right = torch.randn(5, 3, dtype=F64, requires_grad=True), torch.randn(3, 4, dtype=F64, requires_grad=True)
    close(sp.sddmm(A, left, right).to_dense(), A.to_dense() * (left @ right))
    close(sp.sddmm(A, left[:, 0], right[0]).to_dense(), A.to_dense() * torch.outer(left[:, 0], right[0]))
    check_gradients(lambda v, x, y: sp.sddmm(sp.val_like(A, v), x, y).val, A.val, left, right)
    B, lefts, rights = draw((5, 4), 9, k=2), torch.randn(5, 3, 2, dtype=F64), torch.randn(3, 4, 2, dtype=F64)
    products = torch.einsum("ink,njk->ijk", lefts, rights)
    close(sp.bsddmm(B, lefts, rights).to_dense(), B.to_dense() * products)
    close(sp.bsddmm(A, lefts, rights).to_dense(), A.to_dense()[:, :, None] * products)  # a number for both
    check_gradients(lambda v: sp.bsddmm(sp.val_like(A, v), lefts, rights).val, A.val)


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul])
@pytest.mark.parametrize("k", [None, 3])
def test_elementwise(op: Callable[..., Any], k: int | None) -> None:
    A, B = draw((4, 5), 9, k=k), draw((4, 5), 12, 1, k)
    close(op(A, B).to_dense(), op(A.to_dense(), B.to_dense()))
    close(op(A, A).to_dense(), op(A.to_dense(), A.to_dense()))
    check_gradients(lambda a, b: op(sp.val_like(A, a), sp.val_like(B, b)).val, A.val, B.val)


def test_quotients_scalars_and_powers() -> None:
    A = draw((4, 5), 9)
    order = torch.randperm(9)
    B = sp.spmatrix(A.indices()[:, order], A.val[order] + 3, A.shape)
    close((A / B).val, A.val / (A.val + 3))
    close((2 * A / torch.tensor(4.0) * 3).val, A.val * 1.5)
    close((torch.tensor(2.0, dtype=F64) * A).val, A.val * 2)
    close((-(A**2)).val, -(A.val**2))
    for wrong in (lambda: A + 1, lambda: 1 - A, lambda: 2 / A, lambda: torch.tensor(2.0) / A, lambda: A**A):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(GraphError, match="same places"):
        A / draw((4, 5), 9, 3)


@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("k", [None, 2])
def test_reductions(dim: int | None, k: int | None) -> None:
    A = draw((5, 4), 8, k=k)
    dense, is_there = A.to_dense(), sp.val_like(A, torch.ones_like(A.val)).to_dense() != 0
    over = (0, 1) if dim is None else dim
    count = is_there.sum(over)
    some = count > 0
    least, most = (dense.masked_fill(~is_there, end) for end in (float("inf"), -float("inf")))
    ones = dense.masked_fill(~is_there, 1)
    product = ones.flatten(0, 1).prod(0) if dim is None else ones.prod(dim)
    wanted = {
        "sum": dense.sum(over), "smin": least.amin(over), "smax": most.amax(over), "sprod": product,
        "smean": dense.sum(over) / count,
    }  # fmt: skip
    for name, want in wanted.items():
        close(getattr(sp, name)(A, dim), torch.where(some, want, 0))
        check_gradients(lambda value, name=name: sp.val_like(A, value).reduce(dim, name), A.val)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("k", [None, 2])
def test_softmax(dim: int, k: int | None) -> None:
    A = draw((5, 4), 8, k=k)
    is_there = sp.val_like(A, torch.ones_like(A.val)).to_dense() != 0
    wanted = A.to_dense().masked_fill(~is_there, -float("inf")).softmax(dim)
    close(A.softmax(dim).to_dense(), wanted.nan_to_num(0))
    check_gradients(lambda value: sp.val_like(A, value).softmax(dim).val, A.val)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64, torch.bool])
def test_softmax_and_mean_of_whole_numbers(dtype: torch.dtype) -> None:
    """Differences of narrow numbers wrapped around, and the mean of all was refused where that of rows was not."""
    value = torch.tensor([100, 1, 100, 5, 7]).to(dtype)
    if dtype == torch.int8:
        value[1] = -100
    A = sp.spmatrix(torch.tensor([[0, 0, 1, 2, 2], [0, 1, 1, 0, 2]]), value)
    wanted = torch.cat([torch.softmax(part.float(), 0) for part in value.split([2, 1, 2])])
    torch.testing.assert_close(A.softmax().val, wanted)
    torch.testing.assert_close(A.smean(), value.float().mean())


def test_formats() -> None:
    A = draw((5, 4), 8, unique=False)
    for make, indptr, indices, order in ((sp.from_csr, *A.csr()), (sp.from_csc, *A.csc())):
        made = make(indptr, indices, A.val if order is None else A.val[order], A.shape)
        close(made.to_dense(), A.to_dense())
        again = made.csr() if make is sp.from_csr else made.csc()
        assert again[0].data_ptr() == indptr.data_ptr() and again[2] is None
        close(made.T.to_dense(), A.to_dense().T)
    merged = A.coalesce()
    assert A.has_duplicate() and not merged.has_duplicate() and merged.coalesce() is merged
    close(merged.to_dense(), A.to_dense())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's CSR is in beta
        for convert in (sp.to_torch_sparse_coo, sp.to_torch_sparse_csr, sp.to_torch_sparse_csc):
            close(convert(A.coalesce()).to_dense(), A.to_dense())
            close(sp.from_torch_sparse(convert(A.coalesce())).to_dense(), A.to_dense())


def test_parts() -> None:
    A = draw((5, 4), 12)
    rows, cols = torch.tensor([3, 0, 3]), torch.tensor([2, 1])
    close(A.index_select(0, rows).to_dense(), A.to_dense()[rows])
    close(A.index_select(1, cols).to_dense(), A.to_dense()[:, cols])
    close(A.range_select(1, slice(1, 3)).to_dense(), A.to_dense()[:, 1:3])
    check_gradients(lambda value: sp.val_like(A, value).index_select(0, rows).val, A.val)
    B = A.index_select(0, torch.tensor([1, 4])).T
    made, former = B.compact(0, torch.tensor([3, 1, 3]))
    assert former[:2].tolist() == [3, 1] and former[2:].tolist() == sorted({*B.row.tolist()} - {1, 3})
    close(made.to_dense(), B.to_dense()[former])


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_draws(dim: int, replace: bool, bias: bool) -> None:
    A = draw((6, 7), 25)
    A = sp.val_like(A, A.val.detach().abs())
    A = sp.val_like(A, torch.where(A.val < A.val.median(), 0.0, A.val)) if bias else A
    ids = torch.tensor([4, 1, 1])
    vgraph.seed(3)
    found = A.sample(dim, 3, ids, replace, bias)
    vgraph.seed(3)
    assert torch.equal(found.val, A.sample(dim, 3, ids, replace, bias).val)
    whole = A.to_dense()[ids] if dim == 0 else A.to_dense()[:, ids]
    assert found.shape == tuple(whole.shape)
    assert torch.equal(whole[found.row, found.col], found.val)
    counts = torch.bincount(found.row if dim == 0 else found.col, minlength=3)
    here = ((whole != 0) if bias else sp.val_like(A, A.val + 1).to_dense().index_select(dim, ids) != 0).sum(1 - dim)
    wanted = torch.where(here > 0, 3, 0) if replace else here.clamp(max=3)
    assert torch.equal(counts, wanted)


def test_what_a_matrix_says_and_survives() -> None:
    A = sp.spmatrix(torch.tensor([[1, 1], [2, 0]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert str(A).endswith("shape=(2, 3), nnz=2, val_size=(2,))") and "indices=tensor([[1, 1]," in str(A)
    assert (A.dtype, A.double().dtype, A.long().val.dtype) == (torch.float32, F64, torch.int64)
    assert A.to("cpu") is A and A.to(dtype=F64)._pattern is A._pattern
    for again in (pickle.loads(pickle.dumps(A)), copy.deepcopy(A)):
        close(again.to_dense(), A.to_dense())


def test_the_adjacency_of_a_graph() -> None:
    g = vgraph.graph(([0, 1, 1], [2, 2, 0]))
    g.edata["w"] = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x = torch.randn(3, 4)
    g.ndata["x"] = x
    g.update_all(vgraph.function.u_mul_e("x", "w", "m"), vgraph.function.sum("m", "y"))
    A = g.adj(eweight_name="w")
    close(A.T @ x, g.ndata["y"])
    assert A.T._pattern.topology is g.topology  # what is known of the graph is not found again
    assert A.row.tolist() == [0, 1, 1] and A.col.tolist() == [2, 2, 0]
    assert g.adj(transpose=True).layout == torch.sparse_coo and g.adj(True).shape == (3, 3)
    assert g.adj(scipy_fmt="csr").nnz == 3


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        (lambda A: sp.spmatrix(torch.zeros(3, 2, dtype=torch.int64)), GraphError, "shape"),
        (lambda A: sp.spmatrix(torch.tensor([[0, 5], [1, 1]]), shape=(3, 3)), GraphError, "from 0 to 5"),
        (lambda A: sp.spmatrix(torch.tensor([[0, -1], [1, 1]])), GraphError, "from -1"),
        (lambda A: sp.spmatrix(torch.tensor([[0], [1]]), torch.ones(2)), FeatureError, "1 entries"),
        (lambda A: sp.from_csr(torch.tensor([0, 3, 2]), torch.tensor([0, 1])), GraphError, "descends"),
        (lambda A: sp.diag(torch.ones(3), (2, 3)), FeatureError, "diagonal"),
        (lambda A: A @ torch.ones(5), FeatureError, "4 columns"),
        (lambda A: A @ torch.ones(4), DTypeError, "float64"),
        (lambda A: A @ A, FeatureError, "matrices"),
        (lambda A: A * torch.ones(4), FeatureError, "times a tensor"),
        (lambda A: torch.ones(5, 4) * A, FeatureError, "times a tensor"),
        (lambda A: A * np.ones(4), FeatureError, "and an array"),
        (lambda A: np.ones(4) * A, FeatureError, "and an array"),
        (lambda A: A / np.ones(4), FeatureError, "and an array"),
        (lambda A: sp.diag(3.0), DTypeError, "val is 3.0"),
        (lambda A: sp.identity((2, -1)), ArgumentError, r"shape=\(2, -1\)"),
        (lambda A: sp.identity((2, 2), 0.5), ArgumentError, "d=0.5"),
        (lambda A: sp.diag(torch.tensor(3.0)), DTypeError, "no tensor with rows"),
        (lambda A: sp.from_csr([], []), DTypeError, "indptr is a list"),
        (lambda A: sp.from_csc(torch.empty(0), torch.empty(0)), GraphError, "for 0 columns"),
        (lambda A: sp.from_coo([0], [0]), DTypeError, "row is a list"),
        (lambda A: sp.spmatrix([[0], [0]]), DTypeError, "indices is a list"),
        (lambda A: sp.matmul(A, 3), FunctionError, r"matmul\(B=3\)"),
        (lambda A: sp.spmm(torch.ones(2, 2), torch.ones(2)), FunctionError, r"spmm\(A=a Tensor"),
        (lambda A: A + draw((4, 5), 3), FeatureError, "one shape"),
        (lambda A: A.softmax(2), FunctionError, r"softmax\(dim=2"),
        (lambda A: A.reduce(0, "max"), FunctionError, "no reduction"),
        (lambda A: A.inv(), FunctionError, "diagonal"),
        (lambda A: A.index_select(0, torch.tensor([9])), GraphError, "9"),
        (lambda A: A.range_select(0, slice(0, 4, 2)), FunctionError, "slice"),
        (lambda A: sp.sddmm(A, torch.ones(5, 2), torch.ones(2, 5)), FeatureError, "for a matrix"),
        (lambda A: sp.sp_add_v(A, torch.ones(3)), FeatureError, "v has shape"),
        (lambda A: A.sample(0, 2, bias=True), FeatureError, "weights"),
        (lambda A: sp.val_like(A, torch.ones(3)), FeatureError, "8 entries"),
        (lambda A: draw((4, 4), 9, unique=False) @ draw((4, 4), 9), GraphError, "one place"),
    ],
)  # fmt: skip
def test_refusals(wrong: Callable[[sp.SparseMatrix], Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        wrong(draw((5, 4), 8))


def test_what_a_matrix_was_made_of_may_be_written_into() -> None:
    """Native loops trust places: no tensor that the user has is one of them."""
    indices = torch.tensor([[0, 1, 1], [2, 0, 2]])
    indptr, cols = torch.tensor([0, 1, 3]), torch.tensor([2, 0, 2])
    for A in (sp.spmatrix(indices), sp.from_csr(indptr, cols), sp.from_csc(indptr, cols).T):
        wanted = A @ torch.ones(3)
        for ids in (A.indices(), A.row, *A.csr(), *A.csc()):
            if ids is not None:
                ids += 2**20
        assert torch.equal(A @ torch.ones(3), wanted)
