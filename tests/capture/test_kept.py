"""Rows that a function keeps for after the call are those of the call."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn

X = torch.arange(6.0, dtype=torch.float64).view(3, 2) / 4
SRC, DST = torch.tensor([0, 1, 1, 0]), torch.tensor([1, 2, 2, 2])


def _graph() -> vgraph.Graph:
    g = vgraph.graph((SRC, DST))
    g.ndata["h"] = X
    return g


class Attentive(nn.Module):
    weights: Tensor

    def message(self, edges: Any) -> dict[str, Tensor]:
        self.weights = torch.sigmoid(edges.src["h"] * edges.dst["h"])
        return {"m": edges.src["h"] * self.weights}


@pytest.mark.guards
def test_an_attribute_set_by_a_message_function(caplog: pytest.LogCaptureFixture) -> None:
    g, layer = _graph(), Attentive()
    with caplog.at_level(logging.INFO, "vgraph"):
        for scale in (1, 2):
            g.ndata["h"] = scale * X
            g.update_all(layer.message, fn.sum("m", "o"))
            wanted = torch.sigmoid(scale**2 * X[SRC] * X[DST])
            torch.testing.assert_close(layer.weights, wanted)
            torch.testing.assert_close(g.ndata["o"][1], scale * X[0] * wanted[0])
    (said,) = (r.getMessage() for r in caplog.records)
    assert "keeps rows for later, in 'weights'" in said


@pytest.mark.guards
@pytest.mark.parametrize("mixes", [False, True], ids=["rows", "sums"])
def test_a_list_that_a_function_appends_to(mixes: bool) -> None:
    g, seen = _graph(), list[Tensor]()

    def message(edges: Any) -> dict[str, Tensor]:
        seen.append(edges.src["h"].sum(0) if mixes else edges.src["h"] * 2)
        return {"m": edges.src["h"]}

    for _ in range(2):
        g.update_all(message, fn.sum("m", "o"))
        g.apply_edges(message)
    wanted = X[SRC].sum(0) if mixes else 2 * X[SRC]
    assert len(seen) == 4 and all(torch.equal(found, wanted) for found in seen)


@pytest.mark.guards
def test_a_dict_by_layer_that_a_reduce_function_fills() -> None:
    g, seen = _graph(), dict[str, list[Tensor]]()

    def reduce(nodes: Any) -> dict[str, Tensor]:
        seen.setdefault("first", []).append(nodes.mailbox["m"].sum(1))
        return {"o": nodes.mailbox["m"].sum(1)}

    g.update_all(fn.copy_u("h", "m"), reduce)
    assert torch.equal(torch.cat(seen["first"]), g.ndata["o"][[1, 2]])


class Running(nn.Module):
    """A mean that follows the rows of all calls, held by a list, a dict, an attribute or a buffer; and a count."""

    mean: Tensor

    def __init__(self, kind: str, looks_at_clock: bool) -> None:
        super().__init__()
        self.kind, self.looks_at_clock, self.count = kind, looks_at_clock, 0
        self.kept = {"list": [X[0] * 0], "dict": {0: X[0] * 0}}.get(kind)
        if kind == "buffer":
            self.register_buffer("mean", X[0] * 0)
        elif kind == "attribute":
            self.mean = X[0] * 0

    def after(self, h: Tensor) -> Tensor:
        self.count += 1
        time.time() if self.looks_at_clock else None
        before = self.mean if self.kept is None else self.kept[0]
        mean = 0.9 * before + 0.1 * h.mean(0)
        if self.kept is None:
            self.mean = mean
        else:
            self.kept[0] = mean
        return h - mean + self.count


@pytest.mark.guards
@pytest.mark.parametrize("looks_at_clock", [False, True], ids=["watched", "looked up"])
@pytest.mark.parametrize("kind", ["list", "dict", "attribute", "buffer"])
def test_what_a_function_writes_over_is_there_when_it_runs_uncaptured(kind: str, looks_at_clock: bool) -> None:
    g, own, alone = _graph(), Running(kind, looks_at_clock), Running(kind, looks_at_clock)
    for scale in range(3):
        g.ndata["h"] = scale * X
        g.update_all(lambda edges: {"m": own.after(edges.src["h"])}, fn.sum("m", "o"))
        wanted = torch.zeros_like(X).index_add(0, DST, alone.after(scale * X[SRC]))
        torch.testing.assert_close(g.ndata["o"], wanted)
        assert own.count == alone.count == scale + 1


@pytest.mark.guards
def test_rows_of_an_earlier_run_are_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    """Two runs of a recording differ by what the first has kept, and not by the number of rows."""
    g, seen = _graph(), dict[str, Tensor]()

    def message(edges: Any) -> dict[str, Tensor]:
        seen.setdefault("first", edges.src["h"])
        return {"m": edges.src["h"] + seen["first"][:1]}

    with caplog.at_level(logging.INFO, "vgraph"):
        g.update_all(message, fn.sum("m", "o"))
    torch.testing.assert_close(seen["first"], X[SRC])
    assert "keeps rows for later, in 'first'" in caplog.records[0].getMessage()


WEIGHT = torch.ones(2, dtype=torch.float64)
_size_of_last = 0


def _keep_in_global(notes: Any, h: Tensor) -> None:
    global _size_of_last  # noqa: PLW0603
    _size_of_last = h.shape[0]


def _keep_count(notes: Any, h: Tensor) -> None:
    notes.total += h.shape[0]


def _keep_zeros(notes: Any, h: Tensor) -> None:
    notes.assigned = torch.zeros(h.shape[0])  # a name that nothing reads


def _keep_parameter(notes: Any, h: Tensor) -> None:
    notes.assigned = nn.Parameter(torch.zeros(h.shape[0]))


def _keep_penalty(notes: Any, h: Tensor) -> None:
    notes.penalty = (2 * WEIGHT).sum()


class Shared:
    size = 0


class Notes:
    """Whatever is assigned to it; what is never read of it is free to change."""


# How it is kept, what is there after the call, and what the log says that it is.
KEEPS: dict[str, tuple[Callable[[Any, Tensor], object], Callable[[Any], object], str]] = {
    "a list": (lambda n, h: n.seen.append(h.shape[0]), lambda n: n.seen, "a number of rows"),
    "a dict": (lambda n, h: n.table.update(size=h.shape[0]), lambda n: n.table, "a number of rows"),
    "a shape": (lambda n, h: n.seen.append(h.shape), lambda n: n.seen, "a number of rows"),
    "a tuple": (lambda n, h: n.seen.append((h.size(0), 1)), lambda n: n.seen, "a number of rows"),
    "twice as many": (lambda n, h: n.seen.append(2 * h.numel()), lambda n: n.seen, "a number of rows"),
    "a count": (_keep_count, lambda n: n.total, "a number of rows"),
    "a global": (_keep_in_global, lambda n: _size_of_last, "a number of rows"),
    "a class": (lambda n, h: setattr(Shared, "size", h.shape[0]), lambda n: Shared.size, "a number of rows"),
    "a function": (lambda n, h: n.seen.append(lambda: h.sum()), lambda n: n.seen.pop()(), "rows"),
    "a default": (lambda n, h: n.seen.append(lambda x=h: x.sum()), lambda n: n.seen.pop()(), "rows"),
    "a computed name": (lambda n, h: setattr(n, "last" + "row", h * 2), lambda n: n.lastrow, "rows"),
    "zeros": (lambda n, h: n.seen.append(torch.zeros(h.shape[0])), lambda n: n.seen, "a tensor that it has made"),
    "zeros that nobody reads": (_keep_zeros, lambda n: vars(n)["assigned"], "a tensor that it has made"),
    "a parameter": (_keep_parameter, lambda n: vars(n)["assigned"], "a tensor that it has made"),
    "a penalty": (_keep_penalty, lambda n: n.penalty, "a tensor that it has made"),
}  # fmt: skip


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(two) and all(map(_same, one, two))
    return torch.equal(one, two) if isinstance(one, Tensor) else one == two and type(one) is type(two)


@pytest.mark.parametrize(
    "is_looked_up", [pytest.param(False, marks=pytest.mark.guards, id="watched"), pytest.param(True, id="looked up")]
)
@pytest.mark.parametrize("name", KEEPS)
def test_what_is_left_is_of_the_call(name: str, is_looked_up: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Rows, their number, and what is made of weights alone."""
    keep, left, said = KEEPS[name]
    array = np.ones(1)
    notes: Any = Notes()
    alone: Any = Notes()

    def message(edges: Any) -> dict[str, Tensor]:
        keep(notes, edges.src["h"])
        return {"m": edges.src["h"]}

    def reading_an_array(edges: Any) -> dict[str, Tensor]:
        return {"m": message(edges)["m"] * float(array[0])}

    for each in (notes, alone):
        vars(each).update(seen=[], table={}, total=0, penalty=None, assigned=None)
    with caplog.at_level(logging.INFO, "vgraph"):
        for number, count in enumerate((4, 40, 4)):
            WEIGHT.fill_(number)
            g = vgraph.graph((torch.arange(count) % 3, torch.arange(count) % 2), num_nodes=3)
            g.ndata["h"] = X
            g.update_all(reading_an_array if is_looked_up else message, fn.sum("m", "o"))
            found = left(notes)
            keep(alone, X[g.edges()[0]])
            assert _same(found, left(alone))
    if is_looked_up:  # what is not made of rows is computed at every call
        assert ("for later" in caplog.text) != (name == "a penalty")
    else:
        assert f"it keeps {said} for later" in caplog.text


def test_a_number_of_rows_that_is_gone_after_the_call_is_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    array = np.ones(1)

    def message(edges: Any) -> dict[str, Tensor]:
        sizes = [edges.src["h"].shape[0], edges.batch_size()]
        return {"m": edges.src["h"].view(sizes[0], 2) * float(array[0])}

    g = _graph()
    with caplog.at_level(logging.INFO, "vgraph"):
        for number in range(3):
            array[0] = number
            g.update_all(message, fn.sum("m", "o"))
            assert torch.equal(g.ndata["o"], number * torch.zeros_like(X).index_add(0, DST, X[SRC]))
    assert "uncaptured" not in caplog.text


@pytest.mark.guards
def test_weights_that_a_layer_of_torch_makes_anew_are_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.warns(FutureWarning):
        layer = nn.utils.weight_norm(nn.Linear(2, 2, dtype=torch.float64))
    g = _graph()
    with caplog.at_level(logging.INFO, "vgraph"):
        for scale in (1, 2):
            g.ndata["h"] = scale * X
            g.update_all(lambda edges: {"m": layer(edges.src["h"])}, fn.sum("m", "o"))
            torch.testing.assert_close(g.ndata["o"], torch.zeros_like(X).index_add(0, DST, layer(scale * X[SRC])))
    assert "uncaptured" not in caplog.text


class Keeping(vgraph.VertexFunction):
    """A sum over children that leaves something for after the call."""

    def __init__(self, keep: Callable[[Any, Tensor], object]) -> None:
        super().__init__()
        self.keep, self.notes = keep, Notes()

    def forward(self, v: Any) -> None:
        h = v.pull("h") + v.gather()["s"].sum()
        self.keep(self.notes, h)
        v.scatter(s=h)
        v.push(h=h)


def _rows_alone(notes: Any, h: Tensor) -> None:
    notes.assigned = h * 2


@pytest.mark.guards
@pytest.mark.parametrize("keep", [_rows_alone, _keep_zeros, _keep_parameter, _keep_penalty])
def test_a_vertex_function_keeps_rows_of_vertices(
    keep: Callable[[Any, Tensor], object], caplog: pytest.LogCaptureFixture
) -> None:
    """It runs one vertex at a time: what stays is the last one's."""
    tree, cell = vgraph.graph(([0, 1], [2, 2])), Keeping(keep)
    with caplog.at_level(logging.INFO, "vgraph"):
        found = cell(tree, h=X)["h"]
    last = torch.stack([X[0], X[1], X.sum(0)])
    assert torch.equal(found, last) and "Keeping runs one vertex at a time, uncaptured: it keeps" in caplog.text
    wanted = Notes()
    keep(wanted, last[2:])
    assert all(_same(vars(cell.notes)[name], value) for name, value in vars(wanted).items())
