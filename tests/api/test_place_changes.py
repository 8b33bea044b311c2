"""A placed model is the model of now: what may be replaced is read anew, and what may not is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import vgraph
from vgraph.errors import PlacementError

SETTINGS = {"scale": 1.0}


class Model(nn.Module):
    shift: Tensor
    scale = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.out = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 1))
        self.register_buffer("shift", torch.zeros(3))
        self.norm, self.table, self.factors = nn.BatchNorm1d(3), torch.ones(3), [2.0]

    def half(self, x: Tensor) -> Tensor:
        return torch.tanh(self.norm(self.lin(x)) * self.table + self.shift) * self.scale * sum(self.factors)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.half(x)).square().mean() * SETTINGS["scale"]


def _anew(layer: nn.Linear) -> nn.Linear:
    return nn.Linear(layer.in_features, layer.out_features)


READ_ANEW: dict[str, Callable[[Model], None]] = {
    "a parameter": lambda m: setattr(m.lin, "weight", nn.Parameter(torch.randn(3, 3))),
    "_parameters": lambda m: m.lin._parameters.update(bias=nn.Parameter(torch.randn(3))),
    "data": lambda m: setattr(m.lin.weight, "data", torch.randn(3, 3)),
    "a buffer": lambda m: setattr(m, "shift", torch.ones(3)),
    "a layer": lambda m: setattr(m, "lin", _anew(m.lin)),
    "a layer in a sequence": lambda m: m.out.__setitem__(0, _anew(m.out[0])),  # pyright: ignore[reportArgumentType]
    "load_state_dict": lambda m: [m.load_state_dict(Model().state_dict(), assign=True), None][1],
}


@pytest.mark.parametrize("name", READ_ANEW)
def test_what_is_replaced_is_read_anew(name: str) -> None:
    model, x = Model(), torch.randn(2, 3)
    placed = vgraph.place(model, x, ["cpu"], repeats=1)
    placed.run(x)
    READ_ANEW[name](model)
    loss, wanted = placed.run(x), model(x)
    torch.testing.assert_close(loss, wanted)
    parameters = list(model.parameters())
    torch.testing.assert_close(torch.autograd.grad(loss, parameters), torch.autograd.grad(wanted, parameters))


REFUSED: dict[str, tuple[Callable[[Model], object], str]] = {
    "another width": (lambda m: setattr(m.out[0], "weight", nn.Parameter(torch.randn(2, 3))), "'out.0.weight' of the"),
    "another dtype": (lambda m: m.lin.double(), "'lin.weight' of the model has another shape, dtype"),
    "frozen": (lambda m: m.lin.bias.requires_grad_(False), "'lin.bias' of the model has another shape"),
    "one more": (lambda m: m.register_parameter("more", nn.Parameter(torch.ones(1))), "'more' of the model"),
    "one fewer": (lambda m: setattr(m.lin, "bias", None), "'lin.bias' of the model"),
    "tied": (lambda m: setattr(m, "shift", None) or setattr(m.lin, "bias", m.lin.bias), "'shift' of the model"),
    "forward of the instance": (lambda m: setattr(m.lin, "forward", torch.tanh), "model.lin.forward, which"),
    "a helper": (lambda m: setattr(m, "half", torch.tanh), "model.half, which Model reads"),
    "another kind of layer": (lambda m: m.out.append(nn.Tanh()), "'?"),
    "a hook": (lambda m: m.lin.register_forward_hook(lambda module, given, out: out * 2), "model.lin, which Model"),
    "a number": (lambda m: setattr(m, "scale", 2.0), "model.scale, which Model reads"),
    "a global": (lambda m: SETTINGS.update(scale=2.0), r"SETTINGS\['scale'\], which Model reads"),
    "a plain tensor": (lambda m: setattr(m, "table", torch.ones(3)), "model.table, which Model reads"),
    "in a plain tensor": (lambda m: m.table.mul_(2.0), "model.table, which Model reads"),
    "beside a BatchNorm": (lambda m: m.factors.append(2.0), "model.factors, which Model reads"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_placement_rests_on_is_not_to_change(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "scale", 1.0)
    model, x = Model(), torch.randn(2, 3)
    placed = vgraph.place(model, x, ["cpu"], repeats=1)
    torch.testing.assert_close(placed.run(x), model(x))
    change, message = REFUSED[name]
    change(model)
    with pytest.raises(PlacementError, match=message) as caught:
        placed.run(x)
    assert "place" in caught.value.cure
