"""What ``dgl`` shares between processes by name, and embeddings whose used rows its optimizers change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import vgraph
from vgraph.compat import graph_index, optim, shared
from vgraph.compat.node_embedding import NodeEmbedding
from vgraph.errors import DataError, DeviceError, DTypeError, FunctionError, GraphError, NameLookupError


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(shared, "_path_of", lambda name: tmp_path / name)
    return tmp_path


def typed() -> vgraph.Graph:
    return vgraph.heterograph(
        {
            ("user", "follows", "user"): ([0, 1], [1, 2]),
            ("user", "plays", "game"): ([0, 1, 2, 1], [0, 0, 1, 1]),
            ("user", "left", "game"): ([], []),
        },
        idtype=torch.int32,
    )


def test_an_array_is_there_under_its_name_as_long_as_it_lives(in_a_folder: Path) -> None:
    made = shared.create_shared_mem_array("rows", (2, 3), torch.float32)
    other = shared.get_shared_mem_array("rows", (2, 3), torch.float32)
    other[1, 2] = 7
    assert made.tolist() == [[0, 0, 0], [0, 0, 7]]
    with pytest.raises(DataError, match="has 24 bytes where 12 are asked for"):
        shared.get_shared_mem_array("rows", (3,), torch.float32)
    newer = shared.create_shared_mem_array("rows", (0,), torch.int64)
    del made
    assert shared.get_shared_mem_array("rows", (0,), torch.int64).shape == newer.shape == (0,)
    del newer
    assert not list(in_a_folder.iterdir()) and other[1, 2] == 7
    with pytest.raises(NameLookupError, match="no process shares 'rows'"):
        shared.get_shared_mem_array("rows", (2, 3), torch.float32)


def test_a_name_is_of_one_user_and_of_a_file(in_a_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (in_a_folder / "link").symlink_to(in_a_folder / "secret")
    with pytest.raises(DataError, match="belongs to somebody else"):
        shared.hetero_from_shared_memory("link")
    monkeypatch.undo()
    for name in ("", "../x", "a/b"):
        with pytest.raises(NameLookupError, match="names no shared memory"):
            shared.create_shared_mem_array(name, (1,), torch.int64)


@pytest.mark.parametrize("make", [typed, lambda: vgraph.graph(([0, 2], [1, 0]), num_nodes=4)])
def test_a_graph_is_shared_by_name(make: Callable[[], vgraph.Graph]) -> None:
    g = make()
    for _ in range(2):
        kept = shared.shared_memory(g, "graph")
        g = shared.hetero_from_shared_memory("graph")
        for one in (kept, g):
            assert one.form == make().form and repr(one) == repr(make())
            for etype in one.canonical_etypes:
                assert all(map(torch.equal, one.edges(etype=etype), make().edges(etype=etype)))
                assert torch.equal(one.in_degrees(etype=etype), make().in_degrees(etype=etype))


def test_what_is_no_graph_is_told() -> None:
    kept = shared.shared_memory(typed(), "graph")
    memory = shared._mapped("graph")
    for place, value in ((0, 255), (9, 0), (40, 65), (-5, 1), (7, 255)):
        before = int(memory[place])
        memory[place] = value
        with pytest.raises((DataError, GraphError)):
            shared.hetero_from_shared_memory("graph")
        memory[place] = before
    assert shared.hetero_from_shared_memory("graph").num_edges() == kept.num_edges()
    with pytest.raises(GraphError, match="a block is not shared"):
        shared.shared_memory(vgraph.to_block(vgraph.graph(([0], [1]))), "block")
    rows = shared.create_shared_mem_array("rows", (3,), torch.uint8)
    with pytest.raises(DataError, match="holds no graph"):
        shared.hetero_from_shared_memory("rows")
    assert len(rows) == 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_nothing_is_pinned_where_there_is_no_gpu() -> None:
    g = typed()
    assert not graph_index.is_pinned(g) and graph_index.unpin_memory_(g) is g
    with pytest.raises(DeviceError, match="there is no GPU"):
        graph_index.pin_memory_(g)


# ---------------------------------------------------------------- embeddings
def used(emb: NodeEmbedding, ids: list[int], target: Tensor) -> None:
    ((emb(torch.tensor(ids)) - target) ** 2).sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_adam_counts_the_steps_of_each_row(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    emb, target = NodeEmbedding(10, 3, "rows", torch.nn.init.uniform_), torch.randn(10, 3)
    rows, mean, square, steps = emb.weight.clone(), torch.zeros(10, 3), torch.zeros(10, 3), torch.zeros(10, 1)
    adam = optim.SparseAdam([emb], 0.01, betas=(0.8, 0.9), dtype=dtype)
    for ids in ([1, 4, 7], [4], [7, 4, 2]):
        adam.zero_grad()
        used(emb, ids, target[ids])
        adam.step()
        grad = 2 * (rows[ids] - target[ids])
        steps[ids] += 1
        mean[ids], square[ids] = 0.8 * mean[ids] + 0.2 * grad, 0.9 * square[ids] + 0.1 * grad**2
        wide = (square[ids] / (1 - 0.9 ** steps[ids])).sqrt() + 1e-8
        rows[ids] -= 0.01 * mean[ids] / (1 - 0.8 ** steps[ids]) / wide
    assert torch.allclose(emb.weight, rows, atol=1e-6 if dtype == torch.float32 else 1e-3)
    assert emb.trace == [] and torch.equal(emb.all_get_embedding(), emb.weight)
    with torch.no_grad():
        assert not emb(torch.tensor([2])).requires_grad and emb.trace == []


def test_adagrad_averages_what_comes_to_a_row_twice() -> None:
    emb = NodeEmbedding(4, 1, "rows")
    adagrad = optim.SparseAdagrad([emb], lr=0.5)
    used(emb, [1, 1, 3], torch.tensor([[1.0], [3.0], [0.0]]))
    emb(torch.tensor([2]))  # has no gradient
    adagrad.step()
    assert emb.weight.flatten().tolist() == pytest.approx([0, 0.5, 0, 0])
    state = adagrad.state_dict()
    again = optim.SparseAdagrad([emb], lr=9.0, eps=0.1)
    again.load_state_dict(state)
    assert again.param_groups == adagrad.param_groups == [{"lr": 0.5, "eps": 1e-10}]
    assert torch.equal(emb.optm_state[0], state["state"]["rows"][0]) and float(emb.optm_state[0][1]) == 16
    emb.all_set_embedding(torch.ones(4, 1))
    assert emb.weight.eq(1).all()


def test_a_loaded_state_brings_all_numbers_of_its_optimizer() -> None:
    saved = optim.SparseAdam([NodeEmbedding(4, 1, "rows")], 1, betas=(0.8, 0.9), eps=0.1)
    again = optim.SparseAdam([NodeEmbedding(4, 1, "rows")], 0.5)
    again.load_state_dict(saved.state_dict())
    assert again.param_groups == saved.param_groups == [{"lr": 1, "betas": (0.8, 0.9), "eps": 0.1}]


def test_what_optimizers_refuse() -> None:
    emb = NodeEmbedding(4, 1, "rows")
    for params in ([], [torch.nn.Embedding(2, 2)]):
        with pytest.raises(FunctionError, match=r"pass a list of dgl\.nn\.NodeEmbedding"):
            optim.SparseAdam(params, 0.1)
    with pytest.raises(DTypeError, match="float64"):
        optim.SparseAdam([emb], 0.1, dtype=torch.float64)
    adam, adagrad = optim.SparseAdam([emb], 0.1), optim.SparseAdagrad([NodeEmbedding(4, 1, "rows")], 0.1)
    for state in ({}, adagrad.state_dict()):
        with pytest.raises(FunctionError, match=r"the state"):
            adam.load_state_dict(state)
