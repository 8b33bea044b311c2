"""Sums of rows mapped by their edges' types, against a loop over edges; plans that are kept; refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import vgraph
from vgraph.errors import FeatureError
from vgraph.nn import RelGraphConv, RelGraphEmbedding

F64 = torch.float64


def a_graph(num_src: int, num_dst: int, num_edges: int, idtype: torch.dtype = torch.int64) -> vgraph.Graph:
    """Sources of most edges, destinations of others: types of both kinds of plans."""
    src, dst = torch.randint(num_src, (num_edges,)), torch.randint(num_dst, (num_edges,))
    src[: num_edges // 2] = 0
    dst[num_edges // 2 :] = num_dst - 1
    ends = {("a", "r", "b"): (src.to(idtype), dst.to(idtype))}
    return vgraph.heterograph(ends, {"a": num_src, "b": num_dst})


def by_edge(g: vgraph.Graph, x: Tensor, w: Tensor, types: Tensor, norm: Tensor | None) -> Tensor:
    src, dst = g.edges()
    blocks = [torch.block_diag(*some) if some.ndim == 3 else some for some in w]
    rows = []
    for e in range(len(src)):
        of = blocks[int(types[e])]
        row = (of.unsqueeze(1) * x[src[e]]).sum(0) if x.ndim == 3 else x[src[e]] @ of
        rows.append(row if norm is None else row * norm[e])
    out = torch.zeros(g.num_dst_nodes(), len(rows[0]), dtype=F64)
    return out.index_add(0, dst.long(), torch.stack(rows))


SHAPES = [((5,), (3, 5, 4)), ((6,), (3, 2, 3, 2)), ((5, 4), (3, 5))]


@pytest.mark.parametrize("idtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(("row", "matrices"), SHAPES, ids=["matrices", "blocks", "bases"])
def test_against_a_loop(row: tuple[int, ...], matrices: tuple[int, ...], normed: bool, idtype: torch.dtype) -> None:
    g = a_graph(7, 5, 40, idtype)
    types = torch.cat([torch.randint(2, (20,)), torch.randint(1, 3, (20,))]).to(idtype)
    x, w = torch.randn(7, *row, dtype=F64, requires_grad=True), torch.randn(matrices, dtype=F64, requires_grad=True)
    norm = torch.randn(40, 1, dtype=F64, requires_grad=True) if normed else None
    given = [x, w, *([] if norm is None else [norm])]
    found, expected = (f(g, x, w, types, norm) for f in (vgraph.ops.typed_sum, by_edge))
    torch.testing.assert_close(found, expected)
    grads = [torch.autograd.grad(out.sin().sum(), given, create_graph=True) for out in (found, expected)]
    torch.testing.assert_close(*grads)
    second = [torch.autograd.grad(sum(d.square().sum() for d in g), given) for g in grads]
    torch.testing.assert_close(*second)


def test_maps_run_on_fewest_rows() -> None:
    # one source, many destinations: one row is mapped; and the other way round
    g = vgraph.graph((torch.tensor([0] * 200 + list(range(1, 200))), torch.tensor([*range(200), *([0] * 199)])))
    types = torch.tensor([0] * 200 + [1] * 199)
    vgraph.ops.typed_sum(g, torch.ones(200, 2), torch.ones(2, 2, 2), types)
    ((_, plan),) = (kept for key, kept in g.topology.kept.items() if isinstance(key, tuple) and key[1:] == (2,))
    assert plan.tile_types.tolist() == [0, 1] and plan.entries.num_edges == 1 + 199
    assert plan.exits.num_edges == 200 + 1


def test_a_plan_follows_types_that_change() -> None:
    g, w = vgraph.graph(([0, 1], [1, 0])), torch.tensor([[[1.0]], [[10.0]]])
    types = torch.tensor([0, 1])
    assert vgraph.ops.typed_sum(g, torch.ones(2, 1), w, types).flatten().tolist() == [10, 1]
    types[0] = 1
    assert vgraph.ops.typed_sum(g, torch.ones(2, 1), w, types).flatten().tolist() == [10, 10]
    rows = torch.ones(2, 1)
    assert vgraph.ops.gather_mm(rows, w, idx_b=types).flatten().tolist() == [10, 10]
    types[1] = 0
    assert vgraph.ops.gather_mm(rows, w, idx_b=types).flatten().tolist() == [10, 1]


def test_no_edges_and_numpy() -> None:
    g = vgraph.graph(([], []), num_nodes=3)
    x = torch.ones(3, 2, requires_grad=True)
    out = vgraph.ops.typed_sum(g, x, torch.ones(2, 2, 4), torch.empty(0, dtype=torch.int64))
    assert out.shape == (3, 4) and not torch.autograd.grad(out.sum(), x)[0].any()
    g = vgraph.graph(([0], [1]))
    found = vgraph.ops.typed_sum(g, np.ones((2, 1)), np.full((1, 1, 1), 3.0), np.zeros(1, np.int64))
    assert isinstance(found, np.ndarray) and found.tolist() == [[0], [3]]


def test_the_layer_of_vertices_without_features_is_the_one_on_one_hot_rows() -> None:
    g = vgraph.rand_graph(6, 20)
    types, norm = torch.randint(3, (20,)), torch.rand(20, 1)
    layer, wide = RelGraphEmbedding(6, 4, 3, 2), RelGraphConv(6, 4, 3, "basis", 2, self_loop=False)
    wide.load_state_dict(
        {"linear_r.W": layer.weight.transpose(0, 1), "linear_r.coeff": layer.coeff, "h_bias": layer.h_bias}
    )
    torch.testing.assert_close(layer(g, types, norm), wide(g, torch.eye(6), types, norm))


@pytest.mark.parametrize(
    ("x", "w", "types", "norm", "fact"),
    [
        ((3, 2), (2, 2, 4), [0, 1], None, r"x is \(3, 2\) for 4 sources"),
        ((4, 3), (2, 2, 4), [0, 1], None, r"x is \(4, 3\) for 4 sources, and w is \(2, 1, 2, 4\)"),
        ((4, 3, 2), (2, 2), [0, 1], None, r"x is \(4, 3, 2\)"),
        ((4, 3), (2, 3), [0, 1], None, r"x is \(4, 3\)"),
        ((4, 2), (2, 2, 4), [0, 2], None, "types are from 0 to 2 where there are 2 matrices"),
        ((4, 2), (2, 2, 4), [0], None, r"types are torch.int64 \(1,\) for 2 rows"),
        ((4, 2), (2, 2, 4), [0.0, 1.0], None, "types are torch.float32"),
        ((4, 2), (2, 2, 4), [0, 1], (3, 1), r"norm is \(3, 1\) for 2 edges"),
    ],
)
def test_refusals(x: tuple[int, ...], w: tuple[int, ...], types: list[float], norm: tuple[int, ...], fact: str) -> None:
    g = vgraph.graph(([0, 1], [2, 3]))
    factor = None if norm is None else torch.ones(norm)
    with pytest.raises(FeatureError, match=fact):
        vgraph.ops.typed_sum(g, torch.ones(x), torch.ones(w), torch.tensor(types), factor)
