"""What feeds loops alone is made for some frontiers at a time in inference, and no number changes with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import vgraph
from tests.runtime.engine_models import GRAPHS, MODELS, WIDTH, Gates, chain, features
from vgraph.api.vertex.call_features import leaf_ids
from vgraph.capture import capture
from vgraph.runtime import windows

EVERY_MODEL = {**MODELS, "gates": Gates}


@pytest.fixture
def counts(with_kernels: None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each window that was made, windows being as small as can be."""
    found: list[int] = []
    real = windows.Windows._run

    def run(self: windows.Windows, one: windows.Ahead, start: int, count: int, extents: object) -> dict[int, Tensor]:
        found.append(count)
        return real(self, one, start, count, extents)

    monkeypatch.setattr(windows.Windows, "_run", run)
    for name, number in {"WINDOW_BYTES": 1, "LEAST_ROWS": 3, "LEAST_BYTES": 1}.items():
        monkeypatch.setattr(windows, name, number)
    capture.forget()
    return found


def inferred(model: vgraph.VertexFunction, g: vgraph.Graph, x: Tensor, at: Tensor | None = None) -> list[Tensor]:
    with torch.no_grad():
        return list(model(g, x=x if at is None else vgraph.at(x, at)).values())


def assert_same_without(monkeypatch: pytest.MonkeyPatch, counts: list[int], *given: object) -> int:
    """How many windows there were."""
    found, made = inferred(*given), len(counts)  # type: ignore[arg-type]
    monkeypatch.setenv("VGRAPH_WINDOWS", "0")
    capture.forget()
    for one, two in zip(found, inferred(*given), strict=True):  # type: ignore[arg-type]
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-13)
    assert len(counts) == made, "switched off"
    return made


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", EVERY_MODEL)
def test_numbers_stay(name: str, graph: str, counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    g, model = GRAPHS[graph](), EVERY_MODEL[name]().double()
    made = assert_same_without(monkeypatch, counts, model, g, features(g).detach())
    assert made or name == "tree-fc", "all others multiply what they pull"
    assert max(counts, default=0) <= 3


@pytest.mark.parametrize("name", ["gru", "child-sum", "gates"])
def test_rows_of_leaves(name: str, counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    g, model = GRAPHS["trees"](), EVERY_MODEL[name]().double()
    leaves = leaf_ids(g.topology)
    x = torch.randn(len(leaves), WIDTH, dtype=torch.float64)
    assert assert_same_without(monkeypatch, counts, model, g, x, leaves) > 5
    assert counts[0] == 1, "the row of zeros that inner vertices see"


class Halves(vgraph.VertexFunction):
    """The halves of a feature take different ways, so that each is a view of what was given."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2 + WIDTH, WIDTH)

    def forward(self, v: vgraph.Vertex) -> None:
        x, h = v.pull("x"), v.gather()["h"].sum()
        h = torch.tanh(self.linear(torch.cat([x[:, :2], h], -1))) + x[:, 2:]
        v.scatter(h=h)
        v.push(h=h)


@pytest.mark.parametrize("num_leaves", range(2, 8))
def test_a_window_of_one_row_of_a_view(num_leaves: int, counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The stride that torch names for a single row is that of the rows of which it was cut."""
    g = vgraph.graph((list(range(num_leaves)), [num_leaves] * num_leaves))
    leaves = leaf_ids(g.topology)
    x = torch.randn(num_leaves, 2 + WIDTH, dtype=torch.float64)
    assert_same_without(monkeypatch, counts, Halves().double(), g, x, leaves)
    assert sum(counts) == 1 + num_leaves, "each leaf once, and the row of zeros that inner vertices see"


def test_policies_and_directions(counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    g, model = GRAPHS["dag"](), MODELS["gru"]().double()
    model.policy = "serial"
    assert assert_same_without(monkeypatch, counts, model, g, features(g).detach())
    monkeypatch.delenv("VGRAPH_WINDOWS")
    capture.forget()
    model.policy, model.direction = "frontier", "reverse"
    assert assert_same_without(monkeypatch, counts, model, g, features(g).detach()) > 1


def test_training_and_small_calls_have_none(counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    g, model = GRAPHS["trees"](), MODELS["child-sum"]().double()
    model(g, x=features(g))["h"].sum().backward()
    assert not counts, "what a backward may read is stored"
    monkeypatch.setattr(windows, "LEAST_BYTES", 1 << 20)
    inferred(model, g, features(g).detach())
    assert not counts


def test_a_long_chain_is_made_in_windows(with_kernels: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the sizes that are set: no window is larger than it should be, and rows are made once."""
    made: list[int] = []
    real = windows.Windows._run

    def run(self: windows.Windows, one: windows.Ahead, start: int, count: int, extents: object) -> dict[int, Tensor]:
        made.append(count * one.row_bytes)
        return real(self, one, start, count, extents)

    monkeypatch.setattr(windows.Windows, "_run", run)
    capture.forget()
    g, model = chain(20_000), vgraph.nn.ChildSumTreeLSTM(4, 32)
    inferred(model, g, torch.randn(20_000, 4))
    assert len(made) > 3 and max(made) <= windows.WINDOW_BYTES and sum(made) == 20_000 * 4 * 32 * 4


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.integers(1, 12))
def test_frontiers_are_cut(widths: list[int], most: int) -> None:
    bounds = np.cumsum([5, *widths])
    found = list(windows.cut_frontiers(bounds, most))
    assert all(len(w) > 1 and 0 < w[-1] - w[0] <= most and (np.diff(w) >= 0).all() for w in found)
    assert [int(w[0]) for w in found[1:]] == [int(w[-1]) for w in found[:-1]]
    if bounds[-1] > bounds[0]:
        assert found[0][0] == bounds[0] and found[-1][-1] == bounds[-1]
    cuts = {int(at) for w in found for at in w}
    assert set(bounds.tolist()) <= cuts | ({int(bounds[0])} if not found else set()), (
        "a frontier waits for those before"
    )
