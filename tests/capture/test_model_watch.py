"""What a model's code reads is watched: each kind of it, and nothing that may change without being a change."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vgraph.capture.guards.model_watch import ModelWatch

FACTOR = 2.0
TABLE = {"scale": [1.0, 2.0]}
KNOWN: dict[int, Tensor] = {}
COUNT = 0


def helper(x: Tensor, power: float = 2.0) -> Tensor:
    return x.pow(power) * FACTOR


def closing(by: float) -> Callable[[Tensor], Tensor]:
    def scaled(x: Tensor) -> Tensor:
        return x * by

    return scaled


@dataclass
class Config:
    rate: float = 0.5
    names: list[str] = field(default_factory=lambda: ["scale"])

    def of(self, x: Tensor) -> Tensor:
        return x * self.rate


class Base(nn.Module):
    offset = 1.0

    def finished(self, x: Tensor) -> Tensor:
        return x + self.offset


class Inner(Base):
    state: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.1)
        self.act, self.part = torch.tanh, functools.partial(F.leaky_relu, negative_slope=0.1)
        self.scales, self.by_name, self.config = [1.0, (2, "a")], {"a": {"b": 1}}, Config()
        self.table, self.array, self.eps, self.mode = torch.ones(4), np.ones(4), 1e-3, "sum"
        self.closed, self.maybe, self.shift_b, self.epoch = closing(3.0), None, 1.0, 0
        self.calls, self.seen, self.cache = 0, list[int](), dict[int, Tensor]()
        self.register_buffer("state", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        global COUNT  # noqa: PLW0603
        COUNT += 1
        self.calls += 1
        self.seen.append(self.calls)
        if x.shape[0] not in self.cache:
            self.cache[x.shape[0]] = KNOWN[x.shape[0]] = torch.ones(4)
        x = self.part(self.act(self.drop(self.norm(self.lin(x))))) * self.scales[0] * self.by_name["a"]["b"]
        x = helper(x) * self.table * torch.as_tensor(self.array) + self.eps + getattr(self, "shift_b")  # noqa: B009
        x = self.closed(self.config.of(x)) * TABLE[self.config.names[0]][0] + self.cache[x.shape[0]]
        return self.finished(x) if self.maybe is None and self.training and self.mode == "sum" else x


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Inner(), nn.Sequential(nn.Linear(4, 4), nn.GELU())])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


@pytest.fixture
def model() -> Model:
    return Model().double()


def _patch(name: str, value: object) -> Callable[[Any, pytest.MonkeyPatch], None]:
    return lambda _, patch: patch.setattr(f"{__name__}.{name}", value)


def _put(name: str, value: object) -> Callable[[Any, pytest.MonkeyPatch], None]:
    return lambda inner, _: setattr(inner, name, value)


INNER = "model.layers.0."
NOTICED: dict[str, tuple[Callable[[Any, pytest.MonkeyPatch], object], str]] = {
    "a function": (_put("act", F.gelu), INNER + "act"),
    "a partial function": (
        _put("part", functools.partial(F.leaky_relu, negative_slope=0.2)),
        INNER + "part.keywords['negative_slope']",
    ),
    "an item of a list": (lambda inner, _: inner.scales.__setitem__(0, 3.0), INNER + "scales[0]"),
    "a longer list": (lambda inner, _: inner.scales.append(1.0), INNER + "scales"),
    "an inner tuple": (lambda inner, _: inner.scales.__setitem__(1, (2, "b")), INNER + "scales[1][1]"),
    "an inner dict": (lambda inner, _: inner.by_name["a"].update(b=2), INNER + "by_name['a']['b']"),
    "one more key": (lambda inner, _: inner.by_name.update(c=2), INNER + "by_name"),
    "a dataclass": (lambda inner, _: setattr(inner.config, "rate", 0.1), INNER + "config.rate"),
    "within a dataclass": (lambda inner, _: inner.config.names.append("x"), INNER + "config.names"),
    "another dataclass": (_put("config", Config(0.25)), INNER + "config.rate"),
    "a plain tensor": (_put("table", torch.ones(4)), INNER + "table"),
    "in a plain tensor": (lambda inner, _: inner.table.mul_(2), INNER + "table"),
    "an array": (_put("array", np.ones(4)), INNER + "array"),
    "a number": (_put("eps", 1e-2), INNER + "eps"),
    "an integer for a float": (_put("eps", 0), INNER + "eps"),
    "words": (_put("mode", "mean"), INNER + "mode"),
    "nothing before": (_put("maybe", 1), INNER + "maybe"),
    "in quotes": (_put("shift_b", 2.0), INNER + "shift_b"),
    "a closure": (lambda inner, _: setattr(inner.closed.__closure__[0], "cell_contents", 4.0), "by"),
    "another closure": (_put("closed", closing(4.0)), "by"),
    "a rate of a layer": (lambda inner, _: setattr(inner.drop, "p", 0.5), INNER + "drop.p"),
    "forward of a layer": (lambda inner, _: setattr(inner.lin, "forward", torch.tanh), INNER + "lin.forward"),
    "a hook": (lambda inner, _: inner.lin.register_forward_hook(lambda *_: None), INNER + "lin"),
    "over a class attribute": (_put("offset", 2.0), INNER + "offset"),
    "a class attribute": (lambda _, patch: patch.setattr(Base, "offset", 2.0), "Inner.offset"),
    "a method": (lambda _, patch: patch.setattr(Base, "finished", lambda self, x: x), "Inner.finished"),
    "a method of a dataclass": (lambda _, patch: patch.setattr(Config, "of", lambda self, x: x), "Config.of"),
    "a global number": (_patch("FACTOR", 3.0), "FACTOR"),
    "in a global": (lambda _, patch: patch.setitem(TABLE, "scale", [5.0]), "TABLE['scale']"),
    "a global function": (_patch("helper", F.gelu), "helper"),
    "a default": (lambda _, patch: patch.setattr(helper, "__defaults__", (3.0,)), "helper[0]"),
    "a function of torch's": (lambda _, patch: patch.setattr(torch, "as_tensor", torch.tensor), "torch.as_tensor"),
    "one that a layer calls": (lambda _, patch: patch.setattr(F, "linear", torch.add), "F.linear"),
}


@pytest.mark.parametrize("name", NOTICED)
def test_what_is_noticed(name: str, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, (change, wanted) = ModelWatch(model), NOTICED[name]
    assert watch.change(model) == ("", "")
    change(model.layers[0], monkeypatch)
    assert watch.change(model)[0] == wanted


@torch.no_grad()
def _step(model: Model) -> None:
    for rows in (3, 5):
        with torch.enable_grad():
            model(torch.randn(rows, 4, dtype=torch.float64)).backward()
        for parameter in model.parameters():
            parameter.sub_(0.1 * parameter.grad) if parameter.grad is not None else None


UNNOTICED: dict[str, Callable[[Model], object]] = {
    "evaluation": lambda model: model.eval(),
    "steps, and what forward writes": _step,
    "load_state_dict": lambda model: model.load_state_dict(Model().state_dict()),
    "assigned": lambda model: model.load_state_dict(Model().state_dict(), assign=True),
    "a copy": copy.deepcopy,
    "another dtype": lambda model: model.half(),
    "frozen": lambda model: model.requires_grad_(False),
    "no gradients": lambda model: model.zero_grad(),
    "an attribute that no code speaks": lambda model: setattr(model.layers[0], "epoch", 3),
    "one of a layer": lambda model: setattr(model.layers[1], "tag", 3),
    "another layer": lambda model: setattr(model.layers[0], "lin", nn.Linear(4, 4)),
}


@pytest.mark.parametrize("name", UNNOTICED)
def test_what_is_no_change(name: str, model: Model) -> None:
    watch = ModelWatch(model)
    UNNOTICED[name](model)
    assert watch.change(model) == ("", "")


def test_the_line_is_that_of_the_code_that_reads(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = ModelWatch(model)
    monkeypatch.setitem(globals(), "FACTOR", 7.0)
    assert watch.change(model) == ("FACTOR", f"{__file__}:{helper.__code__.co_firstlineno}")
    assert watch.change(None) == watch.change(model)  # a model that is gone leaves its code


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale_a, self.scale_b, self.which = 1.0, 2.0, "a"

    def forward(self, x: Tensor) -> Tensor:
        return x * getattr(self, f"scale_{self.which}")


def test_names_that_are_computed_may_be_any() -> None:
    model = Named()
    watch = ModelWatch(model)
    model.scale_b = 3.0
    assert watch.change(model)[0] == "model.scale_b"


def test_hooks_of_all_modules_are_no_change(model: Model) -> None:
    watch = ModelWatch(model)
    hook = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert watch.change(model) == ("", "")
    finally:
        hook.remove()


@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_weights_that_a_hook_computes_are_no_change(norm: Callable[[nn.Module], nn.Module]) -> None:
    with pytest.warns(FutureWarning) if norm is nn.utils.weight_norm else pytest.MonkeyPatch.context():
        model = nn.Sequential(norm(nn.Linear(4, 4)))
    watch = ModelWatch(model)
    with torch.no_grad():
        model(torch.ones(2, 4))
    model(torch.ones(2, 4))
    assert watch.change(model) == ("", "")


def test_recurrent_layers_moved_to_another_dtype_are_no_change() -> None:
    model = nn.Sequential(nn.LSTM(4, 4))
    watch = ModelWatch(model)
    assert watch.change(model.double()) == ("", "")


class Settings:
    def __init__(self) -> None:
        self.rate = 2.0

    def of(self, x: Tensor) -> Tensor:
        return x * (SHARED.rate if self is SHARED else self.rate)


SHARED = Settings()


class Sharing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.settings = SHARED

    def forward(self, x: Tensor) -> Tensor:
        return self.settings.of(x)


def test_what_both_the_model_and_a_global_hold_is_found_in_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Sharing()
    watch = ModelWatch(model)
    assert watch.change(model) == watch.change(None) == ("", "")
    monkeypatch.setattr(SHARED, "rate", 3.0)
    assert watch.change(model)[0] == "model.settings.rate"
