"""What a call returns lies in memory of its own, however its results come about."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import vgraph
from tests.runtime.engine_models import binary_tree
from vgraph.capture import capture

pytestmark = pytest.mark.usefixtures("with_kernels")


class Twins(vgraph.VertexFunction):
    """Two parameters with one gradient; results that are the same, or parts of one another."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))

    def forward(self, v: vgraph.Vertex) -> None:
        total = v.pull("x") + v.gather()["s"].sum()
        shifted = total + (self.a + self.b)
        v.scatter(s=total)
        v.push(total=total, again=total, half=shifted[:, :2], shifted=shifted, x=v.pull("x"))


def storages(tensors: list[torch.Tensor]) -> set[int]:
    return {t.untyped_storage().data_ptr() for t in tensors}


@pytest.mark.parametrize("trains", [True, False])
def test_no_two_results_share_memory(trains: bool) -> None:
    capture.forget()
    model, g = Twins(), binary_tree(5)
    x = torch.randn(g.num_nodes(), 4, requires_grad=trains)
    with torch.set_grad_enabled(trains):
        results = list(model(g, x=x).values())
    assert len(storages([*results, x])) == len(results) + 1
    if trains:
        grads = torch.autograd.grad(results[3].sum(), [model.a, model.b, x])
        assert torch.equal(grads[0], grads[1])
        assert len(storages([*grads, *results])) == len(grads) + len(results)


# ---------------------------------------------------------------- results that the backward reads
def _attend(g: vgraph.Graph, h: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """A sum that its own derivative reads."""
    with g.local_scope():
        g.ndata.update(h=h, s=s)
        g.update_all(
            lambda e: {"m": e.src["h"], "s": F.leaky_relu(e.src["s"] + e.dst["s"])},
            lambda v: {"o": (torch.softmax(v.mailbox["s"], 1) * v.mailbox["m"]).sum(1)},
        )
        return g.ndata["o"]


def _inputs() -> tuple[vgraph.Graph, list[torch.Tensor]]:
    made = torch.Generator().manual_seed(0)
    src, dst = torch.randint(0, 9, (2, 40), generator=made)
    return vgraph.graph((src, dst), num_nodes=9), [
        torch.randn(9, n, generator=made, requires_grad=True) for n in (4, 1)
    ]


@pytest.fixture
def wanted() -> tuple[torch.Tensor, ...]:
    capture.forget()
    g, given = _inputs()
    return torch.autograd.grad(_attend(g, *given).sin().sum(), given)


def _saved(out: torch.Tensor) -> list[torch.Tensor]:
    """What a result's own backward holds in the results' memory."""
    node: Any = out.grad_fn
    return vars(node.saved_tensors[-1])["shared"]


def test_what_the_backward_reads_is_not_copied(wanted: tuple[torch.Tensor, ...], caplog: Any) -> None:
    g, given = _inputs()
    caplog.set_level("INFO", "vgraph")
    out = _attend(g, *given)
    assert [t.untyped_storage().data_ptr() for t in _saved(out)] == [out.untyped_storage().data_ptr()]
    assert all(map(torch.equal, torch.autograd.grad(out.sin().sum(), given), wanted))
    assert "written to" not in caplog.text


def _through_a_view(out: torch.Tensor) -> torch.Tensor:
    out[:, :2].zero_()
    return out


@pytest.mark.parametrize("write", [torch.sin_, _through_a_view], ids=["all", "a view"])
def test_what_the_backward_reads_may_be_written_to(write: Any, caplog: Any) -> None:
    """As under DGL, whose results nothing else reads: ``relu_``, ``+= bias``."""
    capture.forget()
    g, given = _inputs()
    caplog.set_level("INFO", "vgraph")
    apart = torch.autograd.grad(write(_attend(g, *given).clone()).sum(), given)
    assert "written to" not in caplog.text
    out = write(_attend(g, *given))
    found = torch.autograd.grad(out.sum(), given, retain_graph=True)
    assert all(map(torch.equal, found, apart))
    assert all(map(torch.equal, torch.autograd.grad(out.sum(), given), apart))
    assert caplog.text.count("an output was written to") == 2


@pytest.mark.parametrize("way", ["offloaded", "copied", "checkpointed"])
def test_what_hooks_change(way: str, wanted: tuple[torch.Tensor, ...]) -> None:
    g, given = _inputs()
    if way == "checkpointed":
        out: torch.Tensor = checkpoint(_attend, g, *given, use_reentrant=False)  # pyright: ignore[reportAssignmentType]
    elif way == "offloaded":
        with torch.autograd.graph.save_on_cpu():
            out = _attend(g, *given)
    else:
        with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda t: t):
            out = _attend(g, *given)
    assert all(map(torch.equal, torch.autograd.grad(out.sin().sum(), given), wanted))


def test_what_the_backward_reads_is_let_go() -> None:
    g, given = _inputs()
    out = _attend(g, *given)
    keeper = weakref.ref(_saved(out)[0])
    gc.disable()
    try:
        out.sum().backward()
        assert keeper() is None
        later = weakref.ref(_saved(again := _attend(g, *given))[0])
        del out, again
        assert later() is None, "no cycle"
    finally:
        gc.enable()
