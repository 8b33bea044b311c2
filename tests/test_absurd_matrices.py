"""What nobody can mean, for every argument of sparse matrices.

Each is accepted, or refused by an error of vgraph's that tells its cure, and what it was asked of stays as it was.
Operators between a matrix and what it has no operator with are Python's ``TypeError``, as of its own numbers.
"""

from __future__ import annotations

import inspect
import operator
from typing import Any

import pytest
import torch

import vgraph.sparse as sp
from tests.test_absurd_calls import failures
from tests.test_absurd_values import ABSURD, parameters_of
from vgraph.errors import DeviceError, FeatureError, GraphError, VGraphError

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta state")


def matrix(k: int | None = None) -> sp.SparseMatrix:
    value = torch.tensor([1.0, 2.0, 3.0]) if k is None else torch.ones(3, k)
    return sp.spmatrix(torch.tensor([[0, 1, 1], [0, 0, 1]]), value, (2, 2))


A, ONES, IDS = matrix(), torch.ones(2), torch.tensor([0, 1])
PARTS = {"val": ONES, "shape": (2, 2)}
# function of vgraph.sparse -> arguments that it takes
FUNCTIONS: dict[str, dict[str, Any]] = {
    **{name: {"A": A, "B": A} for name in ("add", "sub", "mul", "div", "matmul", "spspmm")},
    **{name: {"A": A} for name in ("neg", "inv")},
    **{name: {"input": A} for name in ("softmax", "reduce", "sum", "smin", "smax", "smean", "sprod")},
    **{f"sp_{name}_v": {"A": A, "v": ONES} for name in ("add", "sub", "mul", "div")},
    **{f"to_torch_sparse_{name}": {"spmat": A} for name in ("coo", "csr", "csc")},
    **{f"from_{name}": {"indptr": torch.tensor([0, 1, 2]), "indices": IDS, **PARTS} for name in ("csr", "csc")},
    "inv": {"A": sp.identity((2, 2))},
    "power": {"A": A, "scalar": 2},
    "spmm": {"A": A, "X": torch.ones(2, 2)},
    "bspmm": {"A": matrix(2), "X": torch.ones(2, 3, 2)},
    "sddmm": {"A": A, "X1": torch.ones(2, 2), "X2": torch.ones(2, 2)},
    "bsddmm": {"A": A, "X1": torch.ones(2, 3, 2), "X2": torch.ones(3, 2, 2)},
    "sp_broadcast_v": {"A": A, "v": ONES, "op": "add"},
    "spmatrix": {"indices": torch.tensor([[0, 1], [0, 1]]), **PARTS},
    "from_coo": {"row": IDS, "col": IDS, **PARTS},
    "from_torch_sparse": {"torch_sparse_tensor": torch.eye(2).to_sparse()},
    "val_like": {"mat": A, "val": torch.ones(3)},
    "diag": {"val": ONES},
    "identity": {"shape": (2, 2)},
}
# method of a matrix -> arguments that it takes
METHODS: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("to", "softmax", "reduce", "sum", "smin", "smax", "smean", "sprod")},
    "with_values": {"val": torch.ones(3)},
    "sddmm": {"left": torch.ones(2, 2), "right": torch.ones(2, 2)},
    "index_select": {"dim": 0, "index": IDS},
    "range_select": {"dim": 0, "index": slice(0, 1)},
    "sample": {"dim": 0, "fanout": 1},
    "compact": {"dim": 0},
}


def state(one: sp.SparseMatrix) -> object:
    return one.indices().tolist(), one.val.tolist(), one.shape


def test_every_function_and_method_is_asked() -> None:
    assert {*FUNCTIONS} == {*sp.__all__} - {"SparseMatrix"}
    methods = {name for name, _ in inspect.getmembers(sp.SparseMatrix, inspect.isfunction) if name[0] != "_"}
    assert {name for name in methods if list(parameters_of(getattr(A, name)))} == {*METHODS}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function, valid = getattr(sp, name), FUNCTIONS[name]
    function(**valid)
    assert list(failures(function, valid, list(parameters_of(function)), lambda: state(A))) == []


@pytest.mark.parametrize("name", METHODS)
def test_methods(name: str) -> None:
    method, valid = getattr(A, name), METHODS[name]
    method(**valid)
    assert list(failures(method, valid, list(parameters_of(method)), lambda: state(A))) == []


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "matmul"])
@pytest.mark.parametrize("one", [matrix(), matrix(2)], ids=["a number an entry", "several"])
def test_operators(name: str, one: sp.SparseMatrix) -> None:
    before, wrong = state(one), list[str]()
    for value in (value for value in ABSURD if not isinstance(value, int) or value < 2**63):  # as torch's own tensors
        try:
            getattr(operator, name)(one, value)
        except VGraphError:
            pass
        except TypeError as error:
            if "unsupported operand" not in str(error) and "sequence" not in str(error):
                wrong.append(f"{value!r}: {error}")
        except Exception as error:
            wrong.append(f"{value!r}: {type(error).__name__}: {error}")
    assert (wrong, state(one)) == ([], before)


def test_ids_that_are_no_whole_numbers_were_rounded() -> None:
    with pytest.raises(VGraphError, match="ids are whole numbers"):
        A.compact(0, torch.tensor([0.5]))


def test_values_that_are_stored_sparsely_are_refused() -> None:
    with pytest.raises(FeatureError, match="laid out as torch"):
        sp.val_like(A, torch.ones(3).to_sparse())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is such a device")
def test_a_device_that_is_not_there_is_told_of_the_matrix() -> None:
    with pytest.raises(DeviceError, match="the matrix is to lie on cuda"):
        A.cuda()


def test_what_is_found_out_later_names_the_line_that_asks() -> None:
    huge = sp.spmatrix(torch.tensor([[0], [0]]), torch.ones(1), (2**62, 2**62))
    with pytest.raises(GraphError, match="than can be numbered") as caught:
        huge.coalesce()
    assert caught.value.line.startswith(__file__)
