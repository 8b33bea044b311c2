"""What a plan is called with: nests and constants are bound as the model was recorded, or refused."""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vgraph
from vgraph.errors import ArgumentError, FunctionError, ModelError, NameLookupError


@dataclass(frozen=True)
class Record:
    x: Tensor
    y: Tensor
    times: int = 2


class Named(NamedTuple):
    x: Tensor
    y: Tensor
    times: int = 2


class Scaled(nn.Module):
    """The batch is one argument, of any kind that has x, y and times."""

    def __init__(self, look: Callable[[Any, str], Any] = getattr) -> None:
        super().__init__()
        self.a, self.look = nn.Linear(8, 8), look

    def forward(self, batch: Any) -> Tensor:
        x, y = self.look(batch, "x"), self.look(batch, "y")
        return (self.a(x) - y * self.look(batch, "times")).square().mean()


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x: Tensor, times: float = 2.0, mask: Tensor | None = None) -> Tensor:
        h = self.a(x) * times
        return (h if mask is None else h * mask).square().mean()


def item(batch: Any, name: str) -> Any:
    return batch[name]


@pytest.mark.parametrize(
    ("make", "look"),
    [
        (dict, item), (collections.OrderedDict, item), (collections.UserDict, item), (Record, getattr),
        (Named, getattr),
    ],
)  # fmt: skip
def test_every_batch_is_read_out_of_its_nest(make: Callable[..., Any], look: Callable[[Any, str], Any]) -> None:
    """By name, whatever the order: a second batch must not give the first one's loss."""
    model = Scaled(look)
    first, second = (make(x=torch.randn(4, 8), y=torch.randn(4, 8), times=2) for _ in range(2))
    turned = second
    if look is item:
        turned = make(times=2, y=second["y"], x=second["x"])
    plan = vgraph.parallelize(model, (first,), 2)
    for batch, same in ((first, first), (second, turned)):
        torch.testing.assert_close(plan.run_in_process(same).loss, model(batch).detach())


def test_a_placement_reads_the_same_nests() -> None:
    model = Scaled(item)
    first, second = ({"x": torch.randn(4, 8), "y": torch.randn(4, 8), "times": 2} for _ in range(2))
    placed = vgraph.place(model, first, ["cpu", "cpu"])
    torch.testing.assert_close(placed.run(second), model(second))
    with pytest.raises(ModelError, match="input 0\\['times'\\] is 3; the plan was made for 2, a constant of it"):
        placed.run({**second, "times": 3})


X, MASK = torch.ones(4, 8), torch.ones(8)


@pytest.mark.parametrize(
    ("example", "batch", "message"),
    [
        ((X, 3.0), (X, 4.0), "input 1 is 4.0; the plan was made for 3.0, a constant of it"),
        ((X, 3.0), (X,), "input 1 is nothing; the plan was made for 3.0, a constant of it"),
        ((X,), (X, 3.0), "input 1 is 3.0; the plan was made for nothing, a constant of it"),
        ((X, 1), (X, True), "input 1 is True; the plan was made for 1, a constant of it"),
        ((X, 2.0, None), (X, 2.0, MASK), "2 tensors were passed; the plan was made for 1"),
        ((X, 2.0, MASK), (MASK, 2.0, X), "input 0 is torch.float32"),
        ((X, 2.0, MASK), (X, MASK, 2.0), "input 1 is a tensor; the plan was made for 2.0"),
        ((X,), (X.numpy(),), "0 tensors were passed; the plan was made for 1"),
    ],
)
def test_a_batch_of_another_form(example: tuple[Any, ...], batch: tuple[Any, ...], message: str) -> None:
    plan = vgraph.parallelize(Plain(), example, 2)
    with pytest.raises(ModelError, match=message.replace("(", r"\(")) as caught:
        plan.run_in_process(*batch)
    assert "cure:" in str(caught.value)


def test_a_key_that_is_missing() -> None:
    plan = vgraph.parallelize(Scaled(item), {"x": X, "y": X, "times": 2}, 2)
    with pytest.raises(ModelError, match="input 0\\['y'\\] is nothing; the plan was made for a tensor"):
        plan.run_in_process({"x": X, "z": X, "times": 2})


class Holder:
    x = y = X
    times = 2


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (Holder(), "input 0 is a Holder, in which tensors cannot be seen"),
        (np.ones((4, 8)), "input 0 is a ndarray, in which tensors cannot be seen"),
        (nn.Linear(8, 8), "input 0 is a Linear, in which tensors cannot be seen"),
        (X.to_sparse(), "input 0 is a tensor of layout sparse_coo"),
    ],
)
def test_arguments_that_hide_tensors(example: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        vgraph.parallelize(Scaled(), (example,), 2)


def test_later_batches_that_hide_numbers() -> None:
    """As example inputs would, in training and in evaluation, whether such a batch has come before or not."""
    plan = vgraph.parallelize(Plain(), (X,), 2)
    for call in (plan.run_in_process, plan.evaluate_in_process):
        for x in (X.to_sparse(), X[:2].to_sparse()):
            with pytest.raises(ModelError, match="input 0 is a tensor of layout sparse_coo") as caught:
                call(x)
            assert "x.to_dense()" in str(caught.value)
    with pytest.raises(ModelError, match="input 0 is a ndarray, in which tensors cannot be seen"):
        plan.evaluate_in_process(np.ones((4, 8)))


# ---------------------------------------------------------------- models and options that cannot be
class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(12, 8, sparse=True)

    def forward(self, i: Tensor) -> Tensor:
        return self.table(i).square().mean()


class Overwritten(Plain):
    def forward(self, x: Tensor, times: float = 2.0, mask: Tensor | None = None) -> Tensor:
        h = self.a(x).relu_()
        h += 1
        return h.square().mean()


class Reentrant(Plain):
    def forward(self, x: Tensor, times: float = 2.0, mask: Tensor | None = None) -> Tensor:
        h = torch.utils.checkpoint.checkpoint(torch.tanh, self.a(x), use_reentrant=True)
        assert isinstance(h, Tensor)
        return h.square().mean()


class Random(Plain):
    def forward(self, x: Tensor, times: float = 2.0, mask: Tensor | None = None) -> Tensor:
        return (self.a(x) * torch.randint(0, 3, (8,))).square().mean()


@pytest.mark.parametrize(
    ("model", "batch", "message", "cure"),
    [
        (Sparse(), torch.zeros(4, dtype=torch.long), "the gradient of table.weight is a sparse tensor", "sparse=True"),
        (nn.LazyLinear(8), X, "weight has no shape yet", "call the lazy model once"),
        (Overwritten(), X, "in backward, RuntimeError: one of the variables", "loss.backward"),
        (Reentrant(), X, "in backward, RuntimeError: When use_reentrant=True", "use_reentrant=False"),
        (Random(), X, "randint has no counterpart", "draw its numbers before the call"),
        (Plain(), (X, 2.0, None, 3), "takes from 2 to 4 positional arguments but 5", "its arguments, in order"),
    ],
)
def test_models_that_cannot_be_recorded(model: nn.Module, batch: Any, message: str, cure: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        vgraph.parallelize(model, batch, 2)
    assert cure in str(caught.value).partition("cure:")[2]
    if isinstance(model, (Overwritten, Reentrant, Random)):
        assert f"{__file__}:" in str(caught.value)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (FunctionError, "optimizer= is a SGD; a factory", {"optimizer": sgd([nn.Parameter(X)])}),
        (FunctionError, "one of other parameters than", {"optimizer": lambda p: sgd([nn.Parameter(X)])}),
        (ArgumentError, "max_norm=-1.0", {"optimizer": sgd, "max_norm": -1.0}),
        (ArgumentError, "memory_limit=nan", {"memory_limit": float("nan")}),
        (ArgumentError, "speeds=\\[1, -1\\]", {"speeds": [1, -1]}),
        (ArgumentError, "memory_limit='3'", {"memory_limit": "3"}),
        (FunctionError, "options is 3", {"options": 3}),
    ],
)
def test_options_that_cannot_be(error: type[Exception], message: str, options: dict[str, Any]) -> None:
    with pytest.raises(error, match=message):
        vgraph.parallelize(Plain(), X, 2, **options)


def test_a_batch_norm_that_counts_batches() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None))
    with pytest.raises(ModelError, match=r"^1 has momentum=None(?s:.*)cure: give BatchNorm1d a momentum"):
        vgraph.parallelize(model, torch.ones(8, 4), 2)
    vgraph.parallelize(model.eval(), torch.ones(8, 4), 2)


def test_what_is_no_module() -> None:
    with pytest.raises(FunctionError, match=r"double is no torch\.nn\.Module"):
        vgraph.parallelize(double, X, 2)  # type: ignore[arg-type]


def double(x: Tensor) -> Tensor:
    return x * 2


def test_a_switch_that_there_is_not() -> None:
    with pytest.raises(NameLookupError, match="no switch is called 'fused'"):
        vgraph.parallelize(Plain(), X, 2).with_options(fused=True)


@pytest.mark.filterwarnings("ignore:.*torch.jit")  # of which kind, depends on the release
def test_compiled_modules_are_named() -> None:
    model = nn.Sequential(torch.jit.trace(nn.Linear(8, 8), X), nn.Flatten(0))
    with pytest.raises(ModelError, match=r"0 was compiled by torch\.jit"):
        vgraph.parallelize(model, X, 2)
