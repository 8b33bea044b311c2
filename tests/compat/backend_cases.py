"""Every function of ``dgl.backend``: a call, and what it gives as nested lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import vgraph
from vgraph.compat.modules import lookup


class Words:
    """``dgl.backend`` as a program has it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lookup("dgl.backend", name)


F = Words()
X = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
IDS = torch.tensor([1, 0])
MASK = torch.tensor([True, False])
INF = float("inf")


def pair() -> vgraph.Graph:
    return vgraph.graph(([0, 0, 1], [1, 1, 0]))


def typed() -> vgraph.Graph:
    return vgraph.heterograph({("u", "a", "v"): ([0, 1], [0, 0]), ("v", "b", "v"): ([0], [0])}, {"u": 2, "v": 1})


def with_grad() -> list[Any]:
    x = F.attach_grad(torch.ones(1))
    before, recording = F.is_no_grad(x), F.is_recording()
    with F.record_grad():
        F.backward((x * 3).sum(), torch.ones(1))
    found = [before, recording, F.grad(x).clone(), F.is_no_grad(x), F.grad(F.attach_grad(x))]
    with F.no_grad():
        return [*found, F.is_recording()]


def in_place(function: Callable[..., object], *arguments: object) -> torch.Tensor:
    x = X.clone()
    function(x, *arguments)
    return x


def of_graph(found: tuple[vgraph.Graph, torch.Tensor]) -> list[Any]:
    g, weights = found
    return [*g.edges(), weights, g.num_nodes()]


CASES: dict[str, tuple[Callable[[], object], object]] = {
    "tensor": (
        lambda: [F.tensor(3), F.tensor([X[0, 0], X[1, 1]]), F.tensor([1], F.float32).dtype],
        [[3], [1, 4], "torch.float32"],
    ),
    "as_scalar": (lambda: F.as_scalar(X[1, 0]), 3),
    "data_type_dict": (lambda: F.data_type_dict["bfloat16"], "torch.bfloat16"),
    "reverse_data_type_dict": (lambda: F.reverse_data_type_dict[torch.uint8], "uint8"),
    "backend_name": (lambda: F.backend_name, "pytorch"),
    "get_preferred_backend": (lambda: F.get_preferred_backend(), "pytorch"),
    "is_enabled": (lambda: [F.is_enabled("topk"), F.is_enabled("nothing")], [True, False]),
    "cpu": (lambda: F.cpu(), "cpu"),
    "cuda": (lambda: F.cuda(1), "cuda:1"),
    "is_tensor": (lambda: [F.is_tensor(X), F.is_tensor([1])], [True, False]),
    "shape": (lambda: F.shape(X), [2, 2]),
    "dtype": (lambda: F.dtype(X), "torch.float32"),
    "ndim": (lambda: F.ndim(X), 2),
    "context": (lambda: F.context(X), "cpu"),
    "device_type": (lambda: F.device_type("cuda:1"), "cuda"),
    "device_id": (lambda: [F.device_id("cpu"), F.device_id("cuda:1")], [0, 1]),
    "to_backend_ctx": (lambda: F.to_backend_ctx("cpu"), "cpu"),
    "astype": (lambda: F.astype(X, F.int32), [[1, 2], [3, 4]]),
    "asnumpy": (lambda: [F.asnumpy(X.to_sparse()), F.asnumpy(X.clone().requires_grad_())], [[[1, 2], [3, 4]]] * 2),
    "copy_to": (lambda: F.copy_to(X, "cpu"), [[1, 2], [3, 4]]),
    "is_pinned": (lambda: F.is_pinned(X), False),
    "sum": (lambda: [F.sum(X, 0), F.sum(X, 1, keepdims=True)], [[4, 6], [[3], [7]]]),
    "reduce_sum": (lambda: F.reduce_sum(X), 10),
    "floor_div": (lambda: F.floor_div(torch.tensor([7]), torch.tensor([2])), [3]),
    "cumsum": (lambda: F.cumsum(X, 0), [[1, 2], [4, 6]]),
    "mean": (lambda: F.mean(X, 1), [1.5, 3.5]),
    "reduce_mean": (lambda: F.reduce_mean(X), 2.5),
    "max": (lambda: F.max(X, 0), [3, 4]),
    "reduce_max": (lambda: F.reduce_max(X), 4),
    "min": (lambda: F.min(X, 0), [1, 2]),
    "reduce_min": (lambda: F.reduce_min(X), 1),
    "prod": (lambda: F.prod(X, 1), [2, 12]),
    "argsort": (lambda: F.argsort(X, 1, True), [[1, 0], [1, 0]]),
    "topk": (lambda: F.topk(X, 1, 1, False), [[1], [3]]),
    "argtopk": (lambda: F.argtopk(X, 1, 0), [[1, 1]]),
    "exp": (lambda: F.exp(torch.zeros(1)), [1]),
    "inverse": (lambda: F.inverse(torch.eye(2) * 2), [[0.5, 0], [0, 0.5]]),
    "sqrt": (lambda: F.sqrt(torch.tensor([9.0])), [3]),
    "softmax": (lambda: F.softmax(torch.zeros(2, 4)), [[0.25] * 4] * 2),
    "cat": (lambda: F.cat([X[0], X[1]], 0), [1, 2, 3, 4]),
    "stack": (lambda: F.stack([X[0], X[1]], 1), [[1, 3], [2, 4]]),
    "split": (lambda: F.split(X, [1, 1], 1), [[[1], [3]], [[2], [4]]]),
    "repeat": (lambda: F.repeat(X, torch.tensor([1, 2]), 0), [[1, 2], [3, 4], [3, 4]]),
    "gather_row": (lambda: F.gather_row(X, IDS.int()), [[3, 4], [1, 2]]),
    "slice_axis": (lambda: F.slice_axis(X, 1, 1, 2), [[2], [4]]),
    "take": (lambda: F.take(X, IDS[None], 1), [[[2, 1]], [[4, 3]]]),
    "narrow_row": (lambda: F.narrow_row(X, 1, 2), [[3, 4]]),
    "scatter_row": (lambda: F.scatter_row(X, IDS[:1], torch.zeros(1, 2)), [[1, 2], [0, 0]]),
    "index_add_inplace": (lambda: in_place(F.index_add_inplace, IDS, X), [[4, 6], [4, 6]]),
    "scatter_row_inplace": (lambda: in_place(F.scatter_row_inplace, IDS, X), [[3, 4], [1, 2]]),
    "squeeze": (lambda: F.squeeze(X[:1], 0), [1, 2]),
    "unsqueeze": (lambda: F.unsqueeze(X[0], 0), [[1, 2]]),
    "reshape": (lambda: F.reshape(X, (4,)), [1, 2, 3, 4]),
    "swapaxes": (lambda: F.swapaxes(X, 0, 1), [[1, 3], [2, 4]]),
    "empty": (lambda: F.empty((2, 3), F.int64, F.cpu()).shape, [2, 3]),
    "zeros": (lambda: F.zeros((2,), F.int64, F.cpu()), [0, 0]),
    "zeros_like": (lambda: F.zeros_like(X), [[0, 0], [0, 0]]),
    "ones": (lambda: F.ones((2,), F.int64, F.cpu()), [1, 1]),
    "uniform": (lambda: F.uniform((2,), F.float64, F.cpu(), 3, 3), [3, 3]),
    "randint": (lambda: F.randint((2,), F.int64, F.cpu(), 3, 4), [3, 3]),
    "pad_packed_tensor": (
        lambda: [F.pad_packed_tensor(X[:, 0], torch.tensor([2, 0]), 9, 3), F.pad_packed_tensor(X, [1, 1], 0).shape],
        [[[1, 3, 9], [9, 9, 9]], [2, 1, 2]],
    ),
    "pack_padded_tensor": (lambda: F.pack_padded_tensor(X, [1, 2]), [1, 3, 4]),
    "boolean_mask": (lambda: F.boolean_mask(X, MASK.byte()), [[1, 2]]),
    "equal": (lambda: F.equal(X, X.T), [[True, False], [False, True]]),
    "allclose": (lambda: [F.allclose(X, X + 5e-5), F.allclose(X, X + 1)], [True, False]),
    "logical_not": (lambda: F.logical_not(MASK), [False, True]),
    "logical_and": (lambda: F.logical_and(MASK, ~MASK), [False, False]),
    "clone": (lambda: F.clone(X).data_ptr() == X.data_ptr(), False),
    "clamp": (lambda: F.clamp(X, 2, 3), [[2, 2], [3, 3]]),
    "replace_inf_with_zero": (lambda: F.replace_inf_with_zero(torch.tensor([INF, -INF, 1])), [0, 0, 1]),
    "count_nonzero": (lambda: F.count_nonzero(torch.tensor([0, 2, 3])), 2),
    "unique": (lambda: [F.unique(MASK), F.unique(IDS, return_counts=True)[1]], [[0, 1], [1, 1]]),
    "full_1d": (lambda: F.full_1d(2, 7, F.int64, F.cpu()), [7, 7]),
    "nonzero_1d": (lambda: F.nonzero_1d(MASK), [0]),
    "sort_1d": (lambda: F.sort_1d(torch.tensor([3, 1])), [[1, 3], [1, 0]]),
    "arange": (lambda: F.arange(1, 3), [1, 2]),
    "rand_shuffle": (lambda: F.rand_shuffle(torch.arange(9)).sort().values, list(range(9))),
    "zerocopy_to_dlpack": (lambda: F.zerocopy_from_dlpack(F.zerocopy_to_dlpack(X)), [[1, 2], [3, 4]]),
    "zerocopy_from_dlpack": (lambda: F.zerocopy_from_dlpack(X).data_ptr() == X.data_ptr(), True),
    "zerocopy_to_numpy": (lambda: F.zerocopy_to_numpy(X), [[1, 2], [3, 4]]),
    "zerocopy_from_numpy": (lambda: F.zerocopy_from_numpy(np.arange(2)), [0, 1]),
    "zerocopy_to_dgl_ndarray": (lambda: F.zerocopy_to_dgl_ndarray(MASK), [1, 0]),
    "zerocopy_to_dgl_ndarray_for_write": (lambda: F.zerocopy_to_dgl_ndarray_for_write(X), [[1, 2], [3, 4]]),
    "zerocopy_from_dgl_ndarray": (lambda: F.zerocopy_from_dgl_ndarray(X), [[1, 2], [3, 4]]),
    "to_dgl_nd": (lambda: F.to_dgl_nd(MASK), [1, 0]),
    "from_dgl_nd": (lambda: F.from_dgl_nd(X), [[1, 2], [3, 4]]),
    "sync": (lambda: F.sync(), None),
    **dict.fromkeys(
        ("attach_grad", "backward", "grad", "is_no_grad", "is_recording", "record_grad", "no_grad"),
        (with_grad, [True, True, [3], False, [0], False]),
    ),
    "get_preferred_sparse_format": (lambda: F.get_preferred_sparse_format(), "coo"),
    "sparse_matrix": (
        lambda: F.sparse_matrix(torch.ones(1), ("coo", torch.tensor([[0], [1]])), (2, 2))[0].to_dense(),
        [[0, 1], [0, 0]],
    ),
    "sparse_matrix_indices": (lambda: F.sparse_matrix_indices(X.to_sparse()), ["coo", [[0, 0, 1, 1], [0, 1, 0, 1]]]),
    "gspmm": (lambda: F.gspmm(pair(), "mul", "sum", X, torch.ones(3, 1)), [[3, 4], [2, 4]]),
    "gsddmm": (lambda: F.gsddmm(pair(), "add", X, X, "u", "v"), [[4, 6], [4, 6], [4, 6]]),
    "gspmm_hetero": (
        lambda: [
            F.gspmm_hetero(typed(), "copy_lhs", "max", 2, -X, -X[:1] * 3, None, None),
            F.gspmm_hetero(typed(), "mul", "sum", 2, X, X[:1], torch.ones(2, 1), torch.ones(1, 1)),
            F.gspmm_hetero(typed(), "copy_rhs", "sum", 2, None, None, X, None),
        ],
        [[None, [[-1, -2]]], [None, [[5, 8]]], [None, [[4, 6]]]],
    ),
    "gsddmm_hetero": (
        lambda: F.gsddmm_hetero(typed(), "sub", 2, "u", "v", X, X[:1], X, X[:1]),
        [[[0, 0], [2, 2]], [[0, 0]]],
    ),
    "edge_softmax": (lambda: F.edge_softmax(pair(), torch.zeros(3, 1)), [[0.5], [0.5], [1]]),
    "edge_softmax_hetero": (
        lambda: F.edge_softmax_hetero(typed(), "__ALL__", "dst", torch.zeros(2, 1), torch.full((1, 1), 2.0).log()),
        [[[0.25], [0.25]], [[0.5]]],
    ),
    "segment_reduce": (lambda: F.segment_reduce("sum", X, torch.tensor([0, 2, 2])), [[4, 6], [0, 0]]),
    "scatter_add": (lambda: F.scatter_add(X, torch.tensor([2, 2]), 3), [[0, 0], [0, 0], [4, 6]]),
    "gather_mm": (
        lambda: [F.gather_mm(X, torch.stack([X, 2 * X]), idx_B=IDS), F.gather_mm(X, torch.stack([X, X]), IDS)],
        [[[14, 20], [15, 22]], [[15, 22], [7, 10]]],
    ),
    "segment_mm": (lambda: F.segment_mm(X, torch.stack([X, 2 * X]), torch.tensor([1, 1])), [[7, 10], [30, 44]]),
    "csrmm": (
        lambda: of_graph(F.csrmm(vgraph.graph(([0], [1])), X[0, :1], vgraph.graph(([1], [0])), X[1, :1], 1)),
        [[0], [0], [3], 2],
    ),
    "csrsum": (
        lambda: of_graph(F.csrsum([vgraph.graph(([0], [1])), vgraph.graph(([0], [1]))], [X[0, :1], X[1, :1]])),
        [[0], [1], [4], 2],
    ),
    "csrmask": (lambda: F.csrmask(vgraph.graph(([0, 1], [1, 0])), X[0], vgraph.graph(([1, 1], [0, 1]))), [2, 0]),
}
