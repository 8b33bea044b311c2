"""A captured training step computes what PyTorch computes, and refuses what it cannot record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.distributions import Distribution, Normal, kl_divergence
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

import vgraph
from vgraph.capture.step.capture_step import _without_checks, capture_step
from vgraph.errors import ModelError
from vgraph.ir.program import Value, map_leaves
from vgraph.ir.step import BACKWARD, FORWARD, UPDATE, TrainingStep


def interpret(step: TrainingStep, given: Mapping[int, Tensor]) -> dict[int, Any]:
    known: dict[int, Any] = dict(given)

    def now(leaf: Any) -> Any:
        return known[leaf.id] if isinstance(leaf, Value) else leaf

    for op in step.ops:
        kwargs = {key: map_leaves(value, now) for key, value in op.kwargs.items()}
        out = op.target(*map_leaves(op.args, now), **kwargs)
        for value, tensor in zip(op.results, out if op.returns_sequence else [out], strict=True):
            if tensor is not None:  # a gradient that was not asked for
                assert (tuple(tensor.shape), tensor.dtype) == (value.shape, value.dtype)
            known[value.id] = tensor
    return known


def given_for(step: TrainingStep, model: nn.Module, batch: tuple[Tensor, ...], lr: float) -> dict[int, Tensor]:
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    given = {v.id: parameters[n].detach().clone() for n, v in step.parameters.items()}
    given |= {v.id: buffers[n].clone() for n, v in step.buffers.items()}
    given |= {v.id: x for v, x in zip(step.inputs, batch, strict=True)}
    given |= {h.before.id: torch.full(h.before.shape, h.initial, dtype=h.before.dtype) for h in step.history}
    if step.learning_rate is not None:
        given[step.learning_rate.id] = torch.tensor(lr, dtype=torch.float64)
    return {**given, **step.constants}


class Everything(nn.Module):
    """Layers of every kind, a tied weight, writes in place, a window written through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(11, 8), nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.lstm, self.out = nn.LSTM(8, 8, 2, batch_first=True), nn.Linear(8, 11, bias=False)
        self.conv, self.bn, self.gn = nn.Conv1d(8, 8, 3, padding=1, bias=False), nn.BatchNorm1d(8), nn.GroupNorm(2, 8)
        self.out.weight = self.embed.weight

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.norm(self.embed(x))
        h = h + self.attention(h, h, h, need_weights=False)[0]
        h = self.gn(self.bn(self.conv(self.lstm(h)[0].transpose(1, 2)))).transpose(1, 2)
        h = F.gelu(h).clone()
        h[:, 0] = 0.5
        h = F.scaled_dot_product_attention(h, h, h, is_causal=True)
        return F.cross_entropy(self.out(h).flatten(0, 1), y.flatten())


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, eps=1.0),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, eps=1.0),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, eps=1.0, initial_accumulator_value=0.5),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_what_torch_computes(name: str) -> None:
    model, make = Everything().double(), OPTIMIZERS[name]
    batch = (torch.randint(0, 11, (4, 6)), torch.randint(0, 11, (4, 6)))
    before = {n: t.clone() for n, t in model.state_dict().items()}
    step = capture_step(model, batch, make)
    for n, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, before[n], rtol=0, atol=0)
    known = interpret(step, given_for(step, model, batch, 0.1))
    loss = model(*batch)
    loss.backward()
    parameters = dict(model.named_parameters())
    torch.testing.assert_close(known[step.loss.id], loss.detach(), rtol=1e-12, atol=1e-12)
    for n, value in step.gradients.items():
        torch.testing.assert_close(known[value.id], parameters[n].grad, rtol=1e-10, atol=1e-12)
    make(list(model.parameters())).step()
    for n, value in step.updated.items():
        torch.testing.assert_close(known[value.id], parameters[n].detach(), rtol=1e-10, atol=1e-12)
    for n, value in step.new_buffers.items():
        torch.testing.assert_close(known[value.id], dict(model.named_buffers())[n], rtol=1e-10, atol=1e-12)
    assert set(step.new_buffers) == {"bn.running_mean", "bn.running_var", "bn.num_batches_tracked"}


def test_backward_ops_are_paired_with_forward_ops() -> None:
    batch = (torch.zeros(4, 6, dtype=torch.long), torch.zeros(4, 6, dtype=torch.long))
    step = capture_step(Everything(), batch, OPTIMIZERS["adam"])
    forward = {note.pair: note for note in step.notes if note.phase == FORWARD}
    unpaired = [op for op, n in zip(step.ops, step.notes, strict=True) if n.phase == BACKWARD and n.pair not in forward]
    first, *window = [str(op.target) for op in unpaired]
    assert first == "aten.ones_like.default"  # the loss's own gradient
    assert len(window) <= 3  # autograd gives a write through a view a node of its own
    phases = [note.phase for note in step.notes]
    assert phases == sorted(phases, key=[FORWARD, BACKWARD, UPDATE].index)
    modules = {note.module for note in step.notes if note.phase == BACKWARD}
    assert {"norm", "lstm", "conv", "bn", "gn", "attention"} <= modules
    own = [o.line for o, n in zip(step.ops, step.notes, strict=True) if n.phase != UPDATE and n.pair in forward]
    assert all(__file__ in line for line in own)


def test_meta_models_and_state() -> None:
    with torch.device("meta"):
        model, batch = nn.Sequential(nn.Linear(1 << 16, 1 << 16), Mean()), torch.empty(8, 1 << 16)
    step = capture_step(model, (batch,), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    assert step.state_bytes == 3 * 4 * ((1 << 32) + (1 << 16))


def test_unrolled_calls_are_counted() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(3):
                x = self.cell(x)
            return x.sum()

    step = capture_step(Loop(), (torch.ones(2, 4),))
    assert {n.call for n in step.notes if n.module == "cell"} == {0, 1, 2}


def test_autocast_is_recorded() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                y = self.layer(x)
            return y.float().mean()

    step = capture_step(Mixed(), (torch.ones(2, 4),))
    (product,) = [op for op in step.ops if str(op.target) == "aten.addmm.default"]
    assert product.results[0].dtype == torch.bfloat16
    assert all(value.dtype == torch.float32 for value in step.gradients.values())


class Unusual(nn.Module):
    """Results by out=, a write through a mask, a branch on a constant made in place."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
        self.transformer = nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        y[x > 0.5] = 0.25
        y[x[..., 0] < 0.1] = 0.5
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
        return self.transformer(y, y, tgt_mask=mask).square().mean()


def test_unusual_calls_are_recorded() -> None:
    model, x = Unusual().double(), torch.rand(3, 5, 4, dtype=torch.float64)
    step = capture_step(model, (x,))
    known = interpret(step, given_for(step, model, (x,), 0.1))
    loss = model(x)
    loss.backward()
    parameters = dict(model.named_parameters())
    torch.testing.assert_close(known[step.loss.id], loss.detach(), rtol=1e-12, atol=1e-12)
    for n, value in step.gradients.items():
        torch.testing.assert_close(known[value.id], parameters[n].grad, rtol=1e-10, atol=1e-12)


class Turned(nn.Module):
    """Tensors that become other views of themselves, as an nn.GRU's result does; each is read again as it was."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.linear = nn.GRU(4, 4, batch_first=True), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.linear(self.gru(x)[0])
        once = h * 2
        once.transpose_(0, 1)
        back = once.transpose(0, 1)
        more = h + 1
        more.mul_(0.5)
        more.unsqueeze_(0).squeeze_(0)
        return (back * more).sum() + once.square().mean()


def test_a_tensor_that_is_turned_in_place_was_of_another_shape_before() -> None:
    model, x = Turned().double(), torch.rand(3, 2, 4, dtype=torch.float64)
    step = capture_step(model, (x,))
    known = interpret(step, given_for(step, model, (x,), 0.1))  # compares all shapes
    loss = model(x)
    loss.backward()
    parameters = dict(model.named_parameters())
    torch.testing.assert_close(known[step.loss.id], loss.detach(), rtol=1e-12, atol=1e-12)
    for n, value in step.gradients.items():
        torch.testing.assert_close(known[value.id], parameters[n].grad, rtol=1e-10, atol=1e-12)


@pytest.fixture
def _distributions_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they do in a new process; torch.compile has them check nothing from its first use on."""
    monkeypatch.setattr(Distribution, "_validate_args", True)


@pytest.mark.usefixtures("_distributions_check")
def test_checks_of_data_that_torch_itself_makes_are_left_out() -> None:
    """Those of a distribution's parameters, and of anomaly mode; afterwards both are as they were."""
    model = Bad(lambda y: (Normal(y, y.exp()).rsample() - kl_divergence(Normal(y, 1.0), Normal(0.0, 1.0))).mean())
    with torch.autograd.set_detect_anomaly(True):
        assert capture_step(model, (torch.ones(2, 4),)).gradients
        assert torch.is_anomaly_enabled()
    with pytest.raises(ValueError, match="constraint Real"):
        Normal(torch.tensor(torch.nan), 1.0)


@pytest.mark.usefixtures("_distributions_check")
def test_checks_of_data_are_back_when_the_last_of_several_threads_has_recorded() -> None:
    first, second = _without_checks.held(), _without_checks.held()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    Normal(torch.tensor(torch.nan), 1.0)  # the other one still records
    second.__exit__(None, None, None)
    with pytest.raises(ValueError, match="constraint Real"):
        Normal(torch.tensor(torch.nan), 1.0)


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean()


class Bad(nn.Module):
    def __init__(self, forward: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.then = nn.Linear(4, 4), forward

    def forward(self, x: Tensor) -> Any:
        return self.then(self.layer(x))


def branch(y: Tensor) -> Tensor:
    return y.sum() if y.sum() > 0 else y.mean()


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (branch, "looks at the data"),
        (lambda y: y[y > 0].sum(), "looks at the data"),
        (lambda y: torch.nonzero(y).sum() * y.sum(), "looks at the data"),
        (lambda y: torch.unique(y).sum(), "looks at the data"),
        (lambda y: y.sum().item(), "looks at the data"),
        (lambda y: (y @ torch.ones(3, 3)).sum(), "must have same reduction dim"),
        (lambda y: torch.from_numpy(y.detach().numpy()).sum(), r"numpy(.|\n)*torch's functions instead of NumPy's"),
        (lambda y: pack_padded_sequence(y[None], [2], batch_first=True).data.sum(), "in place of packed sequences"),
        (lambda y: torch.stft(y, 4, 2, window=torch.ones(4), return_complex=True).abs().sum(), r"Tensor\.unfold"),
    ],
)
def test_what_cannot_be_captured_names_its_line(forward: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        capture_step(Bad(forward), (torch.ones(2, 4),))
    assert f"{__file__}:" in str(caught.value)
    assert "cure:" in str(caught.value)


@pytest.mark.parametrize("name", ["jacrev", "jacobian"])
def test_derivatives_within_a_loss(name: str) -> None:
    """torch writes the first along diagonals."""
    forms: dict[str, Callable[[Tensor], Tensor]] = {
        "jacrev": lambda y: torch.func.jacrev(torch.tanh)(y).square().sum(),
        "jacobian": lambda y: jacobian(torch.tanh, y, create_graph=True).square().sum(),
    }
    model, (x, other) = Bad(forms[name]).double(), torch.randn(2, 2, 4, dtype=torch.float64)
    found = vgraph.parallelize(model, (x,), num_workers=2).run_in_process(other)
    loss = model(other)
    torch.testing.assert_close(found.loss, loss)
    torch.testing.assert_close(list(found.grads), list(torch.autograd.grad(loss, [*model.parameters()])))


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda y: y, r"a tensor of shape \(2, 4\)"),
        (lambda y: 3.0, "a float"),
        (lambda y: y.detach().sum(), "depends on no parameter"),
    ],
)
def test_a_model_returns_its_loss(forward: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        capture_step(Bad(forward), (torch.ones(2, 4),))


def test_a_model_that_cannot_be_copied() -> None:
    import threading

    model = Bad(lambda y: y.sum())
    model.lock = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(ModelError, match="cannot be copied"):
        capture_step(model, (torch.ones(2, 4),))


class Counting(nn.Module):
    """Keeps a hidden state, a count and what an inner module leaves; reads a list and writes nothing to it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Quiet()
        self.state, self.calls, self.factors = torch.zeros(3), 0, [2.0]
        self.register_buffer("kept", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.state = self.inner(x).detach() * self.factors[0]
        self.kept = self.kept + self.state
        return (x * self.inner.weight + self.state).sum()


class Quiet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x)


def test_what_forward_leaves_in_attributes_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Once; a buffer is carried, and a module that leaves nothing is quiet."""
    for _ in range(2):
        capture_step(Counting(), (torch.randn(3),))
    (line,) = caplog.messages
    assert line.startswith("the forward of Counting leaves something in state, calls: a plan does not")
    capture_step(nn.Sequential(nn.Linear(3, 1), nn.Flatten(0), nn.Unflatten(0, (2, 1)), Summed()), (torch.randn(2, 3),))
    assert caplog.messages == [line]


class Summed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum()


def test_what_several_layers_reshape_alike_is_one_value() -> None:
    """Rows of queries, keys and values are the same rows of one matrix, so that they are fetched once."""

    class Three(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            x = x.tanh()
            return (self.q(x) * self.k(x) * self.v(x).flatten(1).view(4, 6, 8)).sum()

    step = capture_step(Three(), (torch.randn(4, 6, 8),), None)
    products = [op for op in step.ops if str(op.target).startswith("aten.addmm")]
    assert len(products) == 3 and len({list(op.operands())[1].id for op in products}) == 1
