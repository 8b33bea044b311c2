"""Rows that a function keeps for after the call are those of the call."""

from __future__ import annotations

import logging
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
