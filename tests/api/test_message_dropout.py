"""Dropout in a message: numbers are keyed by rows, so threads, chunks and backward agree."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import vgraph
import vgraph.function as fn
from tests.api.agreement import DST, SRC

DROPOUT = nn.Dropout(0.5)
MESSAGES: dict[str, Any] = {
    "functional": lambda e: {"m": F.dropout(e.src["x"], 0.5)},
    "module": lambda e: {"m": DROPOUT(e.src["x"])},
    "by hand": lambda e: {"m": e.src["x"] * torch.bernoulli(torch.full_like(e.src["x"], 0.5)) * 2},
    "noise": lambda e: {"m": e.src["x"] * (torch.randn_like(e.src["x"]) + 1)},
}
REDUCES: dict[str, Any] = {
    "segments": lambda v: {"out": v.mailbox["m"].sum(1)},
    "degrees": lambda v: {"out": v.mailbox["m"].sum(1) * v.mailbox["m"].shape[1] ** 0.5},
}


def run(message: Any, reduce: Any, x: Tensor, seed: int, graph: Any = None) -> Tensor:
    g = vgraph.graph((SRC, DST), num_nodes=7) if graph is None else graph
    g.ndata["x"] = x
    torch.manual_seed(seed)
    g.update_all(message, reduce)
    return g.ndata["out"]


@pytest.mark.parametrize("reduce", REDUCES)
@pytest.mark.parametrize("name", MESSAGES)
def test_backward_draws_the_numbers_of_forward(name: str, reduce: str) -> None:
    x = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    message = MESSAGES[name]
    assert torch.autograd.gradcheck(lambda x: run(message, REDUCES[reduce], x, 5), (x,))
    assert torch.autograd.gradgradcheck(lambda x: run(message, REDUCES[reduce], x, 5) ** 2, (x,))


@pytest.mark.parametrize("reduce", REDUCES)
@pytest.mark.parametrize("name", MESSAGES)
def test_seeds_decide(name: str, reduce: str) -> None:
    x = torch.randn(7, 8, dtype=torch.float64)
    first, again, other = (run(MESSAGES[name], REDUCES[reduce], x, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_any_number_of_threads() -> None:
    ends = torch.randint(0, 50, (2, 4000))
    g = vgraph.graph((ends[0], ends[1]), num_nodes=50)
    x = torch.randn(50, 16, requires_grad=True)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            out = run(MESSAGES["functional"], fn.sum("m", "out"), x, 3, g)
            found.append((out, torch.autograd.grad(out.sum(), x)[0]))
    finally:
        torch.set_num_threads(before)
    for out, grad in found[1:]:
        torch.testing.assert_close(out, found[0][0], rtol=1e-6, atol=1e-5)
        torch.testing.assert_close(grad, found[0][1], rtol=1e-6, atol=1e-5)
        assert torch.equal(out == 0, found[0][0] == 0)


def test_every_edge_and_column_is_dropped_by_itself() -> None:
    count, width = 400, 64
    g = vgraph.graph((torch.zeros(count, dtype=torch.int64), torch.arange(count)), num_nodes=count)
    x = torch.ones(count, width)
    out = run(lambda e: {"m": F.dropout(e.src["x"], 0.3)}, fn.sum("m", "out"), x, 0, g)
    kept = out != 0
    assert torch.allclose(out[kept], torch.tensor(1 / 0.7))
    error = 4 * (0.3 * 0.7 / (count * width)) ** 0.5
    assert abs(kept.float().mean() - 0.7) < error
    for axis, size in ((0, count), (1, width)):  # neither rows nor columns are alike
        assert (kept.float().mean(axis) - 0.7).abs().max() < 5 * (0.3 * 0.7 / size) ** 0.5
    signs = kept.float() - 0.7
    along = (signs[:, 1:] * signs[:, :-1]).mean().abs(), (signs[1:] * signs[:-1]).mean().abs()
    assert max(along) < 5 * 0.21 / (count * width) ** 0.5


def test_numbers_follow_edges_of_a_part() -> None:
    """An edge has the same numbers whether its whole graph or a part of it is updated."""
    g = vgraph.graph((SRC, DST), num_nodes=7)
    g.ndata["x"] = torch.randn(7, 6)
    message = MESSAGES["functional"]
    torch.manual_seed(4)
    g.apply_edges(message)
    whole = g.edata.pop("m")
    torch.manual_seed(4)
    g.apply_edges(message, [3, 8, 9])
    assert torch.equal(g.edata["m"][[3, 8, 9]], whole[[3, 8, 9]])


def test_evaluation_drops_nothing() -> None:
    x = torch.randn(7, 3)
    DROPOUT.eval()
    try:
        first, second = (run(MESSAGES["module"], REDUCES["segments"], x, seed) for seed in (1, 2))
    finally:
        DROPOUT.train()
    assert torch.equal(first, second)
    assert not torch.equal(run(MESSAGES["module"], REDUCES["segments"], x, 1), first)


def twice(x: Tensor) -> Tensor:
    return F.dropout(F.dropout(x.square(), 0.25), 0.5)


def test_a_checkpoint_draws_what_its_forward_drew() -> None:
    g = vgraph.graph((SRC, DST), num_nodes=7)
    g.ndata["x"] = x = (0.5 + torch.rand(7, 8, dtype=torch.float64)).requires_grad_()
    g.apply_edges(lambda e: {"m": checkpoint(twice, e.src["x"], use_reentrant=False)})
    found = g.edata["m"]
    found.sum().backward()
    slopes = 2 * found.detach() / x.detach()[SRC]  # of a square times a factor
    torch.testing.assert_close(x.grad, torch.zeros(7, 8, dtype=torch.float64).index_add(0, torch.tensor(SRC), slopes))


def test_a_function_that_seeds_the_generator_draws_alike_at_every_call() -> None:
    def seeded(e: Any) -> dict[str, Tensor]:
        torch.manual_seed(0)
        return {"m": F.dropout(e.src["x"], 0.5)}

    x = torch.rand(7, 8)
    first, again = (run(seeded, REDUCES["segments"], x, seed) for seed in (1, 2))
    assert torch.equal(first, again)


def test_a_recording_leaves_torchs_generator_where_it_was() -> None:
    """But for the seed of the call, also where it is recorded for the first time."""
    found = []
    for _ in range(2):
        run(MESSAGES["module"], REDUCES["segments"], torch.ones(7, 9), 1)
        found.append(torch.get_rng_state())
    assert torch.equal(*found)
