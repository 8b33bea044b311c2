"""Layers of PyG on vgraph's kernels: the same numbers, nothing of theirs changed, and told where PyG runs itself."""

from __future__ import annotations

import copy
import gc
import io
import logging
import pickle
import sys
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

import vgraph
from vgraph import compiler
from vgraph.capture.capture import forget, watch_runs
from vgraph.capture.errors import CaptureError
from vgraph.compat.pyg import accelerated, topologies
from vgraph.compat.pyg.__main__ import main
from vgraph.compat.pyg.deferred import RowsChangedError
from vgraph.errors import FunctionError
from vgraph.ir import schedule

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG's import uses what torch has deprecated
        import torch_geometric.nn as pyg
except ImportError:
    pyg = None
needs_pyg = pytest.mark.skipif(pyg is None, reason="torch_geometric is not installed")

N, E, F = 30, 100, 8


def edges(num_src: int = N, num_dst: int = N, count: int = E) -> Tensor:
    return torch.stack([torch.randint(0, num_src, (count,)), torch.randint(0, num_dst, (count,))])


def runs_of(call: Callable[[], Any]) -> tuple[Any, list[object]]:
    """What a call gives, and for each function that ran its Bound or the error."""
    with watch_runs() as runs:
        out = call()
    return out, [what for _, what, _ in runs]


@pytest.mark.skipif(pyg is not None, reason="torch_geometric is installed")
def test_without_pyg() -> None:
    with pytest.raises(FunctionError, match="torch_geometric is not installed"):
        vgraph.accelerate(nn.Linear(1, 1))
    with pytest.raises(FunctionError, match="torch_geometric is not installed"), accelerated():
        pass


@needs_pyg
def test_accelerate_changes_nothing_that_is_seen() -> None:
    model = nn.Sequential(pyg.GCNConv(F, F), pyg.GATConv(F, F, heads=2))
    before = repr(model), list(model.state_dict()), [type(layer) for layer in model.modules()]
    assert vgraph.accelerate(model) is model
    assert (repr(model), list(model.state_dict()), [type(layer) for layer in model.modules()]) == before


@needs_pyg
def test_copies_are_accelerated() -> None:
    layer, x, ids = vgraph.accelerate(pyg.GCNConv(F, F)), torch.randn(N, F), edges()
    wanted = layer(x, ids)
    saved = io.BytesIO()
    torch.save(layer, saved)
    saved.seek(0)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.load(saved, weights_only=False)):
        out, ran = runs_of(lambda other=other: other(x, ids))
        torch.testing.assert_close(out, wanted)
        assert ran and not any(isinstance(what, CaptureError) for what in ran)


@needs_pyg
def test_lazy_parameters() -> None:
    """PyG makes them in the first call, ``lin_dst`` after it has added up; the call is captured as later ones are."""
    layer, x = (
        vgraph.accelerate(pyg.GENConv((-1, -1), F, edge_dim=-1, norm=None)),
        (torch.randn(N, 4), torch.randn(N, 5)),
    )
    ids, rows = edges(), torch.randn(E, 3)
    first, ran = runs_of(lambda: layer(x, ids, rows))
    assert not isinstance(ran[-1], CaptureError)
    assert torch.equal(layer(x, ids, rows), first)
    torch.testing.assert_close(copy.deepcopy(layer)(x, ids, rows), first)


@needs_pyg
def test_parameters_that_a_layer_never_initializes() -> None:
    """Of two lazy products GATConv makes one where both ends are the same nodes."""
    layer, x, edge_index = pyg.GATConv((-1, -1), F), torch.randn(4, F), torch.tensor([[0, 1, 2, 3], [1, 1, 3, 0]])
    theirs = copy.deepcopy(layer)
    vgraph.accelerate(layer)
    for given in (layer, theirs):
        torch.manual_seed(1)
        given(x, edge_index)
    torch.testing.assert_close(layer(x, edge_index), theirs(x, edge_index))


@needs_pyg
def test_weights_of_a_first_call_that_initializes_parameters_after_its_messages() -> None:
    """As TransformerConv does its ``lin_skip``, of which its weights are not computed."""
    layer, x, ids = pyg.TransformerConv((-1, -1), F, heads=2), torch.randn(N, F), edges()
    ours = vgraph.accelerate(copy.deepcopy(layer))
    ours_found = ours((x, x), ids, return_attention_weights=True)
    layer((x, x), ids)
    layer.load_state_dict(ours.state_dict())
    torch.testing.assert_close(ours_found, layer((x, x), ids, return_attention_weights=True))


@needs_pyg
def test_other_layers_are_left_alone() -> None:
    vgraph.accelerate(pyg.GCNConv(F, F))
    other, x, ids = pyg.GCNConv(F, F), torch.randn(N, F), edges()
    assert runs_of(lambda: other(x, ids))[1] == []
    with accelerated():
        assert len(runs_of(lambda: other(x, ids))[1]) == 1
    assert runs_of(lambda: other(x, ids))[1] == []


@needs_pyg
def test_a_topology_is_let_go_with_its_tensor() -> None:
    layer, x, ids = vgraph.accelerate(pyg.SAGEConv(F, F)), torch.randn(N, F), edges()
    first = topologies.topology_of(ids, N, N, forward=True)
    layer(x, ids).sum().backward()
    assert topologies.topology_of(ids, N, N, forward=True) is first
    ids[0, 0] = (ids[0, 0] + 1) % N
    assert topologies.topology_of(ids, N, N, forward=True) is not first
    torch.testing.assert_close(layer(x, ids), copy.deepcopy(layer)(x, ids.clone()))
    known = weakref.ref(topologies.topology_of(ids, N, N, forward=True))
    del ids, first
    gc.collect()
    assert known() is None


class _SeesIds(pyg.MessagePassing if pyg is not None else nn.Module):
    """A message that says what its ids are."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_j: Tensor, index: Tensor, edge_index_j: Tensor) -> Tensor:
        assert index.dtype == edge_index_j.dtype == torch.int64
        return x_j * (index - 2 * edge_index_j)[:, None]


@needs_pyg
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_many_ids_take_few_bits(flow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that functions ask for are as they were given, and nobody's writes reach what a backward reads."""
    for module in (topologies, compiler, schedule):
        monkeypatch.setattr(module, "MANY", 0)
    layer, x, ids = _SeesIds(flow=flow), torch.randn(N, F, dtype=torch.float64).requires_grad_(), edges()
    wanted = layer(x, ids)
    out, ran = runs_of(lambda: vgraph.accelerate(layer)(x, ids))
    assert not isinstance(ran[-1], CaptureError)
    topology = topologies.topology_of(ids, N, N, forward=flow == "source_to_target")
    assert topology.src.dtype == topology.reversed.dst.dtype == torch.int32
    assert topology.idtype == topology.reversed.idtype == torch.int64
    (gradient,) = torch.autograd.grad(wanted.square().sum(), x)
    before = ids.clone()
    ids.zero_()
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(torch.autograd.grad(out.square().sum(), x), (gradient,))
    torch.testing.assert_close(layer(x, before), wanted)


@needs_pyg
@pytest.mark.usefixtures("kernels")
def test_many_pairs_turned_are_read_as_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """An edge_index that is a table of pairs, transposed, has gaps between the ids of a row."""
    for module in (topologies, compiler, schedule):
        monkeypatch.setattr(module, "MANY", 0)
    monkeypatch.setattr(compiler, "_SMALL_GRAPH", 0)
    layer, x = pyg.SAGEConv(F, F), torch.randn(N, F)
    ids = edges().t().contiguous().t()
    assert not ids.is_contiguous()
    torch.testing.assert_close(vgraph.accelerate(copy.deepcopy(layer))(x, ids), layer(x, ids))


class _Writes(pyg.MessagePassing if pyg is not None else nn.Module):
    """A message that writes to its layer: a buffer, a number of rows, a count, rows within a list and by themselves."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.count = kind, 0
        self.register_buffer("mean", torch.zeros(F, dtype=torch.float64))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_j: Tensor) -> Tensor:
        if self.kind == "buffer":
            self.mean = 0.9 * self.mean + 0.1 * x_j.mean(0)
        elif self.kind == "number":
            self.found = x_j.shape[0]
        elif self.kind == "count":
            self.count += 1
        elif self.kind == "list":
            self.found = [x_j * 2]
        else:
            self.found = x_j * 2
        return x_j - self.mean + self.count


@needs_pyg
@pytest.mark.parametrize("kind", ["buffer", "number", "count", "list", "rows"])
def test_what_a_message_writes_to_its_layer_is_of_every_call(kind: str) -> None:
    theirs, ids = _Writes(kind), edges()
    ours = vgraph.accelerate(copy.deepcopy(theirs))
    for _ in range(3):
        x = torch.randn(N, F, dtype=torch.float64)
        torch.testing.assert_close(ours(x, ids), theirs(x, ids))
        torch.testing.assert_close(ours.mean, theirs.mean)
        assert ours.count == theirs.count
        if kind not in ("buffer", "count"):
            torch.testing.assert_close(ours.found, theirs.found)


class _OfBothEnds(pyg.MessagePassing if pyg is not None else nn.Module):
    """A message that tells the rows of a pair apart, and a number from None."""

    def forward(self, x: tuple[Tensor, Tensor], edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, scale=3.0)

    def message(self, x_i: Tensor, x_j: Tensor, scale_j: float | None = None) -> Tensor:
        return x_i + 2 * x_j * (scale_j or 1.0)


class _OfBothEndsByHand(_OfBothEnds):
    """PyG prints no code for what a class defines itself: its general function collects the arguments."""

    def propagate(self, edge_index: Tensor, **given: object) -> Tensor:
        return pyg.MessagePassing.propagate(self, edge_index, **given)


@needs_pyg
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("kind", [_OfBothEnds, _OfBothEndsByHand])
def test_pairs_are_read_as_pyg_reads_them(kind: type[nn.Module], flow: str) -> None:
    layer, ids = kind(flow=flow), edges()
    pair = torch.randn(2, N, F, dtype=torch.float64).requires_grad_()
    wanted = layer((pair[0], pair[1]), ids)
    out, ran = runs_of(lambda: vgraph.accelerate(layer)((pair[0], pair[1]), ids))
    assert not isinstance(ran[-1], CaptureError)
    torch.testing.assert_close(out, wanted)
    gradients = [torch.autograd.grad(one.square().sum(), pair) for one in (out, wanted)]
    torch.testing.assert_close(*gradients)


class _OfWeight(pyg.MessagePassing if pyg is not None else nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = weight_norm(nn.Linear(F, F, dtype=torch.float64))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_j: Tensor, x_i: Tensor) -> Tensor:
        return self.lin(x_j - x_i).sigmoid()


@needs_pyg
def test_parametrized_weights_are_captured() -> None:
    layer, x, ids = _OfWeight(), torch.randn(N, F, dtype=torch.float64), edges()
    ours = vgraph.accelerate(copy.deepcopy(layer))
    for scale in (1.0, 2.0):
        for one in (layer, ours):
            with torch.no_grad():
                one.lin.parametrizations.weight.original0.mul_(scale)
        out, ran = runs_of(lambda: ours(x, ids))
        assert not isinstance(ran[-1], CaptureError)
        wanted = layer(x, ids)
        torch.testing.assert_close(out, wanted)
        both = [torch.autograd.grad(y.sum(), list(m.parameters())) for y, m in ((out, ours), (wanted, layer))]
        torch.testing.assert_close(*both)


@needs_pyg
@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv", "FAConv"])
def test_attention_against_the_flow(kind: str) -> None:
    if kind == "FAConv":
        layer = pyg.FAConv(F, flow="target_to_source").double()
    else:
        layer = getattr(pyg, kind)(F, 4, heads=2, flow="target_to_source").double()
    x, ids = torch.randn(N, F, dtype=torch.float64), edges()
    given = (x, x, ids) if kind == "FAConv" else (x, ids)
    wanted = layer(*given)
    torch.testing.assert_close(vgraph.accelerate(layer)(*given), wanted)


@needs_pyg
@pytest.mark.parametrize("kind", ["message", "aggregate", "propagate"])
def test_hooks_see_messages(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    layer, x, ids, seen = pyg.GCNConv(F, F), torch.randn(N, F), edges(), []
    wanted = layer(x, ids)
    vgraph.accelerate(layer)
    handle = getattr(layer, f"register_{kind}_forward_hook")(lambda *given: seen.append(given))
    with caplog.at_level(logging.INFO, "vgraph"):
        torch.testing.assert_close(layer(x, ids), wanted)
    assert len(seen) == 1
    handle.remove()
    assert not isinstance(runs_of(lambda: layer(x, ids))[1][0], CaptureError)
    assert len(seen) == 1


@needs_pyg
def test_an_explainer_and_parts_of_features() -> None:
    """Both have PyG put its own method on the layer; afterwards it is captured again."""
    layer, x, ids = vgraph.accelerate(pyg.GCNConv(F, F, add_self_loops=False)), torch.randn(N, F), edges()
    wanted = layer(x, ids)
    layer.explain, layer._edge_mask, layer._loop_mask = True, torch.zeros(E), torch.ones(E, dtype=torch.bool)
    torch.testing.assert_close(layer(x, ids), wanted / 2)  # each message times sigmoid(0), but for the bias of 0
    layer.explain = False
    assert not isinstance(runs_of(lambda: layer(x, ids))[1][0], CaptureError)
    layer.decomposed_layers = 2
    torch.testing.assert_close(layer(x, ids), wanted)
    layer.decomposed_layers = 1
    assert not isinstance(runs_of(lambda: layer(x, ids))[1][0], CaptureError)


@needs_pyg
@pytest.mark.filterwarnings("ignore:.torch.jit")  # deprecated, under a warning of another class from torch 2.14 on
def test_torch_jit() -> None:
    layer, x, ids = pyg.GCNConv(F, F), torch.randn(N, F), edges()
    wanted = layer(x, ids)
    vgraph.accelerate(layer)
    torch.testing.assert_close(torch.jit.script(layer)(x, ids), wanted)
    torch.testing.assert_close(layer(x, ids), wanted)


@needs_pyg
def test_torch_compile() -> None:
    layer, x, ids = vgraph.accelerate(pyg.SAGEConv(F, F)), torch.randn(N, F), edges()
    wanted = layer(x, ids)
    torch.testing.assert_close(torch.compile(layer, backend="eager")(x, ids), wanted)


@needs_pyg
def test_modes_of_torch() -> None:
    layer, x, ids = vgraph.accelerate(pyg.GATConv(F, F)), torch.randn(N, F), edges()
    wanted = layer(x, ids)
    with torch.no_grad():
        torch.testing.assert_close(layer(x, ids), wanted)
    with torch.inference_mode():
        torch.testing.assert_close(layer(x.clone(), ids.clone()), wanted)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x, ids)
    torch.testing.assert_close(found.float(), wanted, rtol=0.05, atol=0.05)


@needs_pyg
@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv", "TransformerConv"])
def test_weights_of_attention_are_a_part_of_the_messages(kind: str) -> None:
    """One function, unless somebody asks for the weights: then they are what PyG's are, and have gradients."""
    layer, x, ids = getattr(pyg, kind)(F, F, heads=2).double(), torch.randn(N, F).double().requires_grad_(), edges()
    (wanted, (_, wanted_weights)) = layer(x, ids, return_attention_weights=True)
    (wanted_gradient,) = torch.autograd.grad(wanted_weights.square().sum(), x)
    vgraph.accelerate(layer)
    out, runs = runs_of(lambda: layer(x, ids))
    assert len(runs) == 1 and not isinstance(runs[0], CaptureError)
    torch.testing.assert_close(out, wanted)
    with torch.no_grad():
        out, runs = runs_of(lambda: layer(x, ids))
    assert len(runs) == 1 and torch.allclose(out, wanted)
    (out, (_, weights)), runs = runs_of(lambda: layer(x, ids, return_attention_weights=True))
    assert len(runs) == 2 and type(weights) is Tensor and not any(isinstance(run, CaptureError) for run in runs)
    torch.testing.assert_close((out, weights), (wanted, wanted_weights))
    torch.testing.assert_close(torch.autograd.grad(weights.square().sum(), x)[0], wanted_gradient)


@needs_pyg
def test_weights_that_were_dropped_are_those_that_are_returned() -> None:
    layer, x, ids = vgraph.accelerate(pyg.GATConv(F, F, dropout=0.5, bias=False)), torch.randn(N, F), edges()
    out, (all_ids, weights) = layer(x, ids, return_attention_weights=True)
    sources = layer.lin(x)[all_ids[0]] * weights
    torch.testing.assert_close(out, torch.zeros(N, F).index_add(0, all_ids[1], sources))
    assert 0.2 < (weights == 0).float().mean() < 0.8


@needs_pyg
def test_what_a_layer_keeps_is_there_when_it_has_returned() -> None:
    """A user's message, which leaves rows of edges in the layer for whoever asks later."""

    class Keeping(pyg.TransformerConv):  # type: ignore[name-defined]
        def message(self, value_j: Tensor) -> Tensor:
            self.norms = value_j.square().sum(-1)
            return value_j

    layer, x, ids = vgraph.accelerate(Keeping(F, F)), torch.randn(N, F), edges()
    _, runs = runs_of(lambda: layer(x, ids))
    assert len(runs) == 2 and not any(isinstance(run, CaptureError) for run in runs)
    wanted = layer.lin_value(x)[ids[0]].square().sum(-1, keepdim=True)
    assert type(layer.norms) is Tensor
    torch.testing.assert_close(layer.norms, wanted)


@needs_pyg
def test_weights_are_refused_when_what_they_are_computed_from_has_changed() -> None:
    layer, x, ids = vgraph.accelerate(pyg.TransformerConv(F, F, edge_dim=1)), torch.randn(N, F), edges()
    features = torch.randn(E, 1)
    wanted = layer(x, ids, features).detach()

    def write(*_: object) -> None:
        features.zero_()

    layer.lin_skip.register_forward_hook(write)  # runs when messages are passed
    out = layer(x, ids, features.clone())
    torch.testing.assert_close(out, wanted)
    with pytest.raises(RowsChangedError, match="after a write to what it was given"):
        layer(x, ids, features, return_attention_weights=True)


@needs_pyg
def test_ids_out_of_range_are_refused_as_pyg_refuses_them() -> None:
    layer, x = vgraph.accelerate(pyg.SAGEConv(F, F)), torch.randn(N, F)
    with pytest.raises(IndexError, match="valid indices"):
        layer(x, torch.tensor([[0, N], [1, 2]]))
    with pytest.raises(IndexError, match="negative indices"):
        layer(x, torch.tensor([[0, -1], [1, 2]]))


def _of_many(width: int) -> nn.Module:
    return pyg.PNAConv(width, width, ["mean", "max", "std"], ["identity"], torch.ones(9).long())


@needs_pyg
@pytest.mark.parametrize("make", [lambda width: pyg.SAGEConv(width, width), _of_many], ids=["SAGEConv", "PNAConv"])
def test_explain_tells_of_layers(make: Callable[[int], nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    forget()
    layer, x, ids = vgraph.accelerate(make(F)), torch.randn(N, F), edges()
    (function,) = vgraph.explain(layer, x, ids).functions
    assert function.name == type(layer).__name__
    assert not any(stored.num_bytes >= E * F * 4 for program in function.programs for stored in program.stored)


@needs_pyg
def test_explain_tells_of_graphs_without_edges() -> None:
    layer = vgraph.accelerate(pyg.SAGEConv(F, F))
    assert "there are no edges" in str(vgraph.explain(layer, torch.randn(N, F), edges()[:, :0]))


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["pyg", *arguments])
        monkeypatch.setattr(sys, "path", [*sys.path])
        return main()

    assert run() == 2
    assert run("absent.py") == 2
    told = capsys.readouterr().err
    assert "usage: python -m vgraph.compat.pyg script.py" in told and "no script absent.py" in told
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom vgraph.compat.pyg.switch import is_everywhere\nprint(sys.argv[1:], is_everywhere())\n"
    )
    if pyg is None:
        with pytest.raises(FunctionError, match="torch_geometric is not installed"):
            run(str(script))
    else:
        assert run(str(script), "--x") == 0
        assert "['--x'] True" in capsys.readouterr().out


@needs_pyg
def test_rows_that_a_backward_does_not_read_are_let_go() -> None:
    layer, x = vgraph.accelerate(pyg.SimpleConv("mean")), torch.randn(N, F, requires_grad=True)
    rows = x * 2
    known = weakref.ref(rows)
    out = layer(rows, edges())
    del rows
    assert known() is None
    out.sum().backward()
    assert x.grad is not None


class _Gives(pyg.MessagePassing if pyg is not None else nn.Module):
    """An update that gives other things than tensors."""

    def __init__(self, give: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.give = give

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.propagate(edge_index, x=x)

    def update(self, inputs: Tensor) -> Any:
        return self.give(inputs)


@needs_pyg
@pytest.mark.parametrize(
    "give",
    [
        lambda rows: {"sum": rows, "half": rows / 2},
        lambda rows: (rows, (rows, 2 * rows)),
        lambda rows: (rows, None),
        lambda rows: (),
        lambda rows: None,
    ],
    ids=["dict", "nest", "tensor and None", "nothing", "None"],
)
def test_what_is_no_tensor_is_given_as_pyg_gives_it(give: Callable[[Tensor], Any]) -> None:
    layer, x, ids = _Gives(give), torch.randn(N, F), edges()
    wanted = layer(x, ids)
    vgraph.accelerate(layer)
    for _ in range(2):
        torch.testing.assert_close(layer(x, ids), wanted)


class _Numbers(pyg.MessagePassing if pyg is not None else nn.Module):
    """An edge_update that gives ids, and computes with them."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.edge_updater(edge_index, x=x)

    def edge_update(self, x_j: Tensor, index: Tensor, edge_index_j: Tensor) -> tuple[Tensor, ...]:
        return index, 2 * edge_index_j, index.double(), x_j * edge_index_j.view(-1, 1)


@needs_pyg
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_ids_of_32_bits_are_read_as_such(flow: str) -> None:
    """Kernels read ids in 64 bits; functions see the dtype that was given, whichever was given before."""
    layer, x, ids = _Numbers(flow=flow), torch.randn(N, F), edges()
    fast = vgraph.accelerate(copy.deepcopy(layer))
    for dtype in (torch.int32, torch.int64, torch.int32):
        found, ran = runs_of(lambda dtype=dtype: fast(x, ids.to(dtype)))
        assert not isinstance(ran[-1], CaptureError)
        torch.testing.assert_close(found, layer(x, ids.to(dtype)))


@needs_pyg
@pytest.mark.parametrize("kind", ["SAGEConv", "EdgeConv", "GCNConv"])
def test_the_meta_device(kind: str) -> None:
    """Shapes alone, as PyG gives them; what PyG refuses there it refuses accelerated, too."""
    layer = pyg.EdgeConv(nn.Linear(2 * F, F)) if kind == "EdgeConv" else getattr(pyg, kind)(F, F)
    vgraph.accelerate(layer.to("meta"))
    x, ids = torch.randn(N, F, device="meta"), edges().to("meta")
    if kind == "GCNConv":
        with pytest.raises(NotImplementedError, match="nonzero"):  # it looks for self-loops
            layer(x, ids)
    else:
        out = layer(x, ids)
        assert out.shape == (N, F) and out.is_meta


@needs_pyg
def test_rows_of_inference_mode_train_what_reads_them() -> None:
    """PyG saves its copies for each edge, which are no tensors of inference mode."""
    layer, ids = pyg.EdgeConv(nn.Linear(2 * F, F)).double(), edges()
    with torch.inference_mode():
        x = torch.randn(N, F, dtype=torch.float64)
    fast = vgraph.accelerate(copy.deepcopy(layer))
    for one in (layer, fast):
        one(x, ids).square().sum().backward()
    torch.testing.assert_close([p.grad for p in fast.parameters()], [p.grad for p in layer.parameters()])
