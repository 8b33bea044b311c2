"""Recorded calls, by a stand-in for CUDA graphs: it runs the same work again, on what lies in the same places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from tests.runtime.engine_models import MODELS, binary_tree, chain, features, outcome, random_dag
from vgraph.api import capture
from vgraph.runtime import compiled, replay


class Recorder:
    """Counts recordings and replays."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def __call__(self, work: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        self.recorded += 1
        first = work()

        def repeat() -> None:
            self.replayed += 1
            again = work()
            with torch.no_grad():
                pairs = zip([*first.outputs, *first.saved], [*again.outputs, *again.saved], strict=True)
                for place, made in pairs:
                    if place is not None:
                        place.copy_(made)

        return first, repeat


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    made = Recorder()
    capture.forget()
    yield made
    capture.forget()


def several(model: vgraph.VertexFunction, graphs: list[vgraph.Graph]) -> list[list[Tensor]]:
    torch.manual_seed(5)
    return [outcome(model, g, features(g)) for g in graphs]


@pytest.mark.parametrize("name", ["gru", "child-sum", "n-ary", "attentive"])
def test_graphs_of_one_form_share_a_recording(name: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees with their vertices numbered anew: the same frontiers, other index tensors."""
    tree = vgraph.batch([binary_tree(4), binary_tree(7)])
    graphs = [tree]
    for _ in range(5):
        ids = torch.randperm(tree.num_nodes())
        src, dst = tree.edges()
        graphs.append(vgraph.graph((ids[src], ids[dst]), num_nodes=tree.num_nodes()))
    model = MODELS[name]().double()
    wanted = several(model, graphs[1:])
    capture.forget()
    monkeypatch.setattr(compiled, "recorder", lambda kind: recorder)
    found = several(model, graphs[1:])
    for mine, theirs in zip(found, wanted, strict=True):
        for one, two in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)
    assert recorder.recorded >= 2 and recorder.replayed >= 4, vars(recorder)


def test_two_forwards_before_a_backward(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording whose results are in use is not run again: another one is made."""
    model, g = MODELS["gru"]().double(), random_dag(12, 20)
    xs = [features(g) for _ in range(4)]

    def grads() -> list[Tensor]:
        outputs = [model(g, x=x)["h"].square().sum() for x in xs]
        return [torch.autograd.grad(loss, [x])[0] for loss, x in zip(outputs, xs, strict=True)]

    wanted = grads()
    capture.forget()
    monkeypatch.setattr(compiled, "recorder", lambda kind: recorder)
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
    monkeypatch.setattr(compiled, "recorder", lambda kind: recorder)
    assert losses() == pytest.approx(wanted, rel=1e-12) and len(set(wanted)) == 6
    assert recorder.recorded == 2 and recorder.replayed == 5 + 4, "forward from the second step, backward after it"


def test_no_more_recordings_than_there_is_room_for(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compiled, "recorder", lambda kind: recorder)
    monkeypatch.setattr(replay, "MOST_RECORDINGS", 1)
    model = MODELS["gru"]().double()
    with caplog.at_level("INFO", "vgraph"), torch.no_grad():
        for g in (chain(3), chain(4)):
            for _ in range(3):
                model(g, x=features(g))
    assert recorder.recorded == 1 and "1 forms of one call are recorded" in caplog.text


def test_dropout_is_not_recorded(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "recorder", lambda kind: recorder)

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
