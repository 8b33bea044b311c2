"""What is longer, wider or deeper than usual: mailboxes, rows, functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import vgraph
from tests.api.agreement import assert_agrees, family_of_functions, random_frames, small_topology
from vgraph.api.messages import propagate as by_messages
from vgraph.capture.record.example_sizes import sizes_for
from vgraph.ir.space import EDGE


def _weighted(edges: Any) -> dict[str, Tensor]:
    src, dst, ids = edges.edges()
    known = (src + 2 * dst + 3 * ids).unsqueeze(1)
    return {"m": edges.src["h"] * edges.data["w"] + edges.dst["h"] + known}


def _picked(nodes: Any) -> dict[str, Tensor]:
    mailbox = nodes.mailbox["m"]
    ranked = mailbox.sort(1).values * nodes.data["h"].unsqueeze(1)
    return {"o": mailbox.median(1).values + ranked[:, -1], "id": nodes.nodes()}


@pytest.mark.guards
def test_long_mailboxes_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples of a mailbox as long as a hub's cost many times what the hub costs."""
    monkeypatch.setattr(by_messages, "_LONGEST_RECORDED", 2)
    topology = small_topology()
    assert_agrees(topology, random_frames(topology, {"node:h": (3,), "edge:w": (3,)}), _weighted, _picked)
    known = [family_of_functions(_weighted, _picked, "degree", degree) for degree in (1, 2, 3, 4)]
    assert [family.num_captures for family in known] == [1, 1, 0, 0]


def test_long_mailboxes_after_edges_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_messages, "_LONGEST_RECORDED", 2)
    graph = vgraph.graph(([0, 1, 2, 3], [4, 4, 4, 0]))
    graph.ndata["h"] = torch.arange(5.0)

    def write(edges: Any) -> dict[str, Tensor]:
        edges.data["twice"] = 2 * edges.src["h"]
        return {"m": edges.data["twice"]}

    graph.update_all(write, lambda nodes: {"o": nodes.mailbox["m"].sort(1).values[:, 0]})
    assert graph.edata["twice"].tolist() == [0, 2, 4, 6]
    assert graph.ndata["o"].tolist() == [6, 0, 0, 0, 0]


def test_a_mailbox_may_change_in_place_without_capture() -> None:
    graph = vgraph.graph(([0, 1, 2, 3], [4, 4, 4, 0]))
    graph.ndata["h"] = torch.arange(5.0, requires_grad=True)
    seen: list[Tensor] = []  # what a capture refuses to keep

    def doubled(nodes: Any) -> dict[str, Tensor]:
        seen.append(nodes.mailbox["m"].mul_(2).detach())
        return {"o": nodes.mailbox["m"].sort(1).values[:, -1]}

    graph.update_all(vgraph.function.copy_u("h", "m"), doubled)
    assert graph.ndata["o"].tolist() == [6, 0, 0, 0, 4]
    (grad,) = torch.autograd.grad(graph.ndata["o"].sum(), graph.ndata["h"])
    assert grad.tolist() == [0, 0, 2, 2, 0]


def test_examples_of_long_mailboxes_are_few() -> None:
    for degree in (1, 100, 128, 1000, 4096):
        first, second = (sizes[EDGE] for sizes in sizes_for(degree))
        assert first < second <= max(31 * 128, 7 * 1024, 3 * degree)


@pytest.mark.parametrize("width", [1, 2, 7, 1025])
def test_narrow_and_wide_rows(width: int) -> None:
    topology = small_topology()

    def message(edges: Any) -> dict[str, Tensor]:
        return {"m": edges.src["h"] * torch.sigmoid(edges.dst["h"])}

    frames = random_frames(topology, {"node:h": (width,)})
    assert_agrees(topology, frames, message, lambda nodes: {"o": nodes.mailbox["m"].sum(1)})
