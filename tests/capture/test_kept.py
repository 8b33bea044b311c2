"""Rows that a function keeps for after the call are those of the call."""

from __future__ import annotations

import logging
import time
from typing import Any

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
