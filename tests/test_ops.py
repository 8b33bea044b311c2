"""Ops: on arrays of any library, against plain torch; grouped products against a loop over types."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from vgraph import ops
from vgraph.errors import DTypeError, FeatureError, FunctionError

SRC, DST = torch.tensor([0, 1, 1, 2, 0]), torch.tensor([2, 2, 0, 1, 2])


def example(idtype: torch.dtype = torch.int64) -> vgraph.Graph:
    return vgraph.graph((SRC, DST), num_nodes=4, idtype=idtype)


REDUCERS = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}
OPERATORS: dict[str, Any] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
    "dot": lambda a, b: (a * b).sum(-1, keepdim=True), "copy_lhs": lambda a, b: a, "copy_rhs": lambda a, b: b,
}  # fmt: skip


@pytest.mark.parametrize("reducer", REDUCERS)
@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("idtype", [torch.int64, torch.int32])
def test_gspmm(op: str, reducer: str, idtype: torch.dtype) -> None:
    u, e = torch.rand(4, 3) + 1, torch.rand(5, 3) + 1
    rows = OPERATORS[op](u[SRC], e)
    ends = DST.unsqueeze(1).expand_as(rows)
    zeros = torch.zeros(4, rows.shape[1])
    wanted = zeros.scatter_reduce(0, ends, rows, REDUCERS[reducer], include_self=False)
    given = (None if op == "copy_rhs" else u, None if op == "copy_lhs" else e)
    torch.testing.assert_close(ops.gspmm(example(idtype), op, reducer, *given), wanted)


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("targets", ["uv", "ue", "vu", "ve", "eu", "ev"])
def test_gsddmm(op: str, targets: str) -> None:
    whole = {"u": torch.rand(4, 3) + 1, "v": torch.rand(4, 3) + 1, "e": torch.rand(5, 3) + 1}
    rows = {"u": whole["u"][SRC], "v": whole["v"][DST], "e": whole["e"]}
    left, right = targets
    given = (None if op == "copy_rhs" else whole[left], None if op == "copy_lhs" else whole[right])
    if op == "copy_rhs" and right == "v":
        given = (None, whole["v"])
    found = ops.gsddmm(example(), op, *given, left, right)
    torch.testing.assert_close(found, OPERATORS[op](rows[left], rows[right]))


def test_names_made_of_parts() -> None:
    g, u, e = example(), torch.rand(4, 2), torch.rand(5, 2)
    assert torch.equal(ops.u_mul_e_sum(g, u, e), ops.gspmm(g, "mul", "sum", u, e))
    assert torch.equal(ops.copy_e_max(g, e), ops.gspmm(g, "copy_rhs", "max", None, e))
    assert torch.equal(ops.copy_u_mean(g, u), ops.gspmm(g, "copy_lhs", "mean", u, None))
    assert torch.equal(ops.copy_u(g, u), u[SRC])
    assert torch.equal(ops.copy_v(g, u), u[DST])
    assert torch.equal(ops.u_dot_v(g, u, u), (u[SRC] * u[DST]).sum(-1, keepdim=True))
    with pytest.raises(AttributeError, match="has no attribute 'u_pow_v'"):
        _ = ops.u_pow_v


def test_numpy_arrays_come_and_go() -> None:
    ends = (SRC.numpy(), DST.numpy())
    g = vgraph.graph(ends, num_nodes=4)
    u = np.random.default_rng(0).random((4, 3), dtype=np.float32)
    found = ops.copy_u_sum(g, u)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, ops.copy_u_sum(g, torch.from_numpy(u)).numpy())
    frozen = u.copy()
    frozen.flags.writeable = False
    np.testing.assert_allclose(ops.copy_u_sum(g, frozen), found)
    assert isinstance(ops.edge_softmax(g, np.zeros(5, np.float32)), np.ndarray)
    assert isinstance(ops.segment_softmax(np.array([2, 3]), np.zeros(5)), np.ndarray)
    assert isinstance(ops.gather_mm(u, np.ones((2, 3, 1), np.float32), idx_b=np.array([0, 1, 1, 0])), np.ndarray)


class Foreign:
    """An array of a library that knows of others by DLPack only."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **how: Any) -> Any:
        return self.tensor.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


def test_arrays_of_other_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    library = types.ModuleType("foreign")
    library.from_dlpack = lambda array: Foreign(torch.from_dlpack(array))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "foreign", library)
    monkeypatch.setattr(Foreign, "__module__", "foreign")
    u = torch.rand(4, 2)
    g = vgraph.graph((Foreign(SRC), Foreign(DST)), num_nodes=4)
    found = ops.copy_u_sum(g, Foreign(u))
    assert isinstance(found, Foreign)
    assert torch.equal(found.tensor, ops.copy_u_sum(example(), u))


def test_memory_is_not_copied() -> None:
    array = np.zeros(4, np.float32)
    assert ops._as_tensor(array).data_ptr() == array.__array_interface__["data"][0]


def test_edge_softmax() -> None:
    g, logits = example(), torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    found = ops.edge_softmax(g, logits)
    for end in range(4):
        torch.testing.assert_close(found[end == DST], logits[end == DST].softmax(0))
    by_source = ops.edge_softmax(g, logits, norm_by="src")
    for end in range(4):
        torch.testing.assert_close(by_source[end == SRC], logits[end == SRC].softmax(0))
    assert torch.autograd.gradcheck(lambda x: ops.edge_softmax(g, x), logits)
    assert torch.autograd.gradgradcheck(lambda x: ops.edge_softmax(g, x), logits)
    part = ops.edge_softmax(g, logits[[0, 2]], eids=[0, 2])
    assert part.tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("counts", [[3, 0, 70, 1], [0, 0], [64, 65, 63]])
def test_grouped_products(counts: list[int]) -> None:
    lengths = torch.tensor(counts)
    a = torch.randn(sum(counts), 5, dtype=torch.float64)
    b = torch.randn(len(counts), 5, 4, dtype=torch.float64)
    parts = [rows @ matrix for rows, matrix in zip(a.split(counts), b, strict=True)]
    torch.testing.assert_close(ops.segment_mm(a, b, lengths), torch.cat(parts))
    order = torch.randperm(sum(counts))
    types = torch.arange(len(counts)).repeat_interleave(lengths)[order]
    torch.testing.assert_close(ops.gather_mm(a[order], b, idx_b=types), torch.cat(parts)[order])


def test_derivatives_of_grouped_products() -> None:
    a = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    b = torch.randn(3, 3, 2, dtype=torch.float64, requires_grad=True)
    types = torch.tensor([2, 0, 2, 2, 0, 0])
    assert torch.autograd.gradcheck(lambda a, b: ops.gather_mm(a, b, idx_b=types), (a, b))
    assert torch.autograd.gradgradcheck(lambda a, b: ops.gather_mm(a, b, idx_b=types), (a, b))


@pytest.mark.parametrize(
    ("call", "error", "fact"),
    [
        (lambda: ops.gspmm(example(), "pow", "sum", torch.ones(4), None), FunctionError, "no operator 'pow'"),
        (lambda: ops.gspmm(example(), "add", "std", torch.ones(4), None), FunctionError, "no reducer 'std'"),
        (lambda: ops.gsddmm(example(), "add", torch.ones(4), None, "x"), FunctionError, "no target 'x'"),
        (lambda: ops.gsddmm(example(), "add", torch.ones(4), torch.ones(4), "u", "u"), FunctionError, "two different"),
        (lambda: ops.edge_softmax(example(), torch.ones(4)), FeatureError, r"\(4,\) rows for 5 places"),
        (lambda: ops.edge_softmax(example(), torch.ones(5), norm_by="e"), FunctionError, "norm_by is 'e'"),
        (lambda: ops.segment_reduce(torch.tensor([1]), torch.ones(2)), FeatureError, r"\(2,\) rows for 1 places"),
        (lambda: ops.segment_reduce(torch.tensor([2]), torch.ones(2), "std"), FunctionError, "no reducer 'std'"),
        (lambda: ops.segment_mm(torch.ones(2, 3), torch.ones(1, 3, 1), torch.tensor([1])), FeatureError, "with sum 1"),
        (lambda: ops.segment_mm(torch.ones(2, 3), torch.ones(1, 2, 1), torch.tensor([2])), FeatureError, "b is"),
        (
            lambda: ops.gather_mm(torch.ones(1, 3), torch.ones(1, 3, 1), idx_b=torch.tensor([1])),
            FeatureError,
            "types are from 1 to 1 where there are 1 matrices",
        ),
        (
            lambda: ops.gather_mm(torch.ones(2, 3), torch.ones(1, 3, 1), idx_b=torch.tensor([0])),
            FeatureError,
            "for 2 rows",
        ),
    ],
)
def test_refusals(call: Any, error: type[Exception], fact: str) -> None:
    with pytest.raises(error, match=fact):
        call()


G = vgraph.graph(([0, 1], [2, 2]))
X = np.ones((3, 2))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: ops.copy_u_sum(G, np.ones((5, 2))), FeatureError, r"lhs has shape \(5, 2\), and there are 3 sources"),
        (lambda: ops.copy_e_sum(G, np.ones(3)), FeatureError, r"rhs has shape \(3,\), and there are 2 edges"),
        (lambda: ops.u_add_v(G, X, X[:1]), FeatureError, r"rhs has shape \(1, 2\), and there are 3 destinations"),
        (lambda: ops.copy_u_sum(G, np.array(3.0)), FeatureError, r"lhs has shape \(\)"),
        (lambda: ops.copy_u_sum(G, [1.0, 2.0, 3.0]), DTypeError, "lhs is a list"),
        (lambda: ops.copy_u_sum(G, np.array(["a", "b", "c"])), DTypeError, "no numbers like those of an array of <U1"),
        (lambda: ops.copy_u_sum(X, G), FunctionError, "g is a Tensor\n.*\n  cure: pass the graph first"),
        (lambda: ops.gspmm(G, "mul", "sum", X, None), FunctionError, "rows that 'mul' needs are None"),
        (lambda: ops.segment_reduce(np.array([-1, 3]), np.ones(2)), FeatureError, r"lengths of segments .*\[-1, 3\]"),
        (lambda: ops.segment_reduce(np.array([0.5, 1.5]), np.ones(2)), FeatureError, "one whole number from 0 up"),
    ],
)  # fmt: skip
def test_rows_that_are_none(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize(
    "rows", [np.arange(6.0).reshape(3, 2)[::-1], np.arange(12.0).reshape(3, 4)[:, ::-2], np.ones((3, 2), ">f8")]
)
def test_arrays_that_torch_has_no_words_for_are_copied(rows: Any) -> None:
    np.testing.assert_allclose(ops.copy_u_sum(G, rows), [[0, 0], [0, 0], rows[0] + rows[1]])


def test_a_tensor_beside_an_array_keeps_its_gradient() -> None:
    w = torch.ones(2, 1, dtype=torch.float64, requires_grad=True)
    found = ops.u_mul_e_sum(G, X, w)
    assert isinstance(found, Tensor)
    (slope,) = torch.autograd.grad(found.sum(), w)
    assert slope.tolist() == [[2], [2]]


def test_without_edges_the_rows_have_the_messages_shape() -> None:
    none = vgraph.graph(([], []), num_nodes=2)
    assert ops.gspmm(none, "mul", "sum", torch.ones(2, 1), torch.ones(0, 3)).shape == (2, 3)
    assert ops.gspmm(none, "dot", "max", torch.ones(2, 3), torch.ones(0, 3)).shape == (2, 1)
    assert ops.copy_u_sum(none, torch.ones(2, 4)).shape == (2, 4)


def test_without_edges_there_are_gradients_dtypes_and_memory_as_with_some() -> None:
    none, x, y = vgraph.graph(([], []), num_nodes=2), torch.ones(2, 3, requires_grad=True), torch.ones(0, 3).double()
    no_rows = torch.zeros(2, dtype=torch.int64)
    found = [ops.u_mul_e_sum(none, x, y), ops.copy_u_max(none, x), ops.segment_reduce(no_rows, x[:0], "mean")]
    assert torch.autograd.grad(sum(out.sum() for out in found), x)[0].tolist() == [[0] * 3] * 2
    assert found[0].dtype == torch.float64
    assert ops.segment_softmax(no_rows, y) is not y


def test_dot_products_of_numbers_are_products() -> None:
    """As DGL's are, where a row is one number; also without edges."""
    g, a, w = example(), torch.rand(4), torch.rand(5)
    assert torch.equal(ops.u_dot_v(g, a, a), a[SRC] * a[DST])
    assert ops.u_dot_v(vgraph.graph(([], []), num_nodes=4), a, a).shape == (0,)
    g.ndata["a"], g.edata["w"] = a, w
    g.update_all(fn.e_dot_u("w", "a", "m"), fn.sum("m", "s"))
    torch.testing.assert_close(g.ndata["s"], torch.zeros(4).index_add(0, DST, w * a[SRC]))
