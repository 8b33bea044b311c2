"""What surrounds a call in PyTorch: hooks of saved tensors, checkpoints, transforms, modes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import vgraph
import vgraph.function as fn
from vgraph.capture import capture
from vgraph.errors import FunctionError
from vgraph.nn import GraphConv, SumPooling

SRC, DST = torch.tensor([0, 1, 2, 2, 3, 0]), torch.tensor([1, 2, 0, 1, 1, 3])
GRAPH = vgraph.graph((SRC, DST))


class Chain(vgraph.VertexFunction):
    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(v.gather()["h"].sum() + v.pull("x"))
        v.scatter(h=h)
        v.push(h=h)


def by_messages(x: Tensor) -> Tensor:
    with GRAPH.local_scope():
        GRAPH.ndata["h"] = x
        GRAPH.update_all(lambda e: {"m": torch.tanh(e.src["h"] - e.dst["h"])}, fn.sum("m", "o"))
        return GRAPH.ndata["o"]


def by_vertices(x: Tensor) -> Tensor:
    return Chain()(vgraph.graph(([0, 1, 2], [1, 2, 3])), x=x)["h"]


def on_edges(x: Tensor) -> Tensor:
    with GRAPH.local_scope():
        GRAPH.ndata["h"] = x
        GRAPH.apply_edges(lambda e: {"m": torch.tanh(e.src["h"] - e.dst["h"])})
        return GRAPH.edata["m"]


RUNS = [by_messages, by_vertices, on_edges]
Run = Callable[[Tensor], Tensor]


def rows(*, grad: bool = True) -> Tensor:
    return torch.linspace(-1, 1, 12, dtype=torch.float64).view(4, 3).requires_grad_(grad)


def gradient(run: Run) -> Tensor:
    x = rows()
    return torch.autograd.grad(run(x).square().sum(), x)[0]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_from_the_first_call_on(run: Run, reentrant: bool) -> None:
    """The recording, in the first of its two runs, saves nothing that the checkpoint counts."""
    wanted = gradient(run)
    capture.forget()

    def again(x: Tensor) -> Tensor:
        found: Any = checkpoint(run, x, use_reentrant=reentrant)
        return found

    x = rows()
    again(x).square().sum().backward()
    assert torch.equal(x.grad, wanted)


def test_a_checkpoint_within_a_function_that_only_backward_runs() -> None:
    """torch's reentrant one has no gradient but by ``backward()``, which a recording does not call."""
    x, wanted = rows(), rows()
    with GRAPH.local_scope():
        GRAPH.ndata["h"] = x
        GRAPH.apply_edges(lambda e: {"m": checkpoint(torch.tanh, e.src["h"], use_reentrant=True)})
        GRAPH.edata["m"].square().sum().backward()
    torch.tanh(wanted[SRC]).square().sum().backward()
    torch.testing.assert_close(x.grad, wanted.grad)


@pytest.mark.parametrize("run", RUNS)
def test_what_is_saved_may_be_moved(run: Run) -> None:
    """Also what the arena holds, and for second derivatives."""
    x = rows()
    (first,) = torch.autograd.grad(run(x).square().sum(), x, create_graph=True)
    (wanted,) = torch.autograd.grad(first.square().sum(), x)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(force=True).copy(), torch.from_numpy):
        out = run(x).square().sum()
        (moved,) = torch.autograd.grad(out, x, create_graph=True)
        (found,) = torch.autograd.grad(moved.square().sum(), x)
    torch.testing.assert_close(moved, first)
    torch.testing.assert_close(found, wanted)


def test_hooks_of_saved_tensors_may_be_forbidden() -> None:
    """A function is recorded for the first time there; the ban still holds afterwards."""

    def run(x: Tensor) -> Tensor:
        g = GRAPH.clone()
        g.ndata["x"] = x
        g.update_all(lambda edges: {"m": edges.src["x"].square()}, fn.sum("m", "y"))
        found: Tensor = g.ndata["y"]
        return found

    x = rows()
    with torch.autograd.graph.disable_saved_tensors_hooks("no hooks here"):
        found = run(x)
        with (
            pytest.raises(RuntimeError, match="no hooks here"),
            torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone),
        ):
            pass
    (first,) = torch.autograd.grad(found.sum(), x)
    wanted = torch.zeros_like(x).index_add(0, DST, x.detach()[SRC].square())
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(first, 2 * x.detach() * SRC.bincount(minlength=4).unsqueeze(1))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own forward mode
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("transform", [torch.func.vmap, torch.func.jacrev, torch.func.jacfwd])
def test_transforms_are_refused(run: Run, transform: Callable[..., Run]) -> None:
    given = rows(grad=False)
    wanted = run(given)
    with pytest.raises(vgraph.VGraphError, match=r"torch\.func's transforms(.|\n)*test_autograd_contexts(.|\n)*cure"):
        transform(run)(torch.stack([given, given]) if transform is torch.func.vmap else given)
    assert torch.equal(run(given), wanted), "nothing is remembered of it"


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own forward mode
@pytest.mark.parametrize("run", RUNS)
def test_forward_mode_is_refused(run: Run) -> None:
    x = rows(grad=False)
    with forward_ad.dual_level(), pytest.raises(vgraph.VGraphError, match=r"forward-mode derivatives(.|\n)*cure"):
        run(forward_ad.make_dual(x, torch.ones_like(x)))


def of_all(run: Run, batch: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
    """The gradients for several cotangents at once, and one after another."""
    x = rows()
    found = run(x)
    cotangents = torch.linspace(-2, 3, 5 * found.numel(), dtype=torch.float64).view(5, *found.shape)
    alone = [torch.autograd.grad(found, x, one, retain_graph=True)[0] for one in cotangents]
    return batch(found, x, cotangents), torch.stack(alone)


@pytest.mark.parametrize("run", RUNS)
def test_gradients_in_batches(run: Run) -> None:
    """By either way of torch's, batches of batches among them, and none at all."""

    def batched(found: Tensor, x: Tensor, cotangents: Tensor) -> Tensor:
        return torch.autograd.grad(found, x, cotangents, is_grads_batched=True, retain_graph=True)[0]

    def mapped(found: Tensor, x: Tensor, cotangents: Tensor) -> Tensor:
        return torch.vmap(lambda one: torch.autograd.grad(found, x, one, retain_graph=True)[0])(cotangents)

    def twice(found: Tensor, x: Tensor, cotangents: Tensor) -> Tensor:
        return torch.vmap(lambda some: mapped(found, x, some))(cotangents.unsqueeze(1)).squeeze(1)

    for batch in (batched, mapped, twice):
        torch.testing.assert_close(*of_all(run, batch))
    none, _ = of_all(run, lambda found, x, cotangents: mapped(found, x, cotangents[:0]))
    assert none.shape == (0, 4, 3)


@pytest.mark.parametrize("run", RUNS)
def test_vectorized_jacobians_have_derivatives(run: Run) -> None:
    x = rows()
    found: Any = torch.autograd.functional.jacobian(run, x, vectorize=True, create_graph=True)
    wanted: Any = torch.autograd.functional.jacobian(run, x, create_graph=True)
    torch.testing.assert_close(found, wanted)
    second, also = (torch.autograd.grad(one.square().sum(), x)[0] for one in (found, wanted))
    torch.testing.assert_close(second, also)
    hessian: Any = torch.autograd.functional.hessian(lambda x: run(x).sum(), x, vectorize=True)
    torch.testing.assert_close(hessian, torch.autograd.functional.hessian(lambda x: run(x).sum(), x))


def test_mapped_gradients_that_get_a_graph_are_refused() -> None:
    x = rows()
    found = by_messages(x)
    with pytest.raises(FunctionError, match=r"create_graph=True(.|\n)*cure: (.*)is_grads_batched=True"):
        torch.vmap(lambda one: torch.autograd.grad(found, x, one, create_graph=True)[0])(torch.ones(2, 4, 3).double())


def test_rows_made_in_inference_mode_are_features() -> None:
    with torch.inference_mode():
        x = rows(grad=False)
        wanted = by_messages(x)
    assert torch.equal(by_messages(x), wanted)


@pytest.mark.parametrize("times", [1, 3])
def test_rows_made_in_inference_mode_train_a_layer(times: int) -> None:
    """As features of an encoder that was run beforehand; autograd saves no such tensor, but what is gathered of it."""
    layer, g = torch.nn.Linear(3, 2, dtype=torch.float64), GRAPH.clone()
    with torch.inference_mode():
        g.ndata["h"] = x = rows(grad=False)
    wanted = torch.autograd.grad(torch.tanh(layer(x[SRC])).sum(), layer.weight)[0]
    for _ in range(times):
        g.update_all(lambda e: {"m": torch.tanh(layer(e.src["h"]))}, fn.sum("m", "o"))
        (first,) = torch.autograd.grad(g.ndata["o"].sum(), layer.weight, create_graph=True)
        torch.testing.assert_close(first, wanted)
    (second,) = torch.autograd.grad(first.square().sum(), layer.weight)
    (once,) = torch.autograd.grad(torch.tanh(layer(x[SRC])).sum(), layer.weight, create_graph=True)
    torch.testing.assert_close(second, torch.autograd.grad(once.square().sum(), layer.weight)[0])


class _Messages(torch.nn.Module):
    def __init__(self, graph: vgraph.Graph) -> None:
        super().__init__()
        self.graphs = (graph,)
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        (g,) = self.graphs
        with g.local_scope():
            g.ndata["h"] = self.linear(x)
            g.update_all(lambda e: {"m": torch.tanh(e.src["h"])}, lambda n: {"o": n.mailbox["m"].sum(1)})
            return g.ndata["o"]


def test_export_is_refused_and_leaves_a_graph_as_it_was() -> None:
    g, x = vgraph.graph(([0, 1], [2, 2])), torch.randn(3, 4)
    model = _Messages(g)
    with pytest.raises(Exception, match=r"torch\.export does not reach into functions on graphs"):
        torch.export.export(model, (x,))
    wanted = torch.zeros(3, 4).index_add(0, torch.tensor([2, 2]), torch.tanh(model.linear(x[:2])))
    torch.testing.assert_close(model(x), wanted)


class _Kept(torch.nn.Module):
    """A function that reads a graph which is no argument: an exported program would hold its number alone."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "run",
    [
        by_messages,
        on_edges,
        functools.partial(lambda cell, g, x: cell(g, x=x)["h"], Chain(), vgraph.graph(([0, 1, 2], [1, 2, 3]))),
        functools.partial(GraphConv(3, 2).double(), GRAPH),
        functools.partial(SumPooling(), GRAPH),
    ],
)
def test_no_export_keeps_the_number_of_a_graph(run: Run, strict: bool) -> None:
    """In another process the number may be another graph's: the program would compute on that one, and say nothing."""
    with pytest.raises(Exception, match=r"torch\.export does not reach into"):
        torch.export.export(_Kept(run), (rows(grad=False),), strict=strict)


@pytest.mark.parametrize("times", [0, 2])
def test_recorders_and_tensors_without_numbers_are_refused(times: int) -> None:
    """A recording would hold what kernels give as a constant; a tensor without memory would be written to."""
    graph, x = vgraph.graph(([0, 1, 1], [1, 2, 0])), torch.randn(3, 2)

    def summed(rows: Tensor) -> Tensor:
        graph.ndata["h"] = rows
        graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "o"))
        return graph.ndata.pop("o") * 2

    for _ in range(times):
        summed(x)
    with pytest.raises(FunctionError, match="make_fx does not reach into functions on graphs"):
        make_fx(summed)(x)
    with FakeTensorMode(allow_non_fake_inputs=True), pytest.raises(FunctionError, match="FakeTensorMode has tensors"):
        summed(x)
    with FlopCounterMode(display=False):
        torch.testing.assert_close(summed(x), x[[1, 0, 1]] * 2)
