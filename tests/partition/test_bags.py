"""Bags of embeddings are lookups and sums: what torch's own operator computes, with tables that are divided."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
from vgraph.partition.accounting.footprint import whole_footprint

OFFSETS = torch.tensor([0, 3, 3, 4, 9, 16, 16, 17])  # two bags are empty


class Bags(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(16, 8, **options).double(), nn.Linear(8, 8).double()

    def forward(self, *given: Tensor | None) -> Tensor:
        return self.head(self.bag(*given)).square().mean()


EVEN, RAGGED = torch.arange(40).reshape(8, 5) * 7 % 16, torch.arange(24) * 5 % 16
CASES: list[tuple[dict[str, Any], tuple[Tensor | None, ...]]] = [
    ({"mode": "sum"}, (EVEN,)),
    ({"mode": "mean"}, (EVEN.int(),)),
    ({"mode": "max"}, (EVEN,)),
    ({"mode": "sum", "padding_idx": 3}, (EVEN,)),
    ({"mode": "mean", "padding_idx": -2}, (torch.where(EVEN < 8, 14, EVEN),)),
    ({"mode": "max", "padding_idx": 3}, (torch.cat([EVEN[:-1], torch.full((1, 5), 3)]),)),
    ({"mode": "sum"}, (EVEN, None, torch.linspace(0, 1, 40).double().reshape(8, 5))),
    ({"mode": "sum"}, (RAGGED, OFFSETS)),
    ({"mode": "mean", "padding_idx": 5}, (RAGGED, OFFSETS)),
    ({"mode": "mean", "include_last_offset": True}, (RAGGED, torch.cat([OFFSETS, torch.tensor([24])]))),
    ({"mode": "sum"}, (RAGGED, OFFSETS, torch.linspace(0, 1, 24).double())),
    ({"mode": "sum", "scale_grad_by_freq": True}, (EVEN,)),
]


@pytest.mark.parametrize(("options", "batch"), CASES, ids=range(len(CASES)))
def test_bags_are_what_torch_computes(options: dict[str, Any], batch: tuple[Tensor | None, ...]) -> None:
    model = Bags(**options)
    plan = vgraph.parallelize(model, batch, 2)
    found = plan.run_in_process(*batch)
    loss = model(*batch)
    loss.backward()
    torch.testing.assert_close(found.loss, loss.detach(), rtol=1e-10, atol=1e-12)
    for got, parameter in zip(found.grads, model.parameters(), strict=True):
        torch.testing.assert_close(got, parameter.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("head", [256, 8])
def test_a_table_of_bags_is_divided(head: int) -> None:
    with torch.device("meta"):
        model, ids = (
            nn.Sequential(nn.EmbeddingBag(10**6, 64, mode="sum"), nn.Linear(64, head), Squares()),
            torch.zeros(512, 8, dtype=torch.long),
        )
    plan = vgraph.parallelize(model, (ids,), 8)
    assert plan.memory_per_worker < 1.01 * whole_footprint(plan.step).total / 8
    assert plan.communicated_bytes < 0.01 * 10**6 * 64 * 4


def _counting(rows: int, head: int) -> nn.Module:
    """Gradients over how often an id occurs: torch's own operator, which no index notation describes."""
    return nn.Sequential(nn.EmbeddingBag(rows, 64, mode="sum", scale_grad_by_freq=True), nn.Linear(64, head), Squares())


def test_what_is_not_divided_is_told_when_a_plan_is_made(caplog: pytest.LogCaptureFixture) -> None:
    with torch.device("meta"):
        model, ids = _counting(2**15, 256), torch.zeros(512, 8, dtype=torch.long)
    plan = vgraph.parallelize(model, (ids,), 4)
    assert plan.memory_per_worker > 1.5 * whole_footprint(plan.step).total / 4
    (told,) = [record.getMessage() for record in caplog.records]
    assert "fair shares; memory_limit= asks for a plan that holds less" in told
    assert "_embedding_bag" in told
    assert "vgraph.tdl takes one" in told


def test_a_refusal_names_what_is_not_described() -> None:
    with torch.device("meta"):
        model, ids = _counting(10**6, 8), torch.zeros(512, 8, dtype=torch.long)
    with pytest.raises(
        vgraph.VGraphError, match=r"no index notation describes _embedding_bag, _embedding_bag_backward"
    ):
        vgraph.parallelize(model, (ids,), 8)


class Squares(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.square().mean()


class Spectra(nn.Module):
    """Filters of frequencies, along one dim and along two."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.filter = nn.Linear(8, 8).double(), nn.Parameter(torch.randn(5, 8, 2).double())

    def forward(self, x: Tensor) -> Tensor:
        h = torch.fft.rfft(self.first(x), dim=1) * torch.view_as_complex(self.filter)
        return torch.fft.fft2(torch.fft.irfft(h, n=x.shape[1], dim=1)).real.square().mean()


class Normed(nn.Module):
    """Weights over their largest singular value, and over the norms of their rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 16).double())
        self.second = nn.utils.parametrizations.weight_norm(nn.Linear(16, 8).double())

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x))).square().mean()


@pytest.mark.parametrize("model", [Spectra, Normed])
def test_spectra_and_norms_of_weights_are_divided(model: type[nn.Module]) -> None:
    torch.manual_seed(1)
    net, x = model(), torch.randn(8, 8, 8).double()
    plan = vgraph.parallelize(net, (x,), 4)
    found = plan.run_in_process(x)
    loss = net(x)
    loss.backward()
    torch.testing.assert_close(found.loss, loss.detach(), rtol=1e-10, atol=1e-12)
    for got, parameter in zip(found.grads, net.parameters(), strict=True):
        torch.testing.assert_close(got, parameter.grad, rtol=1e-10, atol=1e-12)
    assert plan.memory_per_worker < 1.25 * whole_footprint(plan.step).total / 4
