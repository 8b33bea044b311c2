"""``dgl.backend``, ``dgl.geometry``, ``dgl.frame``, ``dgl.multiprocessing``, ``dgl.nn.pytorch.utils``."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

import vgraph
from tests.compat.backend_cases import CASES, F, X
from vgraph.compat.modules import lookup, names_of
from vgraph.errors import FeatureError, FunctionError, GraphError


def plain(found: Any) -> Any:
    """Tensors and arrays as lists of rounded numbers, dtypes and devices as words."""
    if isinstance(found, (torch.Tensor, np.ndarray)):
        return plain(found.tolist())
    if isinstance(found, (list, tuple)):
        return [plain(item) for item in found]
    if isinstance(found, (torch.dtype, torch.device)):
        return str(found)
    return round(found, 5) if isinstance(found, float) else found


@pytest.mark.parametrize("name", CASES)
def test_a_function_of_the_backend(name: str) -> None:
    call, wanted = CASES[name]
    assert plain(call()) == wanted


def test_what_the_backend_refuses() -> None:
    for name in ("binary_reduce", "copy_reduce"):
        with pytest.raises(FunctionError, match="of other libraries"):
            getattr(F, name)("sum", "add", None, 0, 0, X, X, 1, None, None, None)
    with pytest.raises(FeatureError, match="a view"):
        F.zerocopy_to_dgl_ndarray_for_write(X[:, :1])
    with pytest.raises(FunctionError, match="'csr'"):
        F.sparse_matrix(X, ("csr", X), (2, 2))
    with pytest.raises(FunctionError, match="some edges"):
        F.edge_softmax_hetero(vgraph.graph(([0], [1])), torch.tensor([0]), "dst", X)


def test_matrices_of_weights_carry_gradients() -> None:
    weights = torch.ones(2, dtype=torch.float64, requires_grad=True)
    g = vgraph.graph(([0, 1], [1, 0]))
    _, found = F.csrmm(g, weights, g, weights, 2)
    found.sum().backward()
    assert weights.grad is not None
    assert weights.grad.tolist() == [2, 2]


# ---------------------------------------------------------------- geometry
def test_farthest_points() -> None:
    sample = lookup("dgl.geometry", "farthest_point_sampler")
    cloud = torch.tensor([[[0.0], [1.0], [5.0], [9.0]], [[0.0], [1.0], [2.0], [7.0]]])
    assert sample(cloud, 3, 0).tolist() == [[0, 3, 2], [0, 3, 2]]
    assert sorted(sample(cloud, 4)[0].tolist()) == [0, 1, 2, 3]
    for arguments in ((5,), (2, 4), (2, -1)):
        with pytest.raises(GraphError, match="points"):
            sample(cloud, *arguments)


def test_points_matchings_and_diffusions_lie_where_their_graph_does() -> None:
    """Whatever torch's default device is."""
    g, cloud = vgraph.graph(([0, 1, 2], [1, 2, 0])), torch.rand(2, 5, 3)
    g.edata["w"] = torch.full((3,), 0.5)
    names = (("PPR", ()), ("HeatKernel", ()), ("GDC", ([0.5, 0.5],)))
    with torch.device("meta"):
        for name, arguments in names:
            assert lookup("dgl.transforms", name)(*arguments)(g).edata["w"].device.type == "cpu"
        assert lookup("dgl.geometry", "farthest_point_sampler")(cloud, 2).device.type == "cpu"
        assert lookup("dgl.geometry", "farthest_point_sampler")(cloud, 2, 1)[:, 0].tolist() == [1, 1]
        assert lookup("dgl.geometry", "neighbor_matching")(g).unique().tolist() == [0, 1]


def test_matching() -> None:
    match = lookup("dgl.geometry", "neighbor_matching")
    g = vgraph.to_bidirected(vgraph.graph((range(6), [1, 2, 3, 4, 5, 0])))
    for _ in range(5):
        label = match(g)
        assert label.bincount().max() <= 2
        assert label.unique().tolist() == list(range(int(label.max()) + 1))
        for number in label.unique():
            assert g.subgraph((label == number).nonzero()[:, 0]).num_edges() in (0, 2)
    path = vgraph.graph(([0, 1, 1, 2, 2, 3, 0], [1, 0, 2, 1, 3, 2, 0]))
    weights = torch.tensor([9.0, 9, 1, 1, 9, 9, 99])
    assert match(path, weights, relabel_idx=False).tolist() == [0, 0, 2, 2]
    for wrong in (weights[1:], -weights):
        with pytest.raises(GraphError, match="weights"):
            match(path, wrong)
    with pytest.raises(GraphError, match="several types"):
        match(vgraph.heterograph({("u", "a", "v"): ([0], [0])}))


# ---------------------------------------------------------------- frames
def test_columns_of_columns() -> None:
    Column = lookup("dgl.frame", "Column")
    data = torch.arange(10.0).reshape(5, 2)
    some = Column(data).subcolumn(torch.tensor([0, 2, 1, 3]))
    fewer = some.subcolumn(torch.tensor([0, 2]))
    assert (len(fewer), fewer.data.tolist()) == (2, data[[0, 1]].tolist())
    assert torch.equal(pickle.loads(pickle.dumps(some)).data, data[[0, 2, 1, 3]])
    assert pickle.loads(pickle.dumps(Column(data).astype(torch.int64))).dtype == torch.int64
    fewer[torch.tensor([0])] = torch.ones(1, 2)
    assert fewer.data[0].tolist() == [1, 1]
    assert data[0].tolist() == [0, 1]
    fewer.extend(torch.zeros(1, 2))
    assert len(fewer) == 3
    with pytest.raises(FeatureError, match="rows of Scheme"):
        fewer.extend(torch.zeros(1, 3))


def test_a_frame() -> None:
    Frame, zeros = lookup("dgl.frame", "Frame"), lookup("dgl.frame", "zero_initializer")
    frame = Frame({"a": torch.ones(2, 3)})
    frame.set_initializer(lambda shape, dtype, ctx, ids: torch.full(shape, 7, dtype=dtype), "a")
    frame.add_rows(1)
    frame.append({"a": torch.zeros(1, 3), "b": torch.ones(1)})
    assert frame["a"][:, 0].tolist() == [1, 1, 7, 0]
    assert frame["b"].tolist() == [0, 0, 0, 1]
    frame.update_row(torch.tensor([0]), {"b": torch.tensor([5.0]), "c": torch.tensor([6])})
    assert (frame["b"].tolist(), frame["c"].tolist(), frame.num_columns) == ([5, 0, 0, 1], [6, 0, 0, 0], 3)
    part = frame.subframe(torch.tensor([3, 0])).double().to("cpu")
    assert (part["b"].tolist(), part["b"].dtype, part["c"].dtype) == ([1, 5], torch.float64, torch.int64)
    copied = frame.deepclone()
    copied["b"] = torch.zeros(4)
    assert frame["b"][0] == 5
    assert zeros((2,), torch.int64, "cpu", slice(0, 2)).tolist() == [0, 0]
    with pytest.raises(FeatureError, match="3 rows"):
        frame["d"] = torch.ones(3)
    frame.clear()
    assert (len(frame), frame.num_rows) == (0, 0)


# ---------------------------------------------------------------- processes and layers' words
def _fail(word: str) -> None:
    raise KeyError(word)


def test_a_function_in_a_thread_of_its_own() -> None:
    in_thread = lookup("dgl.multiprocessing", "thread_wrapped_func")
    assert in_thread(divmod)(7, 2) == (3, 1)
    with pytest.raises(KeyError, match="word"):
        in_thread(_fail)("word")


def test_a_process_runs_its_target() -> None:
    found: list[int] = []
    process = lookup("dgl.multiprocessing", "Process")(target=found.append, args=(3,))
    process.run()  # what start() calls in the child
    assert found == [3]
    assert lookup("dgl.multiprocessing", "Queue") is torch.multiprocessing.Queue
    assert lookup("dgl.multiprocessing", "cpu_count")() >= 1


def test_products_with_ids_or_rows() -> None:
    matmul, bmm = (lookup("dgl.nn.pytorch.utils", f"{name}_maybe_select") for name in ("matmul", "bmm"))
    ids, matrices = torch.tensor([1, 0]), torch.stack([X, 2 * X])
    rows = torch.nn.functional.one_hot(ids).float()
    assert matmul(ids, X).tolist() == matmul(rows, X).tolist() == [[3, 4], [1, 2]]
    assert bmm(ids, matrices, ids).tolist() == bmm(rows, matrices, ids).tolist() == [[6, 8], [1, 2]]
    assert lookup("dgl.nn.pytorch.utils", "Identity")()(X) is X
    assert lookup("dgl.nn.pytorch.utils", "JumpingKnowledge") is vgraph.nn.JumpingKnowledge


def test_all_of_the_backend_with_a_star() -> None:
    assert set(CASES) - {"reverse_data_type_dict"} <= set(names_of("dgl.backend"))
    assert {"float32", "int64", "bool"} <= set(names_of("dgl.backend"))
