"""Attention: one pass makes a weighted sum, no number of an edge is kept, whatever scores there are."""

from __future__ import annotations

import gc
import math
import re
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import vgraph
import vgraph.function as fn
import vgraph.nn as vnn
from tests.cuda import shim
from tests.fusion.fuzz import Case, running
from tests.fusion.test_fixtures import assert_three_ways, topology_of
from tests.tables import table
from vgraph.api.messages.propagate import _uncaptured, propagate
from vgraph.api.messages.update_all import capture_update
from vgraph.capture import capture
from vgraph.compiler import kernel_source
from vgraph.fusion.cpu import build
from vgraph.fusion.cuda.emit import emit_cuda
from vgraph.ir.space import VERTEX
from vgraph.nn import edge_softmax
from vgraph.passes.linear_sums import visits_in_edges

HEADS, WIDTH = 2, 4
TURN = 128  # vg_turn of prelude.h

pytestmark = [
    pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler"),
    pytest.mark.usefixtures("kernels"),
]


def gat(edges: Any) -> dict[str, Tensor]:
    return {"m": edges.src["h"], "e": F.leaky_relu(edges.src["s"] + edges.dst["s"], 0.2)}


def gatv2(edges: Any) -> dict[str, Tensor]:
    return {"m": edges.src["h"], "e": F.leaky_relu(edges.src["h"] + edges.dst["h"], 0.2).sum(-1, keepdim=True)}


def dot(edges: Any) -> dict[str, Tensor]:
    return {"m": edges.src["h"], "e": (edges.src["h"] * edges.dst["h"]).sum(-1, keepdim=True)}


def by_feature(edges: Any) -> dict[str, Tensor]:
    return {"m": edges.src["h"], "e": edges.src["h"] * edges.dst["h"]}


def attend(nodes: Any) -> dict[str, Tensor]:
    return {"o": (torch.softmax(nodes.mailbox["e"], 1) * nodes.mailbox["m"]).sum(1)}


def attend_with_dropout(nodes: Any) -> dict[str, Tensor]:
    return {"o": (F.dropout(torch.softmax(nodes.mailbox["e"], 1), 0.3) * nodes.mailbox["m"]).sum(1)}


MESSAGES: dict[str, Callable[[Any], dict[str, Tensor]]] = {"gat": gat, "gatv2": gatv2, "dot": dot, "udf": by_feature}


def a_graph() -> vgraph.Graph:
    made = torch.Generator().manual_seed(0)
    src, dst = torch.randint(0, 30, (150,), generator=made), torch.randint(0, 25, (150,), generator=made)
    g = vgraph.graph((src, dst), num_nodes=30)
    g.ndata["h"], g.ndata["s"] = (torch.randn(30, HEADS, n).requires_grad_() for n in (WIDTH, 1))
    return g


@pytest.mark.parametrize(("name", "reduce"), table([*MESSAGES], [attend, attend_with_dropout]))
def test_one_pass_forward_and_backward(name: str, reduce: Any) -> None:
    """In the text for a GPU each kernel loops over edges once, on the CPU over chains; nothing of an edge is stored."""
    g = a_graph()
    bound, _ = capture_update(g, MESSAGES[name], reduce)
    (pair,) = bound.captured.pairs.values()
    assert {v.space for v in pair.forward.program.outputs if v is not None} == {VERTEX}
    saved = [v for v in pair.forward.program.outputs[1:] if v is not None]
    most = 5 if name in ("gat", "udf") else 3  # the sums by which no pass over in-edges is left to the backward
    assert len(saved) <= most, "the maximum, the logarithm of the sum of weights, and the output"
    assert visits_in_edges(pair.backward.program.ops, ()) == (most == 3)
    for compiled in (pair.forward, pair.backward):
        specs = [unit.kernel for code in compiled.codes for unit in code.units if unit.kernel is not None]
        assert specs and not any(
            unit.op for code in compiled.codes for unit in code.units if unit.op and _on_edges(unit.op)
        )
        for text in emit_cuda(specs)[0].split('extern "C" __global__')[1:]:
            assert text.count("from < stop; from += ") <= 1
        for text in kernel_source(compiled).split("static void body")[1:]:
            assert len(re.findall(r"for \(int64_t from = (?:in|out)_ptr", text)) <= 1


def _on_edges(op: Any) -> bool:
    return any(v.space.kind == "edge" for v in op.results) and "random" not in str(op.target)


def long_row(scores: Tensor) -> tuple[Any, dict[str, dict[str, Tensor]]]:
    """One vertex with these scores, one with some of them, one without edges."""
    count = scores.shape[0]
    src = torch.cat([torch.arange(count), torch.arange(3)])
    dst = torch.cat([torch.zeros(count, dtype=torch.long), torch.ones(3, dtype=torch.long)])
    made = torch.Generator().manual_seed(1)
    rows = {"h": torch.randn(count, 1, 3, dtype=torch.float64, generator=made).requires_grad_()}
    rows["s"] = scores.double().view(count, 1, 1).clone().requires_grad_()
    return topology_of(src, dst, count, 3), {"src": rows, "dst": {}, "edge": {}}


def scored(edges: Any) -> dict[str, Tensor]:
    return {"m": edges.src["h"], "e": edges.src["s"] * 1.0}


def special(name: str) -> Tensor:
    many = 2 * TURN + 40
    rising = torch.linspace(-900.0, 900.0, many)
    if name == "rising":
        return rising
    if name == "falling":
        return rising.flip(0)
    if name == "minus infinity first":
        return torch.cat([torch.full((TURN + 5,), -torch.inf), torch.linspace(-1000, -990, TURN)])
    if name == "minus infinity alone":
        return torch.full((many,), -torch.inf)
    if name == "nan late":
        return torch.cat([torch.zeros(TURN + 5), torch.tensor([torch.nan]), torch.zeros(9)])
    return torch.cat([torch.zeros(TURN + 5), torch.tensor([torch.inf]), torch.zeros(9)])


SPECIAL = ("rising", "falling", "minus infinity first", "minus infinity alone", "nan late", "infinity late")


@pytest.mark.parametrize("name", SPECIAL)
def test_peaks_that_rise_from_chain_to_chain(name: str) -> None:
    topology, frames = long_row(special(name))
    assert_three_ways(topology, frames, (scored, attend))


def test_messages_that_weigh_nothing_still_carry_nan() -> None:
    topology, frames = long_row(special("minus infinity first"))
    with torch.no_grad():
        frames["src"]["h"][3, 0, 1] = torch.nan
    assert_three_ways(topology, frames, (scored, attend))


def squared(nodes: Any) -> dict[str, Tensor]:
    """Weights that are read twice: no factor can be taken out."""
    weights = torch.softmax(nodes.mailbox["e"], 1)
    return {"o": (weights * torch.tanh(weights) * nodes.mailbox["m"]).sum(1), "w": (weights * weights).sum(1)}


def by_hand(nodes: Any) -> dict[str, Tensor]:
    """A softmax that somebody wrote out, and what rides on no peak."""
    e, m = nodes.mailbox["e"], nodes.mailbox["m"]
    above = e - e.amax(1, keepdim=True)
    scaled = torch.exp(above)
    return {"o": (scaled * m).sum(1) / scaled.sum(1), "p": (above * scaled).sum(1), "q": m.mean(1)}


def several(nodes: Any) -> dict[str, Tensor]:
    weights = torch.softmax(nodes.mailbox["e"], 1)
    m = nodes.mailbox["m"]
    return {"o": (weights * m).sum(1), "n": (m * m * -weights / 2).sum(1), "x": (weights * m).amax(1)}


@pytest.mark.parametrize(("heads", "reduce"), table([1, 3], [squared, by_hand, several]))
def test_other_sums_of_weights(reduce: Any, heads: int) -> None:
    made = torch.Generator().manual_seed(2)
    topology = topology_of(
        torch.randint(0, 9, (300,), generator=made), torch.randint(0, 9, (300,), generator=made) % 4, 9, 9
    )
    rows = {"h": torch.randn(9, heads, 5, dtype=torch.float64, generator=made).requires_grad_()}
    rows["s"] = torch.randn(9, heads, 1, dtype=torch.float64, generator=made).requires_grad_()
    assert_three_ways(topology, {"src": rows, "dst": rows, "edge": {}}, (gat, reduce))


def normalised(nodes: Any) -> dict[str, Tensor]:
    """Weights that are divided by what they add up to before they are read: relative to the last peak, not to one on
    the way there.
    """
    e = nodes.mailbox["e"]
    scaled = torch.exp(e - e.amax(1, keepdim=True))
    return {"o": ((scaled / (scaled.sum(1, keepdim=True) + 1)).square() * nodes.mailbox["m"]).sum(1)}


@pytest.mark.parametrize(
    ("name", "reduce"), table(["gently rising", "falling"], [squared, by_hand, several, normalised])
)
def test_weights_of_a_row_that_is_longer_than_a_chain(name: str, reduce: Any) -> None:
    scores = torch.linspace(-3.0, 3.0, 2 * TURN + 40) if name == "gently rising" else special(name)
    topology, frames = long_row(scores)
    assert_three_ways(topology, frames, (scored, reduce))


def whole_shares(nodes: Any) -> dict[str, Tensor]:
    """Weights that become whole numbers once they add up to one: that sum is no factor of them any more."""
    weights, m = torch.softmax(nodes.mailbox["e"], 1), nodes.mailbox["m"]
    floored = torch.div(weights, 0.1, rounding_mode="floor")
    cut = torch.div(weights * m, 0.01, rounding_mode="trunc")
    levels = (weights * 255).long()
    return {"o": (floored * m).sum(1), "n": cut.sum(1), "l": levels.sum(1), "q": (levels.to(m.dtype) * m).sum(1)}


def whole_weights(nodes: Any) -> dict[str, Tensor]:
    """The same of weights that are relative to a peak: what is whole cannot fade when that is raised."""
    e, m = nodes.mailbox["e"], nodes.mailbox["m"]
    levels = (torch.exp(e - e.amax(1, keepdim=True)) * 255).int()
    return {"o": levels.to(m.dtype).sum(1), "n": m.sum(1)}


@pytest.mark.parametrize("reduce", [whole_shares, whole_weights])
def test_weights_that_become_whole_numbers(reduce: Any) -> None:
    topology, frames = long_row(torch.linspace(-3.0, 3.0, 2 * TURN + 40))
    assert_three_ways(topology, frames, (scored, reduce))


@pytest.mark.parametrize("way", ["kernels", "cuda-shim"])
def test_second_gradients_and_dropout(way: str) -> None:
    made = torch.Generator().manual_seed(2)
    topology = topology_of(torch.arange(40) % 7, torch.arange(40) % 3, 7, 7)
    rows = {"h": torch.randn(7, 2, 4, dtype=torch.float64, generator=made).requires_grad_()}
    rows["s"] = torch.randn(7, 2, 1, dtype=torch.float64, generator=made).requires_grad_()
    case = Case(
        topology, {"src": rows, "dst": rows, "edge": {}}, (gat, attend_with_dropout), [], second=True, drops=True
    )
    found: list[list[Tensor]] = []
    for one in ("operators", way):
        with running(one):
            capture.forget()
            found.append(case.run(propagate))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("way", "dtype"), table(["kernels", "cuda-shim"], [torch.bfloat16, torch.float16, torch.float32])
)
def test_short_numbers_are_weighed_in_long_ones(way: str, dtype: torch.dtype) -> None:
    """Of rows of 300 edges, with messages whose sum no 16 bits hold."""
    made = torch.Generator().manual_seed(2)
    topology = topology_of(torch.arange(600) % 50, torch.arange(600) % 2, 50, 2)
    h, s = torch.rand(50, 2, 4, generator=made).to(dtype) * 500, torch.randn(50, 2, 1, generator=made).to(dtype)
    results: list[Tensor] = []
    for kind in (dtype, torch.float64):
        src = {"h": h.to(kind).requires_grad_(), "s": s.to(kind).requires_grad_()}
        frames: Any = {"src": src, "dst": {}, "edge": {}}
        with running(way):
            capture.forget()
            out = propagate(topology, frames, scored, attend)["o"]
            results += [out, *torch.autograd.grad(out.float().mean(), [src["h"], src["s"]])]
    for mine, exact in zip(results[:3], results[3:], strict=True):
        slack = 8 * torch.finfo(dtype).eps * (1 + math.log2(300)) * exact.abs().max()
        assert mine.dtype == dtype and bool(((mine.double() - exact).abs() <= slack).all())


def test_a_row_without_edges_gets_zeros() -> None:
    topology, frames = long_row(torch.zeros(5))
    out = propagate(topology, frames, scored, attend)["o"]
    assert bool((out[2] == 0).all())
    torch.testing.assert_close(out, _uncaptured(topology, frames, scored, attend)["o"])


@pytest.mark.parametrize("layer", [vnn.GATConv, vnn.GATv2Conv])
def test_hubs_in_chunks_fade_too(layer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from vgraph.ir import hubs

    monkeypatch.setattr(hubs, "MOST_EDGES", 16)
    monkeypatch.setattr(hubs, "CHUNK", 7)
    torch.manual_seed(0)
    g = vgraph.graph((torch.arange(300) % 20, torch.arange(300) % 3), num_nodes=20)
    made, x = layer(5, 4, num_heads=2, allow_zero_in_degree=True).double(), torch.randn(20, 5, dtype=torch.float64)
    wanted = made(g, x)
    capture.forget()
    shim.launched.clear()
    with shim.in_place_of_cpu():
        torch.testing.assert_close(made(g, x), wanted)
    assert any("_chunk" in name for name in shim.launched)


def test_nothing_of_the_first_call_is_kept() -> None:
    """Neither what it read nor what it gave, though the recording stays."""
    g = a_graph()
    with g.local_scope():
        rows = torch.randn(30, HEADS, WIDTH, requires_grad=True) * 2
        g.ndata["h"] = rows
        g.update_all(gat, attend)
        given, made = weakref.ref(rows), weakref.ref(g.ndata["o"])
    del rows
    gc.collect()
    assert given() is None and made() is None


@pytest.mark.parametrize("way", ["mailbox", "edge_softmax", "softmax_edges"])
@pytest.mark.parametrize("base", [-1e9, 1e6, -3e4])
def test_scores_far_from_zero(way: str, base: float) -> None:
    """All of a vertex's edges may be masked: weights add up to one, forward and backward, as torch's do."""
    src, dst = torch.arange(6), torch.tensor([0, 0, 0, 1, 1, 2])
    steps = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 0.0]) * (0.0 if base == -1e9 else 1.0)
    scores, rows = (base + steps).view(6, 1).requires_grad_(), torch.randn(6, 3).requires_grad_()
    g = vgraph.graph((src, dst), num_nodes=6)
    if way == "softmax_edges":
        g, dst = vgraph.batch([vgraph.graph((torch.arange(6), torch.arange(6)))]), torch.zeros(6, dtype=torch.long)
    g.edata["s"], g.ndata["h"] = scores, rows
    if way == "mailbox":
        g.update_all(lambda e: {"m": e.src["h"], "s": e.data["s"]}, attend_plainly)
    else:
        g.edata["a"] = edge_softmax(g, scores) if way == "edge_softmax" else vgraph.softmax_edges(g, "s")
        g.update_all(fn.u_mul_e("h", "a", "m"), fn.sum("m", "o"))
    ours = [g.ndata["o"], *torch.autograd.grad(g.ndata["o"].square().sum(), [scores, rows])]
    weights = torch.cat([torch.softmax(scores[dst == v], 0) for v in dst.unique()])
    wanted = torch.zeros(6, 3).index_add(0, g.edges()[1], weights * rows[g.edges()[0]])
    theirs = [wanted, *torch.autograd.grad(wanted.square().sum(), [scores, rows])]
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def attend_plainly(nodes: Any) -> dict[str, Tensor]:
    return {"o": (nodes.mailbox["s"].softmax(1) * nodes.mailbox["m"]).sum(1)}
