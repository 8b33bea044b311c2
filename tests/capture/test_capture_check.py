"""VGRAPH_CAPTURE=check: what guards accept is recorded again, and a guard that misses a change is found out."""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from tests import apart
from vgraph.capture import capture
from vgraph.capture.capture import num_captures
from vgraph.capture.scalar import pointwise
from vgraph.errors import StaleCaptureError

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _checked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("VGRAPH_CAPTURE", "check")
    yield
    capture.forget()


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards that see nothing: a capture is taken for any function of the same code."""
    make_check = capture.make_check

    def make(*args: Any) -> Callable[..., Any]:
        check = make_check(*args)
        first: list[Any] = []

        def accept(roots: Any) -> Any:
            first.append(check(roots) if not first else first[0])
            return first[0]

        return accept

    monkeypatch.setattr(capture, "make_check", make)


def _graph() -> vgraph.Graph:
    g = vgraph.graph(([0, 1, 1], [1, 2, 2]))
    g.ndata["h"] = torch.linspace(0, 1, 6).view(3, 2)
    g.edata["w"] = torch.ones(3, 2)
    return g


class Settings:
    """What the function below reads."""

    scale, is_squared, name, raises, is_weighted, looks = 2.0, False, "m", False, False, False
    factor = torch.ones(2)
    literal = 1.0


def message(edges: Any) -> dict[str, Tensor]:
    if Settings.raises:
        raise ValueError("not today")
    m = edges.src["h"] * Settings.scale * Settings.factor + torch.tensor([Settings.literal, 0.0])
    if Settings.looks and m.sum() > 0:
        m = m + 1
    if Settings.is_squared:
        m = m.square()
    if Settings.is_weighted:
        m = m * edges.data["w"]
    return {"m": m}


def reduce(nodes: Any) -> dict[str, Tensor]:
    return {Settings.name: nodes.mailbox["m"].sum(1)}


CHANGES: dict[str, tuple[Any, str, str]] = {
    "scale": (5.0, "aten.mul.Tensor(%0, 2.0)", "aten.mul.Tensor(%0, 5.0)"),
    "is_squared": (True, "segment_sum", "aten.pow"),
    "name": ("n", "outputs ('m',)", "outputs ('n',)"),
    "raises": (True, "it was captured", "it raised ValueError: not today"),
    "is_weighted": (True, "gather[src](src:h)", "edge:w is torch.float32 (edge, 2)"),
    "looks": (True, "it was captured", "it cannot be captured: _local_scalar_dense looks at the data of a tensor"),
    "factor": (torch.full((2,), 3.0), "[1.0, 1.0]", "[3.0, 3.0], another tensor"),
    "literal": (4.0, "[1.0, 0.0]", "[4.0, 0.0]"),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.usefixtures("blind")
def test_what_a_blind_guard_misses_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    g, (value, then, now) = _graph(), CHANGES[name]
    for _ in range(2):
        g.update_all(message, reduce)
    monkeypatch.setattr(Settings, name, value)
    with pytest.raises(StaleCaptureError) as caught:
        g.update_all(message, reduce)
    chose, recorded = str(caught.value).split("recorded now: ")
    assert chose.startswith("message was found again by its guards") and then in chose and now in recorded
    assert f"at {PROJECT}" in recorded and "please report it" in recorded


@pytest.mark.usefixtures("blind")
def test_a_vertex_function_and_its_states(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cell(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            h = v.pull("h") + v.gather()["h"].sum() * Settings.scale
            v.scatter(h=h)
            v.push(h=h)

    g, cell = _graph(), Cell()
    first = cell(g)["h"]
    assert torch.equal(cell(g)["h"], first)
    monkeypatch.setattr(Settings, "scale", 0.5)
    with pytest.raises(StaleCaptureError, match=r"2\.0") as caught:
        cell(g)
    assert "Cell was found again" in str(caught.value) and "0.5" in str(caught.value)


@pytest.mark.usefixtures("blind")
def test_a_further_derivative_is_of_the_same_function(monkeypatch: pytest.MonkeyPatch) -> None:
    g = _graph()
    g.ndata["h"] = g.ndata["h"].requires_grad_()
    monkeypatch.setattr(Settings, "is_squared", True)
    g.update_all(message, reduce)
    monkeypatch.setattr(Settings, "scale", 5.0)
    with pytest.raises(StaleCaptureError, match="recorded now"):
        torch.autograd.grad(g.ndata["m"].sum(), g.ndata["h"], create_graph=True)


def test_a_reduction_remembers_what_it_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    x, kinds = torch.ones(4, 5), types.SimpleNamespace(scale=1.0)

    def total() -> float:
        return vgraph.reduce(x, (0,), of=lambda a: a * kinds.scale)[0].item()

    monkeypatch.setattr(pointwise, "_key", lambda function, dtypes: function.__code__)
    monkeypatch.setattr(pointwise, "_known", {})
    assert total() == total() == 4
    kinds.scale = 7.0
    with pytest.raises(StaleCaptureError, match=r"1\.0[^7]*7\.0"):
        total()


def test_the_check_leaves_no_trace() -> None:
    """No random number is drawn, nothing is counted, and nothing is kept."""
    g, kept = _graph(), list[Tensor]()

    def draws(edges: Any) -> dict[str, Tensor]:
        kept.append(edges.src["h"])
        kept.clear()
        return {"m": torch.nn.functional.dropout(edges.src["h"])}

    def state() -> tuple[Any, ...]:
        return random.getstate(), np.random.get_state()[1].tolist(), num_captures()  # pyright: ignore[reportIndexIssue]

    g.update_all(draws, fn.sum("m", "o"))
    before = state()
    torch.manual_seed(0)
    g.update_all(draws, fn.sum("m", "o"))
    drawn = torch.rand(1)
    assert state() == before and not kept
    capture.forget()
    torch.manual_seed(0)
    g.update_all(draws, fn.sum("m", "o"))
    assert torch.equal(torch.rand(1), drawn)


def test_one_tensor_in_the_place_of_two() -> None:
    """A capture with two inputs serves a call that gives one for both."""
    g, one = _graph(), torch.ones(2, requires_grad=True)
    for two in (torch.full((2,), 2.0, requires_grad=True), one):

        def scaled(edges: Any, other: Tensor = two) -> dict[str, Tensor]:
            return {"m": edges.src["h"] * one + other}

        g.update_all(scaled, fn.sum("m", "o"))
        src, dst = g.edges()
        wanted = torch.zeros(3, 2).index_add(0, dst, g.ndata["h"][src] * one + two)
        torch.testing.assert_close(g.ndata["o"], wanted)


def test_tests_run_checked() -> None:
    """A part of the suite, each call of which is recorded again; ``make check-capture`` runs all of it so."""
    path = str(PROJECT / "tests" / "capture" / "test_kept.py")
    command = ["-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "-q", path]
    status, said = apart.run(command, {"VGRAPH_CAPTURE": "check"})
    assert status == 0, said[-4000:]
    assert " passed" in said
