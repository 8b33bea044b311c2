"""Python message and reduce functions: captured, they give what DGL's own batches give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from tests.api.agreement import (
    assert_agrees,
    outputs_and_grads,
    random_frames,
    reasons,
    small_topology,
    way_of,
)
from vgraph.api.messages.propagate import _uncaptured, propagate
from vgraph.capture.capture import _families
from vgraph.capture.capture_cache import function_key
from vgraph.ir.topology import Topology

D = 4
Reduce = Callable[[Any], dict[str, Tensor]]


def _double(module: nn.Module) -> nn.Module:
    return module.double()


torch.manual_seed(0)
LINEAR, SCORE = _double(nn.Linear(D, D)), _double(nn.Linear(2 * D, 1))
NORM, CONV = _double(nn.LayerNorm(D)), _double(nn.Conv1d(D, 3, 1))
LSTM, GRU = (_double(kind(D, 3, batch_first=True)) for kind in (nn.LSTM, nn.GRU))
BATCH_NORM = _double(nn.BatchNorm1d(D)).eval()
WEIGHT = torch.randn(D, D, dtype=torch.float64, requires_grad=True)
TABLE = torch.randn(5, D, dtype=torch.float64, requires_grad=True)
STACK = torch.randn(3, D, D, dtype=torch.float64, requires_grad=True)
PARAMETERS = [
    STACK,
    *(p for m in (LINEAR, SCORE, NORM, CONV, LSTM, GRU, BATCH_NORM) for p in m.parameters()),
    WEIGHT,
    TABLE,
]


def _out(function: Callable[[Tensor, Any], Tensor]) -> Reduce:
    """A reduce function from one of the mailbox and the nodes."""
    return lambda v: {"o": function(v.mailbox["m"], v)}


def _attention(m: Tensor, v: Any) -> Tensor:
    score = (m * v.data["h"].unsqueeze(1)).sum(-1, keepdim=True) / D**0.5
    return (F.softmax(score, dim=1) * m).sum(dim=1)


def _attention_by_matmul(m: Tensor, v: Any) -> Tensor:
    weight = torch.softmax((m @ v.data["h"].unsqueeze(-1)).squeeze(-1), 1)
    return (weight.unsqueeze(1) @ m).squeeze(1)


def _filled(m: Tensor, v: Any) -> Tensor:
    out = torch.zeros(m.shape[0], 2 * D, dtype=m.dtype)
    out[:, :D] = m.sum(1)
    out[:, D:] = m.max(1)[0]
    return out


def _in_place(m: Tensor, v: Any) -> Tensor:
    total = m.sum(1)
    total += v.data["h"]
    return total.relu_()


def _through_a_view(m: Tensor, v: Any) -> Tensor:
    twice = m * 1
    twice[:, :, 0] *= 2
    total = twice.sum(1)
    heads = total.view(-1, 2, 2)
    heads += 1
    return total * 2 + heads.flatten(1)


def _without_grad(m: Tensor, v: Any) -> Tensor:
    with torch.no_grad():
        weight = v.mailbox["m"].softmax(1)
    return (weight * m).sum(1)


AS_SEGMENTS: dict[str, Reduce] = {
    "sum": _out(lambda m, v: m.sum(1)),
    "sum keepdim": _out(lambda m, v: m.sum(dim=1, keepdim=True).squeeze(1)),
    "torch.sum": _out(lambda m, v: torch.sum(m, 1)),
    "sum over slots and features": _out(lambda m, v: m.sum((1, 2))),
    "mean over slots and features": _out(lambda m, v: m.mean((1, 2))),
    "max over slots and features": _out(lambda m, v: m.amax((1, 2))),
    "mean of a negative dim": _out(lambda m, v: m.mean(-2)),
    "several": _out(lambda m, v: torch.cat([m.mean(1), m.max(1)[0], m.min(1).values, m.amax(1), m.amin(1)], -1)),
    "stack": _out(lambda m, v: torch.stack([m.mean(1), m.sum(1)], 1)),
    "moments": _out(lambda m, v: ((m - m.mean(1, keepdim=True)) ** 3).mean(1)),
    "variance by hand": _out(lambda m, v: torch.sqrt(torch.relu((m**2).mean(1) - m.mean(1) ** 2) + 1e-5)),
    "std": _out(lambda m, v: m.std(1, unbiased=False)),
    "var": _out(lambda m, v: torch.var(m, 1, correction=0)),
    "var, unbiased by position": _out(lambda m, v: m.var(1, False) + m.var(1, unbiased=False)),
    "std, keepdim by position": _out(lambda m, v: m.std(1, False, True).squeeze(1)),
    "var, a correction in between": _out(lambda m, v: torch.var(m, 1, correction=0.5)),
    "logsumexp keepdim": _out(lambda m, v: m.logsumexp(1, True).squeeze(1)),
    "logsumexp": _out(lambda m, v: torch.logsumexp(m, 1)),
    "softmax": _out(lambda m, v: (torch.softmax(m, 1) * m).sum(1)),
    "log_softmax": _out(lambda m, v: F.log_softmax(m, 1).mean(1)),
    "softmax of features": _out(lambda m, v: m.softmax(2).sum(1)),
    "prod": _out(lambda m, v: m.prod(1)),
    "norm": _out(lambda m, v: m.norm(dim=1)),
    "norm keepdim": _out(lambda m, v: m.norm(p=1, dim=-2, keepdim=True).squeeze(1)),
    "norm of order 3": _out(lambda m, v: torch.linalg.vector_norm(m, ord=3, dim=1)),
    "largest magnitude": _out(lambda m, v: m.norm(p=float("inf"), dim=1)),
    "least magnitude": _out(lambda m, v: torch.linalg.vector_norm(m, ord=-float("inf"), dim=1)),
    "normalized over slots": _out(lambda m, v: F.normalize(m, dim=1).sum(1)),
    "any": _out(lambda m, v: (m > 0).any(1)),
    "all": _out(lambda m, v: (m > 0).all(dim=1, keepdim=True).squeeze(1)),
    "any number": _out(lambda m, v: (m > 1).long().any(-2)),
    "all small": _out(lambda m, v: (m > 1).to(torch.uint8).all(1)),
    "place of the largest": _out(lambda m, v: m.argmax(1)),
    "place of the smallest": _out(lambda m, v: torch.argmin(m, dim=1, keepdim=True)),
    "count": _out(lambda m, v: (m > 0).sum(1)),
    "attention": _out(_attention),
    "attention by matmul": _out(_attention_by_matmul),
    "einsum with a parameter": _out(lambda m, v: torch.einsum("nsd,de->ne", m, WEIGHT)),
    "einsum of two": _out(lambda m, v: torch.einsum("nsd,nse->nde", m, m).flatten(1)),
    "bmm": _out(lambda m, v: torch.bmm(m.transpose(1, 2), m).flatten(1)),
    "linear": _out(lambda m, v: torch.relu(LINEAR(m)).sum(1)),
    "matmul": _out(lambda m, v: torch.tanh(m @ WEIGHT).mean(1)),
    "matrix for all heads": _out(lambda m, v: torch.tanh(m.unflatten(-1, (2, 2)) @ WEIGHT[:2, :2]).sum(1).flatten(1)),
    "einsum for all heads": _out(
        lambda m, v: torch.einsum("nshd,dk->nshk", m.unflatten(-1, (2, 2)), WEIGHT[:2, :2]).sum(1).flatten(1)
    ),
    "heads by view": _out(lambda m, v: m.view(m.shape[0], m.shape[1], 2, 2).sum(1).flatten(1)),
    "view with -1": _out(lambda m, v: m.view(-1, m.shape[1], 2, 2).sum(1).reshape(-1, D)),
    "rows and back": _out(lambda m, v: LINEAR(m.reshape(-1, D)).view(m.shape).sum(1)),
    "flatten": _out(lambda m, v: m.flatten(0, 1).view(-1, m.shape[1], D).sum(1)),
    "permute": _out(lambda m, v: m.permute(0, 2, 1).sum(-1)),
    "transposed max": _out(lambda m, v: m.transpose(1, 2).max(-1)[0]),
    "transposed mean": _out(lambda m, v: m.transpose(1, 2).mean(-1, keepdim=True).squeeze(-1)),
    "permuted softmax": _out(lambda m, v: m.permute(0, 2, 1).softmax(-1).pow(2).sum(-1)),
    "feature slice": _out(lambda m, v: m[:, :, :2].sum(1)),
    "one feature": _out(lambda m, v: m[..., 0].sum(1)),
    "index by constants": _out(lambda m, v: m[:, :, [0, 2]].sum(1)),
    "chunk": _out(lambda m, v: torch.cat([t.max(1)[0] for t in m.chunk(2, -1)], -1)),
    "unbind": _out(lambda m, v: torch.stack(m.unbind(-1)).sum(0).sum(1)),
    "layer norm": _out(lambda m, v: NORM(m).sum(1)),
    "normalize": _out(lambda m, v: F.normalize(m, dim=-1).sum(1)),
    "glu": _out(lambda m, v: F.glu(m, -1).sum(1)),
    "own feature": _out(lambda m, v: torch.relu(LINEAR(m.sum(1)) + v.data["h"])),
    "own feature in slots": _out(lambda m, v: (m - v.data["h"][:, None]).abs().sum(1)),
    "own feature repeated": _out(
        lambda m, v: torch.cat([m, v.data["h"].unsqueeze(1).repeat(1, m.shape[1], 1)], -1).sum(1)
    ),
    "own feature expanded": _out(lambda m, v: torch.cat([m, v.data["h"].unsqueeze(1).expand_as(m)], -1).sum(1)),
    "masked": _out(lambda m, v: m.masked_fill(m < 0, 0).sum(1)),
    "where": _out(lambda m, v: torch.where(m < 0, m, torch.zeros_like(m)).sum(1)),
    "constants": _out(lambda m, v: m.sum(1) + m.new_ones(m.shape[0], D)),
    "filled by parts": _out(_filled),
    "in place": _out(_in_place),
    "in place through a view": _out(_through_a_view),
    "without grad": _out(_without_grad),
    "mailbox unused": _out(lambda m, v: v.data["h"] * 2),
    "own ids": _out(lambda m, v: m.sum(1) * v.nodes().unsqueeze(1)),
    "degree as a number": _out(lambda m, v: m.sum(1) / m.shape[1]),
    "number of nodes as a size": _out(lambda m, v: m.sum(1) + torch.ones(v.batch_size(), 1)),
}
BY_DEGREE: dict[str, Reduce] = {
    "root of the degree": _out(lambda m, v: m.sum(1) / m.size(1) ** 0.5),
    "branch on shape": _out(lambda m, v: m.sum(1) if m.shape[1] > 2 else m.mean(1)),
    "branch on size": _out(lambda m, v: m.sum(1) if m.size(1) > 2 else m.mean(1)),
    "branch behind a transpose": _out(lambda m, v: m.sum(1) if m.transpose(1, 2).shape[-1] > 2 else m.mean(1)),
    "convolution": _out(lambda m, v: F.relu(CONV(m.transpose(1, 2))).max(2)[0]),
    "sort": _out(lambda m, v: m.sort(1)[0][:, 0]),
    "median": _out(lambda m, v: m.median(1)[0]),
    "topk": _out(lambda m, v: m.topk(1, dim=1)[0].squeeze(1)),
    "first": _out(lambda m, v: m[:, 0]),
    "last": _out(lambda m, v: m[:, -1]),
    "softmax in another dtype": _out(lambda m, v: m.softmax(1, torch.float32).pow(2).sum(1)),
    "argmax": _out(lambda m, v: m.gather(1, m.argmax(1, keepdim=True)).squeeze(1)),
    "self attention": _out(lambda m, v: (torch.softmax(m @ m.transpose(1, 2), -1) @ m).sum(1)),
    "scaled dot product": _out(lambda m, v: F.scaled_dot_product_attention(v.data["h"][:, None], m, m).squeeze(1)),
    "cumsum": _out(lambda m, v: m.cumsum(1)[:, -1]),
    "flip": _out(lambda m, v: m.flip(1)[:, 0]),
    "mean over all": _out(lambda m, v: m.sum(1) - m.sum(1).mean()),
    "largest of all": _out(lambda m, v: (m - m.max()).sum(1)),
    "slots apart": _out(lambda m, v: torch.stack(m.unbind(1)).sum(0)),
}
NOT_CAPTURED: dict[str, Reduce] = {
    "lstm": _out(lambda m, v: LSTM(m)[1][0].squeeze(0)),
    "lstm with a state": _out(lambda m, v: LSTM(m, (m.new_zeros(1, m.shape[0], 3),) * 2)[1][0].squeeze(0)),
    "gru": _out(lambda m, v: GRU(m)[0][:, -1]),
    "item": _out(lambda m, v: m.sum(1) * m.max().item()),
    "numpy": _out(lambda m, v: m.sum(1) * float(m.detach().numpy().max())),
    "tolist": _out(lambda m, v: m.sum(1) * max(m.detach().flatten().tolist())),
    "number of nodes": _out(lambda m, v: m.sum(1) * len(m)),
    "branch on data": _out(lambda m, v: m.sum(1) if bool((m > 0).all()) else m.mean(1)),
}
WAYS = {"segments": AS_SEGMENTS, "degrees": BY_DEGREE, "uncaptured": NOT_CAPTURED}
CASES = [(way, name) for way, functions in WAYS.items() for name in functions]


def copied(edges: Any) -> dict[str, Tensor]:
    return {"m": edges.src["h"]}


@pytest.mark.guards
@pytest.mark.parametrize(("way", "name"), CASES)
def test_reduce_functions(way: str, name: str) -> None:
    """Four in five reduce functions are segment reductions; that they run so is no accident."""
    topology, reduce = small_topology(), WAYS[way][name]
    frames = random_frames(topology, {"node:h": (D,)})
    _forget(copied, reduce)
    assert_agrees(topology, frames, copied, reduce, PARAMETERS)
    assert way_of(copied, reduce) == way, reasons(copied, reduce)


def _forget(message: Any, reduce: Any) -> None:
    """All cases share the code of one lambda, and so what is known of it."""
    key = (function_key(message), function_key(reduce))
    for known in [k for k in _families if isinstance(k, tuple) and k[:2] == key]:
        del _families[known]


MESSAGES: dict[str, Callable[[Any], Tensor]] = {
    "linear of a concatenation": lambda e: SCORE(torch.cat([e.src["h"], e.dst["h"]], -1)),
    "gate": lambda e: torch.sigmoid(e.src["h"] + e.dst["h"]) * e.data["w"],
    "batch of matrices": lambda e: torch.bmm(e.src["h"].unsqueeze(1), e.data["w"].view(-1, D, 1) * WEIGHT).squeeze(1),
    "embedding": lambda e: F.embedding((e.src["h"][:, 0] > 0).long(), TABLE),
    "index of a table": lambda e: TABLE[(e.src["h"][:, 0] > 0).long()],
    "layer norm": lambda e: NORM(e.src["h"] * e.data["w"]),
    "batch norm in eval": lambda e: BATCH_NORM(e.src["h"]),
    "matrices of a table from its end": lambda e: torch.bmm(
        e.src["h"].unsqueeze(1), STACK[(e.src["h"][:, 0] > 0).long() - 1]
    ).squeeze(1),
    "numbers of a table": lambda e: e.src["h"] * TABLE[:, 0][(e.src["h"][:, 0] > 0).long()].unsqueeze(1),
    "powers in place": lambda e: (e.src["h"] * e.data["w"]).pow_(2).add_(1).float_power_(3),
    "edge ids": lambda e: e.src["h"] * e.edges()[2].unsqueeze(1),
    "ends": lambda e: e.src["h"] * (e.edges()[0] - e.edges()[1]).unsqueeze(1),
    "number of edges as a size": lambda e: torch.ones(e.batch_size(), D) * e.dst["h"],
    "scalars": lambda e: (e.src["h"] * e.dst["h"]).sum(-1),
    "mean over all edges": lambda e: e.src["h"] - e.src["h"].mean(0),
    "cumulated over edges": lambda e: e.src["h"].cumsum(0),
    "number of edges": lambda e: e.src["h"] / e.batch_size(),
    "reversed edges": lambda e: e.src["h"].flip(0),
    "constant numbers": lambda e: e.src["h"] * torch.tensor([1.0, 2.0, 3.0, 4.0]),
}
REDUCTIONS = {
    "segments": lambda v: {"o": v.mailbox["m"].sum(1)},
    "degrees": lambda v: {"o": v.mailbox["m"][:, 0] * v.mailbox["m"].shape[1]},
}


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("name", MESSAGES)
def test_message_functions(name: str, reduce: str) -> None:
    topology = small_topology()
    frames = random_frames(topology, {"node:h": (D,), "edge:w": (D,)})
    function = MESSAGES[name]
    assert_agrees(topology, frames, lambda e: {"m": function(e)}, REDUCTIONS[reduce], PARAMETERS)


@pytest.mark.parametrize("name", ["softmax", "attention", "std", "layer norm", "lstm"])
def test_one_vertex_one_edge(name: str) -> None:
    topology = Topology(torch.tensor([0]), torch.tensor([0]), 1, 1)
    frames = random_frames(topology, {"node:h": (D,)})
    assert_agrees(topology, frames, copied, {**AS_SEGMENTS, **NOT_CAPTURED}[name], PARAMETERS)


SECOND = ["several", "attention", "attention by matmul", "std", "var", "prod", "norm of order 3", "logsumexp"]


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives(name: str) -> None:
    topology = small_topology()
    frames = random_frames(topology, {"node:h": (D,)})
    x = frames["src"]["h"]

    def second(run: Callable[..., Any]) -> Tensor:
        out = run(topology, frames, copied, AS_SEGMENTS[name])["o"]
        (first,) = torch.autograd.grad((out**2).sum(), x, create_graph=True)
        return torch.autograd.grad((first**2).sum(), x)[0]

    torch.testing.assert_close(second(propagate), second(_uncaptured), rtol=1e-9, atol=1e-9)


SPREADS: dict[str, Reduce] = {
    "std": _out(lambda m, v: m.std(1)),
    "var": _out(lambda m, v: m.var(1, True)),
    "correction": _out(lambda m, v: torch.var(m, 1, correction=2)),
    "correction None": _out(lambda m, v: torch.std(m, dim=1, correction=None)),
}


@pytest.mark.filterwarnings("ignore:(var|std).*degrees of freedom")  # torch's own, of a row of one
@pytest.mark.parametrize("reduce", SPREADS.values(), ids=SPREADS)
def test_fewer_messages_than_their_spread_needs(reduce: Reduce) -> None:
    """NaN where there is one message, and infinity where more is subtracted, as torch's."""
    topology = small_topology()
    assert_agrees(topology, random_frames(topology, {"node:h": (D,)}), copied, reduce)


SPECIAL = ["torch.sum", "several", "var", "std", "logsumexp", "softmax", "log_softmax", "prod", "norm", "attention"]
INF = float("inf")


@pytest.mark.parametrize("numbers", [(float("nan"),), (INF,), (-INF, -INF), (INF, -INF, -INF), (-INF,) * 7])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_numbers_and_their_gradients(name: str, numbers: tuple[float, ...]) -> None:
    """What is not finite, and what comes back from it, is what torch gives: rows of nothing but -inf, too."""
    topology = small_topology()
    frames = random_frames(topology, {"node:h": (D,)})
    with torch.no_grad():
        for i, number in enumerate(numbers):
            frames["src"]["h"][(3 + i) % 7, :3] = number
    assert_agrees(topology, frames, copied, AS_SEGMENTS[name], PARAMETERS)


def test_outputs_without_gradient_stay_so() -> None:
    topology = small_topology()
    frames = random_frames(topology, {"node:h": (D,)})
    reduce = lambda v: {"a": v.mailbox["m"].sum(1), "b": v.mailbox["m"].sum(1).detach()}  # noqa: E731
    found, _ = outputs_and_grads(lambda: propagate(topology, frames, copied, reduce), [])
    assert found["a"].requires_grad
    assert not found["b"].requires_grad


@pytest.mark.parametrize("name", ["matrices of a table from its end", "index of a table", "numbers of a table"])
def test_rows_of_a_table_are_segments(name: str) -> None:
    """The gradient of ``table[ids]`` adds rows of edges up: nothing of it asks for all edges at once."""
    topology = small_topology()
    frames = random_frames(topology, {"node:h": (D,), "edge:w": (D,)})
    message, reduce = (lambda e: {"m": MESSAGES[name](e)}), REDUCTIONS["segments"]
    propagate(topology, frames, message, reduce)
    assert way_of(message, reduce) == "segments", reasons(message, reduce)


def _star(count: int) -> vgraph.Graph:
    return vgraph.graph((torch.arange(count), torch.zeros(count, dtype=torch.int64)))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.int32])
def test_means_of_whole_numbers_divide_by_the_number_of_slots(dtype: torch.dtype) -> None:
    g = _star(300)  # more than 8 bits count
    g.ndata["h"] = (torch.arange(300) % 3 == 0).to(dtype)
    g.update_all(fn.copy_u("h", "m"), fn.mean("m", "mean"))
    torch.testing.assert_close(g.ndata["mean"][0], torch.tensor(1 / 3))
    if dtype != torch.bool:
        g.update_all(fn.copy_u("h", "m"), lambda v: {"std": v.mailbox["m"].std(1, correction=0)})
        torch.testing.assert_close(g.ndata["std"][0], torch.tensor(2**0.5 / 3))


def test_products_of_complex_numbers_have_torchs_gradient() -> None:
    g = vgraph.graph(([0, 1, 2, 3, 4, 0], [1, 1, 1, 2, 2, 3]))

    def products(h: Tensor) -> Tensor:
        g.ndata["h"] = h
        g.update_all(fn.copy_u("h", "m"), lambda v: {"o": v.mailbox["m"].prod(1)})
        return g.ndata["o"]

    h = torch.randn(5, 2, dtype=torch.complex128)
    h[4, 0] = h[1, 1] = 0
    h.requires_grad_()
    assert torch.autograd.gradcheck(products, (h,)) and torch.autograd.gradgradcheck(products, (h,))


def test_pairs_of_all_vertices_of_one_degree_run_uncaptured() -> None:
    g = vgraph.graph(([0, 1, 1, 0, 2], [1, 2, 2, 2, 3]))
    g.ndata["h"] = torch.randn(4, 2)

    def attend(h: Tensor) -> Tensor:
        return torch.softmax(h @ h.t(), 1) @ h

    g.update_all(fn.copy_u("h", "m"), lambda nodes: {"o": attend(nodes.mailbox["m"].sum(1))})
    h, found = g.ndata["h"], g.ndata["o"]
    torch.testing.assert_close(found[[1, 3]], attend(h[[0, 2]]))
    torch.testing.assert_close(found[[0, 2]], torch.stack([h[0] * 0, h[0] + 2 * h[1]]))
