"""Vertex functions as modules: memory, modes, parameters."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import vgraph
from tests.api.recursion import (
    DAG,
    WIDTH,
    ChildSum,
    check_equal,
    features,
    recursive_tree_lstm,
)


# ---------------------------------------------------------------- calls and memory
def test_two_forwards_before_one_backward() -> None:
    model = ChildSum().double()
    x, y = features(), features()
    one, two = model(DAG, x=x)["h"], model(DAG, x=y)["h"]
    (one * two).sum().backward()
    ours = [x.grad, y.grad, *(p.grad for p in model.parameters())]
    (a,), (b,) = (recursive_tree_lstm(model, DAG, t)[:1] for t in (x, y))
    theirs = torch.autograd.grad((a * b).sum(), (x, y, *model.parameters()))
    torch.testing.assert_close(ours, list(theirs), rtol=1e-10, atol=1e-12)


def test_backward_twice() -> None:
    model, x = ChildSum().double(), features()
    out = model(DAG, x=x)["h"].sum()
    first = torch.autograd.grad(out, x, retain_graph=True)
    model(DAG, x=features())["h"].sum().backward()
    second = torch.autograd.grad(out, x)
    torch.testing.assert_close(first, second, rtol=0, atol=0)


@pytest.mark.parametrize("grad", [True, False])
def test_outputs_are_never_written_again(grad: bool) -> None:
    model = ChildSum().double()
    with torch.set_grad_enabled(grad):
        outs = [model(DAG, x=features()) for _ in range(3)]
        copies = [{name: t.detach().clone() for name, t in out.items()} for out in outs]
        for _ in range(3):
            model(DAG, x=features())
    for out, kept in zip(outs, copies, strict=True):
        for name, tensor in out.items():
            assert torch.equal(tensor, kept[name])
    storages = [t.untyped_storage().data_ptr() for out in outs for t in out.values()]
    assert len(set(storages)) == len(storages)


def test_outputs_may_be_written_in_place() -> None:
    model, x = ChildSum().double(), features()
    out = model(DAG, x=x)["h"]
    wanted = out.detach() + 1
    out.add_(1)
    assert torch.equal(out, wanted)
    out.sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradient(mode: Any) -> None:
    model, x = ChildSum().double(), features()
    wanted = model(DAG, x=x)["h"].detach()
    with mode():
        out = model(DAG, x=x)["h"]
        fresh = model(DAG, x=x * 1)["h"]
    assert not out.requires_grad
    assert torch.equal(out, wanted) and torch.equal(fresh, wanted)
    model(DAG, x=x)["h"].sum().backward()


def test_first_call_in_inference_mode(caplog: pytest.LogCaptureFixture) -> None:
    """What is recorded there is what is recorded elsewhere: linear maps and dropout as batches."""

    class Doubled(ChildSum):
        def forward(self, v: vgraph.Vertex) -> None:
            super().forward(v)
            v.push(kept=nn.functional.dropout(v.pull("x"), 0.5, self.training))

    model, x = Doubled().double().eval(), features()
    with torch.inference_mode(), caplog.at_level("INFO", logger="vgraph"):
        out = model(DAG, x=x)["h"]
    assert "one vertex at a time" not in caplog.text
    assert torch.equal(out.clone(), model(DAG, x=x)["h"].detach())
    check_equal(model, (model(DAG, x=x)["h"],), (model(DAG, x=x)["h"],), (x,))
    torch.testing.assert_close(out.clone(), model(DAG, x=x)["h"].detach())


# ---------------------------------------------------------------- modules
def test_deepcopy_and_pickle() -> None:
    model, x = ChildSum().double(), features()
    wanted = model(DAG, x=x)["h"]
    twin = copy.deepcopy(model)
    assert torch.equal(twin(DAG, x=x)["h"], wanted)
    with torch.no_grad():
        twin.W.weight.zero_()
    assert not torch.equal(twin(DAG, x=x)["h"], wanted)
    assert torch.equal(model(DAG, x=x)["h"], wanted)
    file = io.BytesIO()
    pickle.dump(PICKLED.double(), file)
    file.seek(0)
    again = pickle.load(file)
    assert torch.equal(again(DAG, x=x)["h"], PICKLED(DAG, x=x)["h"])


PICKLED = ChildSum()


def test_functional_call() -> None:
    model, x = ChildSum().double(), features()
    others = {k: torch.randn_like(p).requires_grad_() for k, p in model.named_parameters()}
    out = torch.func.functional_call(model, others, (DAG,), {"x": x})["h"]
    twin = copy.deepcopy(model)
    twin.load_state_dict(others)
    wanted = twin(DAG, x=x)["h"]
    torch.testing.assert_close(out, wanted)
    got = torch.autograd.grad(out.sum(), list(others.values()))
    torch.testing.assert_close(got, torch.autograd.grad(wanted.sum(), list(twin.parameters())))


def test_parametrizations() -> None:
    model, x = ChildSum().double(), features()
    model.U = parametrizations.weight_norm(model.U)
    for _ in range(2):
        out = model(DAG, x=x)
        check_equal(model, (out["h"], out["c"]), recursive_tree_lstm(model, DAG, x), (x,))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.1)


def test_frozen_and_shared_parameters() -> None:
    model, x = ChildSum().double(), features()
    model.W.requires_grad_(False)
    model.Uf.weight = model.Wf.weight
    out = model(DAG, x=x)
    wanted = recursive_tree_lstm(model, DAG, x)
    torch.testing.assert_close(out["h"], wanted[0], rtol=1e-10, atol=1e-12)
    wrt = [p for p in model.parameters() if p.requires_grad]
    got = torch.autograd.grad(out["h"].sum(), wrt)
    torch.testing.assert_close(got, torch.autograd.grad(wanted[0].sum(), wrt))
    model.Uf.weight = nn.Parameter(torch.randn_like(model.Wf.weight))  # no longer shared
    torch.testing.assert_close(model(DAG, x=x)["h"], recursive_tree_lstm(model, DAG, x)[0])
    model.requires_grad_(False)
    model(DAG, x=x)["h"].sum().backward()
    assert model.W.weight.grad is None and x.grad is not None


# ---------------------------------------------------------------- torch's own cells
class OfCells(vgraph.VertexFunction):
    """One of torch's cells on the sum of the children, or a bilinear map of them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.cell = kind, getattr(nn, kind)(*((WIDTH,) * (3 if kind == "Bilinear" else 2)))

    def step(self, x: Any, children: dict[str, Any]) -> dict[str, Any]:
        if self.kind == "LSTMCell":
            h, c = self.cell(x, (children["h"], children["c"]))
            return {"h": h, "c": c}
        return {"h": torch.tanh(self.cell(x, children["h"]))}

    def forward(self, v: vgraph.Vertex) -> None:
        child = v.gather()
        states = self.step(
            v.pull("x"), {name: child[name].sum() for name in ("h", "c")[: 1 + (self.kind == "LSTMCell")]}
        )
        v.scatter(**states)
        v.push(h=states["h"])


@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell", "Bilinear"])
def test_cells_of_torch(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    model, x = OfCells(kind).double(), features()
    with caplog.at_level("INFO", "vgraph"):
        out = model(DAG, x=x)["h"]
        ours = torch.autograd.grad(out.square().sum(), [x, *model.parameters()])
    assert kind == "Bilinear" or not caplog.records, "the loop over frontiers is native code"
    states: list[dict[str, torch.Tensor]] = []
    src, dst = DAG.edges()
    for vertex in range(DAG.num_nodes()):
        below = src[dst == vertex].tolist()
        zero = torch.zeros(1, WIDTH, dtype=x.dtype)
        given = {
            name: sum((states[c][name] for c in below), zero) for name in ("h", "c") if name == "h" or kind[0] == "L"
        }
        states.append(model.step(x[vertex : vertex + 1], given))
    wanted = torch.cat([s["h"] for s in states])
    theirs = torch.autograd.grad(wanted.square().sum(), [x, *model.parameters()])
    torch.testing.assert_close([out, *ours], [wanted, *theirs], rtol=1e-10, atol=1e-12)
