"""Messages of many shapes: rows in any dim, merged dims, products by head, sorts; as when written by hand."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import vgraph
import vgraph.function as fn
from vgraph.capture import capture

NUM_NODES, NUM_EDGES = 20, 60
chance = torch.Generator().manual_seed(0)
SRC, DST = (torch.randint(NUM_NODES, (NUM_EDGES,), generator=chance) for _ in range(2))


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=chance).requires_grad_()


H, E = normal(NUM_NODES, 2, 3), normal(NUM_EDGES, 2, 5)
W, BY_HEAD = normal(3, 5), normal(2, 3, 5)


SHARED: dict[str, Callable[[Any], Tensor]] = {
    "matmul": lambda x: x.src["h"] @ W,
    "matmul on edges": lambda x: torch.matmul(torch.tanh(x.src["h"] - x.dst["h"]), W),
    "linear": lambda x: F.linear(x.src["h"], W.T, W[0]) * x.data["e"],
    "linear by name": lambda x: F.linear(x.src["h"], bias=W[0], weight=W.T) * x.data["e"],
    "more dims": lambda x: (x.src["h"].unsqueeze(1) * x.dst["h"].unsqueeze(2)) @ W,
    "einsum": lambda x: torch.einsum("nhd,dk->nhk", x.src["h"], W) + x.data["e"],
    "einsum, turned": lambda x: torch.einsum("n h d, k d -> n k h", x.dst["h"], W.T),
}
MESSAGES: dict[str, Callable[[Any], Tensor]] = {
    **{f"a matrix for all heads: {name}": message for name, message in SHARED.items()},
    "rows of vertices and heads": lambda x: (x.src["h"].reshape(-1, 3) @ W).reshape(-1, 2, 5),
    "with rows of edges and heads": lambda x: ((x.src["h"].reshape(-1, 3) @ W) + x.data["e"].reshape(-1, 5)).reshape(
        -1, 2, 5
    ),
    "of both ends": lambda x: ((x.src["h"].reshape(-1, 3) @ W) + torch.tanh(x.dst["h"].reshape(-1, 3) @ W)).reshape(
        -1, 2, 5
    ),
    "a matrix a head": lambda x: torch.einsum("ehi,hij->ehj", x.src["h"], BY_HEAD),
    "a matrix a head, and edges": lambda x: torch.einsum("ehi,hij->ehj", x.src["h"], BY_HEAD) * x.data["e"],
    "heads first": lambda x: (x.src["h"].permute(1, 0, 2) * x.data["e"][..., :3].permute(1, 0, 2)).permute(1, 0, 2),
    "products, heads first": lambda x: (
        torch.bmm(x.src["h"].transpose(0, 1), BY_HEAD) + torch.bmm(x.dst["h"].transpose(0, 1), BY_HEAD)
    ).transpose(0, 1),
    "softmax, heads first": lambda x: torch.softmax(
        x.src["h"].transpose(0, 1) * x.dst["h"].transpose(0, 1), 0
    ).transpose(0, 1),
    "features first": lambda x: (x.src["h"].movedim(0, -1) - x.dst["h"].movedim(0, -1)).movedim(-1, 0),
    "three factors": lambda x: torch.einsum("ehi,ehj,hij->eh", x.src["h"], x.data["e"], BY_HEAD),
    "a matrix an edge": lambda x: x.data["e"].transpose(1, 2) @ x.src["h"],
    "of heads with heads": lambda x: x.src["h"] @ x.dst["h"].transpose(1, 2),
    "outer products": lambda x: x.src["h"].unsqueeze(-1) * x.dst["h"].unsqueeze(-2),
    "stacked": lambda x: torch.stack([x.src["h"], x.dst["h"]], 2).flatten(2),
    "turned round": lambda x: x.src["h"].flip(-1) + x.src["h"].roll(1, -1),
    "by index": lambda x: x.src["h"][:, [1, 0]] + x.src["h"][..., [2, 1, 0]],
    "sorted": lambda x: x.src["h"].sort(-1).values * x.dst["h"].argsort(-1),
    "chunks": lambda x: torch.cat(x.src["h"].chunk(3, -1)[::-1], -1),
    "of length one": lambda x: x.src["h"] / (x.src["h"] - x.dst["h"]).norm(dim=-1, keepdim=True).clamp(min=1e-3),
    "distances": lambda x: torch.cdist(x.src["h"], x.dst["h"]),
    "cross products": lambda x: torch.linalg.cross(x.src["h"], x.dst["h"]),
    "convolutions": lambda x: F.conv1d(x.src["h"], BY_HEAD.permute(2, 0, 1)[:, :, :2], padding=1),
    "determinants": lambda x: torch.linalg.det(torch.cat([x.src["h"], x.dst["h"][:, :1]], 1)).unsqueeze(1),
    "gated": lambda x: F.glu(torch.cat([x.src["h"], x.dst["h"]], -1), -1),
}


def gradients(out: Tensor, leaves: list[Tensor]) -> list[Tensor | None]:
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return list(torch.autograd.grad((out * weights).sum(), leaves, allow_unused=True)) if out.requires_grad else []


@pytest.mark.parametrize(
    ("kernels", "of_vertices"), [("0", True), ("0", False), ("1", True)],
    ids=["operators", "vertices without gradient", "kernels"],
)  # fmt: skip
@pytest.mark.parametrize("name", MESSAGES)
def test_message_of_any_shape(name: str, kernels: str, of_vertices: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", kernels)
    capture.forget()
    message, h = MESSAGES[name], H if of_vertices else H.detach()
    by_hand = message(SimpleNamespace(src={"h": h[SRC]}, dst={"h": h[DST]}, data={"e": E}))
    wanted = torch.zeros(NUM_NODES, *by_hand.shape[1:], dtype=by_hand.dtype).index_add(0, DST, by_hand)
    g = vgraph.graph((SRC, DST), num_nodes=NUM_NODES)
    g.ndata["h"], g.edata["e"] = h, E
    g.update_all(lambda x: {"m": message(x)}, fn.sum("m", "out"))
    torch.testing.assert_close(g.ndata["out"], wanted, rtol=1e-9, atol=1e-10)
    leaves = [W, BY_HEAD, E, *([H] if of_vertices else [])]
    pairs = zip(gradients(g.ndata["out"], leaves), gradients(wanted, leaves), strict=True)
    for mine, theirs in pairs:
        assert (mine is None) == (theirs is None)
        if mine is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", SHARED)
def test_a_matrix_for_all_heads_is_captured(name: str) -> None:
    g = vgraph.graph((SRC, DST), num_nodes=NUM_NODES)
    g.ndata["h"], g.edata["e"] = H, E
    message = SHARED[name]
    told = str(vgraph.explain(g, lambda x: {"m": message(x)}, fn.sum("m", "out")))
    assert "not captured" not in told.splitlines()[0]


def test_one_that_cannot_be_captured_leaves_others_of_its_code_as_they_are() -> None:
    """A wrapper's functions have one code: which function it calls is what they close over."""
    capture.forget()
    g = vgraph.graph((SRC, DST), num_nodes=NUM_NODES)
    g.ndata["h"] = H

    def run(message: Callable[[Any], Tensor]) -> None:
        g.update_all(lambda x: {"m": message(x)}, fn.sum("m", "out"))

    def good(x: Any) -> Tensor:
        return x.src["h"] * 2

    def bad(x: Any) -> Tensor:
        return x.src["h"] * (2 if x.src["h"].sum().item() > 0 else 3)

    run(good)
    for _ in range(5):
        run(bad)
    before = capture.num_captures()
    run(good)
    torch.testing.assert_close(g.ndata["out"], torch.zeros_like(H).index_add(0, DST, 2 * H[SRC]))
    assert capture.num_captures() == before
    with capture.watch_runs() as runs:
        run(good)
    assert [type(what) for _, what, _ in runs] == [capture.Bound]


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_rows_without_numbers_are_captured(reduce: str, caplog: pytest.LogCaptureFixture) -> None:
    g = vgraph.graph((SRC, DST), num_nodes=NUM_NODES)
    x = torch.ones(NUM_NODES, 2, 0, requires_grad=True)
    g.ndata["x"] = x
    with caplog.at_level("INFO", "vgraph"):
        g.update_all(fn.copy_u("x", "m"), getattr(fn, reduce)("m", "out"))
        g.ndata["out"].sum().backward()
    assert g.ndata["out"].shape == (NUM_NODES, 2, 0) and x.grad is not None and not caplog.text
