"""Recorded calls, by a stand-in for CUDA graphs: it runs the same work again, on what lies in the same places."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import vgraph
from tests.cuda import shim
from tests.runtime.engine_models import MODELS, binary_tree, chain, features, outcome, random_dag
from vgraph.api.vertex.padding import pad
from vgraph.capture import capture
from vgraph.compiler import level_schedule
from vgraph.fusion.cpu import build
from vgraph.runtime.cuda import cuda_graphs as replay
from vgraph.runtime.cuda import driver as cuda

pytestmark = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")


class Tape(TorchDispatchMode):
    """Notes every operator of torch and every launch of the shim, to repeat them on the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], object]] = []
        self.made: list[object] = []  # a CUDA graph keeps its memory, too

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.made.append(made)
        if "empty" not in str(func):
            self.calls.append(lambda: put(made, func(*args, **(kwargs or {}))))
        return made

    def repeat(self) -> None:
        with torch.no_grad():
            for call in self.calls:
                call()


def put(places: Any, made: Any) -> None:
    """Results to where they were; views, and what was written in place, are there already."""
    if isinstance(places, (tuple, list)):
        for place, result in zip(places, made, strict=True):
            put(place, result)
    elif isinstance(places, Tensor) and places.data_ptr() != made.data_ptr():
        places.copy_(made)


class Recorder:
    """Counts recordings and replays."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def __call__(self, work: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        self.recorded += 1
        tape = Tape()
        shim.tapes.append(tape.calls)
        with tape:
            made = work()
        shim.tapes.pop()

        def repeat() -> None:
            self.replayed += 1
            tape.repeat()

        return made, repeat


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    capture.forget()
    gc.collect()  # recordings of other tests
    with shim.in_place_of_cpu():
        yield Recorder()
    capture.forget()


def several(model: vgraph.VertexFunction, graphs: list[vgraph.Graph]) -> list[list[Tensor]]:
    torch.manual_seed(5)
    return [outcome(model, g, features(g)) for g in graphs]


def balanced(num_leaves: int) -> vgraph.Graph:
    """Neighbours are joined level by level; who is left over waits."""
    src, dst, total, row = list[int](), list[int](), num_leaves, list(range(num_leaves))
    while len(row) > 1:
        joined = list[int]()
        for first in range(0, len(row) - 1, 2):
            src += row[first : first + 2]
            dst += [total, total]
            joined.append(total)
            total += 1
        row = joined + row[len(row) // 2 * 2 :]
    return vgraph.graph((src, dst), num_nodes=total)


@pytest.mark.parametrize("name", ["gru", "child-sum", "attentive"])
def test_graphs_of_one_form_share_a_recording(name: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of other trees, padded to the same frontiers: forward and backward are recorded once."""
    graphs = [vgraph.batch([balanced(n), chain(k)]) for n, k in [(9, 3), (10, 3), (10, 3), (9, 3)]]
    assert len({form_of(g) for g in graphs}) == 1
    model = MODELS[name]().double()
    wanted = several(model, graphs)
    capture.forget()
    monkeypatch.setattr(cuda, "recorder", lambda kind: recorder)
    found = several(model, graphs)
    for mine, theirs in zip(found, wanted, strict=True):
        for one, two in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)
    assert (recorder.recorded, recorder.replayed) == (2, 3 + 2), "forward from the second batch, backward after it"


def form_of(g: vgraph.Graph) -> int:
    return level_schedule(pad(g.topology).topology).form


def test_padding() -> None:
    """Frontiers grow to powers of two; the given vertices, edges and in-degrees are as they were."""
    for g in (random_dag(20, 30), vgraph.batch([binary_tree(5), binary_tree(3)])):
        padded, topology = pad(g.topology), g.topology
        larger = padded.topology
        assert torch.equal(larger.src[: topology.num_edges], topology.src)
        assert torch.equal(larger.in_degrees[: topology.num_dst], topology.in_degrees)
        frontiers = level_schedule(larger).frontiers
        assert all(f.batch_size & (f.batch_size - 1) == 0 for f in frontiers) and len(frontiers) % 4 == 0
        assert larger.num_dst == topology.num_dst + padded.num_vertices


def test_two_forwards_before_a_backward(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording whose results are in use is not run again: another one is made."""
    model, g = MODELS["gru"]().double(), random_dag(12, 20)
    xs = [features(g) for _ in range(4)]

    def grads() -> list[Tensor]:
        outputs = [model(g, x=x)["h"].square().sum() for x in xs]
        return [torch.autograd.grad(loss, [x])[0] for loss, x in zip(outputs, xs, strict=True)]

    wanted = grads()
    capture.forget()
    monkeypatch.setattr(cuda, "recorder", lambda kind: recorder)
    for _ in range(3):
        for one, two in zip(grads(), wanted, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)
    assert recorder.replayed > 4


def test_parameters_change_in_place(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    def losses() -> list[float]:
        capture.forget()
        torch.manual_seed(3)
        model, g, found = MODELS["gru"]().double(), chain(6), list[float]()
        x = features(g)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(6):
            optimizer.zero_grad()
            loss = model(g, x=x)["h"].square().sum()
            loss.backward()
            optimizer.step()
            found.append(float(loss.detach()))
        return found

    wanted = losses()
    monkeypatch.setattr(cuda, "recorder", lambda kind: recorder)
    assert losses() == pytest.approx(wanted, rel=1e-12) and len(set(wanted)) == 6
    assert recorder.recorded == 2 and recorder.replayed == 5 + 4, "forward from the second step, backward after it"


def test_no_more_recordings_than_there_is_room_for(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cuda, "recorder", lambda kind: recorder)
    monkeypatch.setattr(replay, "MOST_RECORDINGS", 1)
    model = MODELS["gru"]().double()
    with caplog.at_level("INFO", "vgraph"), torch.no_grad():
        for g in (chain(3), chain(4)):
            for _ in range(3):
                model(g, x=features(g))
    assert recorder.recorded == 1 and "1 forms of one call are recorded" in caplog.text


def test_dropout_is_not_recorded(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "recorder", lambda kind: recorder)

    class Noisy(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            h = torch.dropout(v.pull("x"), 0.5, True) + v.gather()["h"].sum()
            v.scatter(h=h)
            v.push(h=h)

    g, model = chain(4), Noisy()
    x = features(g, torch.float32).detach()
    for _ in range(3):
        model(g, x=x)
    assert not recorder.recorded
