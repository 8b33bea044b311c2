"""parallelize on models as users write them: each equals one process, loss, gradients and buffers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vgraph

Forward = Callable[..., Tensor]
CASES: dict[str, tuple[Callable[[], dict[str, Any]], Forward, Callable[[], tuple[Any, ...]], tuple[int, ...]]] = {}


class Model(nn.Module):
    """Some modules, parameters and buffers, and a function of them and the batch."""

    def __init__(self, parts: dict[str, Any], forward: Forward) -> None:
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)
        self.compute = forward

    def forward(self, *batch: Any) -> Tensor:
        return self.compute(self, *batch)


def case(
    name: str,
    parts: Callable[[], dict[str, Any]],
    forward: Forward,
    batch: Callable[[], tuple[Any, ...]],
    *workers: int,
) -> None:
    CASES[name] = (parts, forward, batch, workers or (2,))


def x(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def turned(size: int) -> Tensor:
    """A matrix that lies column by column in memory, which workers' parts do not."""
    return torch.arange(size * size, dtype=torch.float64).reshape(size, size).square().mT


def ids(most: int, *shape: int) -> Tensor:
    return torch.randint(0, most, shape)


def linear() -> dict[str, Any]:
    return {"a": nn.Linear(8, 8)}


def conv(*args: Any, **kwargs: Any) -> Callable[[], dict[str, Any]]:
    return lambda: {"a": nn.Conv2d(*args, **kwargs)}


# ---------------------------------------------------------------- parameters
def tied() -> dict[str, Any]:
    parts = {"a": nn.Embedding(12, 8), "b": nn.Linear(8, 12, bias=False)}
    parts["b"].weight = parts["a"].weight
    return parts


def frozen() -> dict[str, Any]:
    return {"a": nn.Linear(8, 16).requires_grad_(False), "b": nn.Linear(16, 8)}


def class_loss(m: Any, i: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(m.b(m.a(i)).flatten(0, 1), y.flatten())


case("tied", tied, class_loss, lambda: (ids(12, 4, 6), ids(12, 4, 6)), 2, 4)
case("frozen", frozen, lambda m, v: m.b(torch.relu(m.a(v))).square().mean(), lambda: (x(4, 8),))
case("unused", lambda: {**linear(), "b": nn.Linear(5, 7)}, lambda m, v: m.a(v).square().mean(), lambda: (x(4, 8),))
case("buffers", lambda: {**linear(), "count": torch.zeros(())},
     lambda m, v: m.a(v).square().mean() * m.count.add_(1.0), lambda: (x(4, 8),))  # fmt: skip
case("complex", lambda: {"w": nn.Parameter(torch.randn(8, 8, dtype=torch.complex128))},
     lambda m, v: (v.to(torch.complex128) @ m.w).abs().square().mean(), lambda: (x(4, 8),))  # fmt: skip
case("layers in a plain list", lambda: {**linear(), "more": [nn.Linear(8, 8).double()]},
     lambda m, v: m.more[0](m.a(v)).square().mean(), lambda: (x(4, 8),))  # fmt: skip


# ---------------------------------------------------------------- layers
def batch_norm() -> dict[str, Any]:
    return {"a": nn.Conv2d(3, 8, 3, padding=1), "b": nn.BatchNorm2d(8)}


def normed(m: Any, v: Tensor) -> Tensor:
    return F.relu(m.b(m.a(v))).square().mean()


case("batch norm", batch_norm, normed, lambda: (x(4, 3, 6, 6),), 2, 4)
case("group norm", lambda: {"a": nn.Conv2d(4, 8, 3), "b": nn.GroupNorm(4, 8)}, normed, lambda: (x(4, 4, 6, 6),))
case("instance norm", lambda: {"a": nn.Conv2d(3, 8, 3), "b": nn.InstanceNorm2d(8, affine=True)}, normed,
     lambda: (x(4, 3, 6, 6),))  # fmt: skip
case("grouped", conv(8, 16, 3, groups=4), lambda m, v: m.a(v).square().mean(), lambda: (x(4, 8, 6, 6),), 4)
case("conv1d", lambda: {"a": nn.Conv1d(4, 8, 3, 2, 1)}, lambda m, v: m.a(v).square().mean(), lambda: (x(4, 4, 16),))
case("circular", conv(4, 8, 3, padding=1, padding_mode="circular"), lambda m, v: m.a(v).square().mean(),
     lambda: (x(4, 4, 6, 6),))  # fmt: skip
case("transposed", lambda: {"a": nn.ConvTranspose2d(4, 8, 4, 2, 1)}, lambda m, v: m.a(v).square().mean(),
     lambda: (x(4, 4, 6, 6),), 2, 8)  # fmt: skip
case("transposed, grouped", lambda: {"a": nn.ConvTranspose1d(4, 8, 3, 2, 1, output_padding=1, groups=2)},
     lambda m, v: m.a(v).square().mean(), lambda: (x(4, 4, 8),), 2, 4)  # fmt: skip
case("attention", lambda: {"a": nn.MultiheadAttention(12, 6, batch_first=True)},
     lambda m, v: m.a(v, v, v)[0].square().mean(), lambda: (x(3, 6, 12),), 2, 3, 6)  # fmt: skip
case("encoder layer", lambda: {"a": nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)},
     lambda m, v, k: m.a(v, src_key_padding_mask=k)[:, 0].square().mean(),
     lambda: (x(4, 6, 8), torch.arange(6).expand(4, 6) > 4))  # fmt: skip
case("causal", lambda: {"a": nn.Linear(8, 24)},
     lambda m, v: F.scaled_dot_product_attention(
         *(t.view(4, 6, 2, 4).transpose(1, 2) for t in m.a(v).chunk(3, -1)), is_causal=True).square().mean(),
     lambda: (x(4, 6, 8),), 4)  # fmt: skip
case("lstm", lambda: {"a": nn.LSTM(6, 6, batch_first=True)}, lambda m, v: m.a(v)[0].square().mean(),
     lambda: (x(3, 2, 6),), 3)  # fmt: skip
case("gru", lambda: {"a": nn.GRU(8, 8, bidirectional=True)}, lambda m, v: m.a(v)[0].square().mean(),
     lambda: (x(2, 4, 8),))  # fmt: skip
case("embedding", lambda: {"a": nn.Embedding(12, 8, padding_idx=0), "b": nn.Embedding(12, 8)},
     lambda m, i: (m.a(i) * m.b(i)).square().mean(), lambda: (ids(12, 4, 6),))  # fmt: skip
case("spectral norm", lambda: {"a": torch.nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))},
     lambda m, v: m.a(v).square().mean(), lambda: (x(4, 8),))  # fmt: skip


# ---------------------------------------------------------------- losses, writes, views
def several(m: Any, v: Tensor, y: Tensor, z: Tensor) -> Tensor:
    weighed = F.cross_entropy(m.a(v), y, weight=m.w, ignore_index=3)
    return weighed + 0.5 * F.mse_loss(m.a(v), z) + 1e-3 * sum(p.square().sum() for p in m.parameters())


def writes(m: Any, v: Tensor) -> Tensor:
    v[:, 1] = 0.0
    h = m.a(v).clone()
    h[:, 0] = 0
    h[1] = h[0] * 2
    h[:, 2:4] *= 3
    h[h > 0.5] = 0.1
    h[0, 1] = torch.tensor(2.0, dtype=torch.float64)
    h.t()[3] = v[:, 1]
    return h.masked_fill_(v > 1, 0.3).square().mean()


def views(m: Any, v: Tensor) -> Tensor:
    h = m.a(v)
    one, two, three = h.split([3, 2, 3], -1)
    first, second = h.chunk(2)
    mixed = torch.cat([one, three, two], -1) * h.view(2, 2, 8).transpose(0, 1).reshape(4, 8)
    return mixed.sum() + (first * second).sum() + h[:, ::2].sum() + h.flip(0).mul(v).sum() + h.roll(1, 1).mul(v).sum()


case("losses", lambda: {**linear(), "w": torch.rand(8)}, several, lambda: (x(16, 8), ids(8, 16), x(16, 8)), 2, 4)
case("writes", linear, writes, lambda: (x(4, 8),), 1, 2, 4)
case("views", linear, views, lambda: (x(4, 8),), 2, 4)
case("sorter", lambda: {**linear(), "w": torch.randn(8)},
     lambda m, v: (torch.searchsorted(m.w, v, sorter=m.w.sort()[1]) * m.a(v)).square().mean(),
     lambda: (x(4, 8),), 2, 4)  # fmt: skip
case("determinant", lambda: {**linear(), "w": nn.Parameter(turned(8).cos()), "m": turned(8).sin()},
     lambda m, v: m.a(v).square().mean() - torch.linalg.det(m.w) - torch.slogdet(m.m + m.w @ m.a.weight)[1],
     lambda: (x(4, 8),), 2, 4)  # fmt: skip
case("masks", linear, lambda m, v, k: torch.where(k, m.a(v), v).softmax(-1).square().sum(),
     lambda: (x(4, 8), x(4, 8) > 0))  # fmt: skip
case("odd sizes", lambda: {"a": nn.Conv2d(3, 5, 3, 2, 1), "b": nn.BatchNorm2d(5)}, normed,
     lambda: (x(6, 3, 13, 11),), 1, 2, 3, 6)  # fmt: skip
case("seven", lambda: {"a": nn.Linear(7, 14)}, lambda m, v: m.a(v).square().mean(), lambda: (x(3, 7),), 7)


def compare(model: nn.Module, batch: tuple[Any, ...], workers: int) -> None:
    alone = copy.deepcopy(model)
    plan = vgraph.parallelize(model, batch, workers)
    found = plan.run_in_process(*copy.deepcopy(batch))
    loss = alone(*copy.deepcopy(batch))
    loss.backward()
    close = {"rtol": 1e-9, "atol": 1e-9}
    torch.testing.assert_close(found.loss, loss.detach(), **close)
    for gradient, parameter in zip(found.grads, alone.parameters(), strict=True):
        assert (gradient is None) == (parameter.grad is None)
        if gradient is not None:
            torch.testing.assert_close(gradient, parameter.grad, **close)
    torch.testing.assert_close(found.buffers, dict(alone.named_buffers()), **close)


@pytest.mark.parametrize("name", CASES)
def test_equals_one_process(name: str) -> None:
    parts, forward, batch, workers = CASES[name]
    model, given = Model(parts(), forward), batch()
    model = model if name == "complex" else model.double()
    for count in workers:
        compare(model, given, count)


def test_evaluation_is_recorded_as_it_is() -> None:
    model = Model({**batch_norm(), "c": nn.Dropout(0.5)}, lambda m, v: m.c(m.b(m.a(v))).square().mean())
    compare(model.double().eval(), (x(4, 3, 6, 6),), 2)


def test_half_precision_parameters() -> None:
    model = Model({"a": nn.Linear(8, 16), "b": nn.LayerNorm(16)}, lambda m, v: m.b(m.a(v)).relu().square().mean())
    batch = (torch.randn(4, 8, dtype=torch.bfloat16),)
    found = vgraph.parallelize(model.bfloat16(), batch, 2).run_in_process(*batch)
    assert found.loss.dtype == found.parameters[0].dtype == torch.bfloat16
    torch.testing.assert_close(found.loss, model(*batch).detach(), rtol=0.05, atol=0.05)


def test_a_model_that_remembers_its_last_activation() -> None:
    def remember(m: Any, v: Tensor) -> Tensor:
        m.last = m.a(v)
        return m.last.square().mean()

    model, batch = Model(linear(), remember).double(), (x(4, 8),)
    model(*batch)
    assert model.last.grad_fn is not None
    found = vgraph.parallelize(model, batch, 2).run_in_process(*batch)
    torch.testing.assert_close(found.loss, model(*batch).detach())


@torch.inference_mode()
def test_a_plan_is_made_in_any_mode() -> None:
    model, batch = Model(linear(), lambda m, v: m.a(v).square().mean()), (torch.randn(4, 8),)
    found = vgraph.parallelize(model, batch, 2).run_in_process(*batch)
    torch.testing.assert_close(found.loss, model(*batch))
