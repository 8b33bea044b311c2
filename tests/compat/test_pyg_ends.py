"""Ids of many edges are held once: by whoever gave them, and as kernels read them."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import vgraph
from tests.compat.pyg_cases import E, F, N, edges, pyg
from vgraph import compiler
from vgraph.capture.capture import watch_runs
from vgraph.capture.errors import CaptureError
from vgraph.compat.pyg import topologies
from vgraph.compat.pyg.lent_ids import IdsChangedError
from vgraph.ir import schedule
from vgraph.ir.topology import Topology

pytestmark = pytest.mark.usefixtures("kernels", "many")


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few edges are as many as a million."""
    for module in (topologies, compiler, schedule):
        monkeypatch.setattr(module, "MANY", 1)
    monkeypatch.setattr(compiler, "_SMALL_GRAPH", 0)


def topology_of(ids: Tensor, *, forward: bool = True) -> Topology:
    """That of an edge_index, which is not looked up as a layer does, for that may give ids back."""
    known = topologies._known[ids]
    return known.made[N, N, forward]


def is_held(topology: Topology) -> bool:
    return bool({"src", "dst"} & set(vars(topology)))


def step(layer: Callable[..., Tensor], *given: Tensor) -> list[Tensor]:
    """The result, and the gradient of the first tensor."""
    x = given[0].requires_grad_()
    with watch_runs() as runs:
        out = layer(x, *given[1:])
    assert not any(isinstance(what, CaptureError) for _, what, _ in runs)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), x)]


def given_back(flow: str = "source_to_target") -> tuple[Tensor, Topology]:
    """An edge_index on which a layer has run twice, and its topology."""
    layer, x, ids = vgraph.accelerate(pyg.SAGEConv(F, F, flow=flow)), torch.randn(N, F), edges()
    for _ in range(2):
        step(layer, x, ids)
    topology = topology_of(ids, forward=flow == "source_to_target")
    assert not is_held(topology)
    return ids, topology


@pytest.mark.parametrize("name", ["GCNConv", "SAGEConv", "GATConv"])
def test_they_are_given_back_in_the_second_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Topology] = []

    def make(*args: object, **named: object) -> Topology:
        made.append(Topology(*args, **named))
        return made[-1]

    monkeypatch.setattr(topologies, "Topology", make)
    theirs, x, ids = getattr(pyg, name)(F, F), torch.randn(N, F), edges()
    layer, wanted = vgraph.accelerate(copy.deepcopy(theirs)), step(theirs, x, ids)
    found = [step(layer, x, ids) for _ in range(4)]
    assert made and not any(is_held(topology) for topology in made)
    for out in found:
        torch.testing.assert_close(out, wanted)
        assert all(map(torch.equal, out, found[0]))


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_they_are_made_again_when_somebody_asks(flow: str) -> None:
    ids, topology = given_back(flow)
    assert (topology.num_edges, topology.device, topology.idtype) == (E, ids.device, torch.int64)
    assert not is_held(topology)
    src, dst = (0, 1) if flow == "source_to_target" else (1, 0)
    assert topology.dst.equal(ids[dst].int()) and topology.src.equal(ids[src].int())
    assert is_held(topology)
    layer = vgraph.accelerate(pyg.SAGEConv(F, F, flow=flow))
    step(layer, torch.randn(N, F), ids)
    assert is_held(topology)  # who has asked asks again


def test_edges_of_the_user_find_their_rows() -> None:
    ids, topology = given_back()
    theirs, x, rows = pyg.GINEConv(torch.nn.Linear(F, F), edge_dim=F), torch.randn(N, F), torch.randn(E, F)
    torch.testing.assert_close(step(vgraph.accelerate(copy.deepcopy(theirs)), x, ids, rows), step(theirs, x, ids, rows))
    assert not is_held(topology)  # where edges lie was found without keeping them
    assert topology_of(ids) is topology


def test_copies_of_a_topology_have_them() -> None:
    ids, topology = given_back()
    for copied in (pickle.loads(pickle.dumps(topology)), copy.deepcopy(topology), topology.reversed.reversed):
        assert copied.src.equal(ids[0].int()) and copied.dst.equal(ids[1].int())
        assert (copied.num_edges, copied.device) == (E, ids.device)
    assert topology.reversed.src.equal(topology.dst)


def test_an_edge_index_written_to_is_not_read_as_if_it_were_not() -> None:
    ids, topology = given_back()
    before = ids.clone()
    ids.numpy()[:] = 0  # which counts no version
    with pytest.raises(IdsChangedError, match=r"changed in place(.|\n)*clone"):
        _ = topology.src
    ids.copy_(before)
    assert topology.src.equal(ids[0].int())


def test_an_edge_index_whose_memory_is_gone_is_not_read() -> None:
    ids, topology = given_back()
    ids.untyped_storage().resize_(0)
    with pytest.raises(IdsChangedError, match=r"changed in place(.|\n)*clone"):
        _ = topology.src


def test_a_backward_outlives_what_it_was_given() -> None:
    layer, x = vgraph.accelerate(pyg.SAGEConv(F, F)), torch.randn(N, F).requires_grad_()
    ids = edges()
    wanted = step(copy.deepcopy(layer), x, ids.clone())
    step(layer, x, ids)
    out = layer(x, ids)
    ids.zero_()
    assert torch.autograd.grad(out.square().sum(), x)[0].equal(wanted[1])
    out = layer(x, ids)
    topology = weakref.ref(topology_of(ids))
    del ids
    out.square().sum().backward()
    del out
    gc.collect()
    assert topology() is None


def test_they_go_with_the_edge_index() -> None:
    """Nothing waits for the garbage collector."""
    gc.disable()
    try:
        ids, topology = given_back()
        known = weakref.ref(topology)
        del ids, topology
        assert known() is None
    finally:
        gc.enable()


def test_what_is_shared_with_a_copy_is_kept() -> None:
    """A user may write to one of the two, and the other's edges stay."""
    layer, x, ids = vgraph.accelerate(pyg.SAGEConv(F, F)), torch.randn(N, F), edges()
    for _ in range(2):
        step(layer, x, ids)
    topology = topology_of(ids)
    assert not is_held(topology)
    other = ids.clone()
    topologies.share_topologies(ids, other)
    step(layer, x, other)
    assert topology_of(other) is topology and is_held(topology)
    fresh = edges()
    another = fresh.clone()
    topologies.share_topologies(fresh, another)
    for _ in range(3):
        step(layer, x, another)
    assert is_held(topology_of(another))


def test_threads_ask_at_once() -> None:
    ids, topology = given_back()
    ready, found = threading.Barrier(4), list[bool]()

    def ask() -> None:
        ready.wait()
        found.append(topology.src.equal(ids[0].int()) and topology.dst.equal(ids[1].int()))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


def test_few_edges_stay() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topologies, "MANY", 1 << 20)
        layer, x, ids = vgraph.accelerate(pyg.SAGEConv(F, F)), torch.randn(N, F), edges()
        for _ in range(3):
            step(layer, x, ids)
        assert is_held(topology_of(ids))
