"""How wide the vectors of a loop over features are."""

from __future__ import annotations

import pytest
import torch

import vgraph
from vgraph.fusion.cpu.vectors import without_overlap


@pytest.mark.parametrize(
    ("length", "widest", "chosen"),
    [
        (16, 16, 16),
        (20, 16, 4),
        (24, 16, 8),
        (36, 16, 4),
        (40, 16, 8),
        (48, 16, 16),
        (56, 16, 8),
        (72, 16, 8),
        (12, 8, 4),
    ],
)
def test_narrower_vectors_without_a_rest(length: int, widest: int, chosen: int) -> None:
    assert without_overlap(length, widest) == chosen


@pytest.mark.parametrize(("length", "widest"), [(10, 8), (30, 16), (33, 16), (100, 16), (150, 16), (300, 16), (1, 1)])
def test_too_narrow_or_too_many(length: int, widest: int) -> None:
    """Two numbers a vector, or four times as many vectors, cost more than the last one's mask."""
    assert without_overlap(length, widest) == widest


@pytest.mark.parametrize("width", [20, 40, 36, 100])
def test_sums_over_features_of_such_widths(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention by products of rows equals torch by hand, with its gradients."""
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    torch.manual_seed(0)
    ends = torch.randint(0, 40, (2, 300))
    g = vgraph.graph((ends[0], ends[1]), num_nodes=40)
    rows = {name: torch.randn(40, width, dtype=torch.float64, requires_grad=True) for name in "abh"}
    for name, value in rows.items():
        g.ndata[name] = value
    g.update_all(
        lambda e: {"m": e.src["h"], "s": (e.src["a"] * e.dst["b"]).sum(-1, keepdim=True)},
        lambda v: {"o": (torch.softmax(v.mailbox["s"], 1) * v.mailbox["m"]).sum(1)},
    )
    scores = torch.full((40, 40), -torch.inf, dtype=torch.float64)
    counts = torch.zeros(40, 40, dtype=torch.float64).index_put_(
        (ends[1], ends[0]), torch.ones(300).double(), accumulate=True
    )
    scores = torch.where(counts > 0, rows["b"] @ rows["a"].T + counts.log(), scores)
    wanted = torch.softmax(scores, 1) @ rows["h"]
    assert (g.in_degrees() > 0).all()
    torch.testing.assert_close(g.ndata["o"], wanted)
    weights = torch.randn_like(wanted)
    found = torch.autograd.grad((g.ndata["o"] * weights).sum(), list(rows.values()))
    for one, other in zip(found, torch.autograd.grad((wanted * weights).sum(), list(rows.values())), strict=True):
        torch.testing.assert_close(one, other)
