"""Functions whose kernels take every form that there is: each gives tensors that all processors must agree on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import vgraph
import vgraph.function as fn
from tests.runtime.engine_models import GRAPHS, MODELS, features, outcome
from vgraph.sampling import sample_neighbors

NUM_NODES, NUM_EDGES = 30, 200


def a_graph() -> vgraph.Graph:
    src, dst = torch.randint(NUM_NODES, (NUM_EDGES,)), torch.randint(NUM_NODES - 2, (NUM_EDGES,))
    dst[: NUM_EDGES // 2] = 0  # a hub
    return vgraph.graph((src, dst), num_nodes=NUM_NODES)


def messages(
    message: Callable[[Any], Tensor], reduce: Callable[[Any], Tensor], dtype: torch.dtype, width: int = 5
) -> list[Tensor]:
    """What comes of sending and of its derivative."""
    g = a_graph()
    h, w = torch.randn(NUM_NODES, width).to(dtype), torch.randn(NUM_EDGES, 1).to(dtype)
    g.ndata["h"], g.edata["w"] = (t.requires_grad_() for t in (h, w))
    g.update_all(lambda e: {"m": message(e)}, lambda v: {"o": reduce(v.mailbox["m"])})
    out = g.ndata["o"]
    weights = torch.linspace(0.5, 1.5, out.numel()).view(out.shape).to(dtype)
    return [out.detach(), *torch.autograd.grad(out, [h, w], weights)]


def gated(e: Any) -> Tensor:
    return torch.sigmoid(e.src["h"] + e.dst["h"]) * torch.tanh(e.src["h"]) * e.data["w"]


def spread(m: Tensor) -> Tensor:
    return torch.cat([m.sum(1), m.mean(1), m.amax(1), m.min(1).values, (m * 0.1 + 1).prod(1), m.logsumexp(1)], 1)


def attention(m: Tensor) -> Tensor:
    return (m[:, :, :1].softmax(1) * m).sum(1)


def functions(e: Any) -> Tensor:
    x = e.src["h"] * e.data["w"]
    return torch.erf(x) + torch.sin(x) * torch.cos(x) + torch.expm1(x.abs() * 0.1) + torch.log1p(x.abs()) + F.gelu(x)


def products(dtype: torch.dtype) -> list[Tensor]:
    """Rows times matrices that stay in the nearest cache, and the sums of outer products behind them."""
    weight = torch.randn(8, 8, dtype=dtype).requires_grad_()
    g = a_graph()
    h = torch.randn(NUM_NODES, 8, dtype=dtype).requires_grad_()
    g.ndata["h"] = h
    g.update_all(lambda e: {"m": F.relu((e.src["h"] - e.dst["h"]) @ weight)}, fn.sum("m", "o"))
    return [g.ndata["o"].detach(), *torch.autograd.grad(g.ndata["o"].square().sum(), [h, weight])]


def large_products() -> list[Tensor]:
    """By vgraph's own products, with their panels and blocks, and over a great depth."""
    x, weight = torch.randn(700, 90).requires_grad_(), torch.randn(50, 90).requires_grad_()
    out = vgraph.linear(x, weight, None)
    deep = vgraph.linear(torch.randn(6, 20_000), torch.randn(7, 20_000), None)
    return [out.detach(), deep, *torch.autograd.grad(out.square().sum(), [x, weight])]


def loop(name: str, graph: str, dtype: torch.dtype) -> list[Tensor]:
    """Frontier by frontier."""
    g = GRAPHS[graph]()
    return outcome(MODELS[name]().to(dtype), g, features(g, dtype))


def reduced() -> list[Tensor]:
    """Any subset of a tensor's dims."""
    x = torch.rand(6, 33, 4, 70)
    every = [vgraph.reduce(x, dims, op) for dims in ((1,), (0, 2), (3,), (1, 3)) for op in ("sum", "max")]
    return [*every, vgraph.reduce([x, x.bfloat16()], (0, 3), of=lambda a, b: a * b.float(), then=torch.sqrt)]


def drawn() -> list[Tensor]:
    """Random numbers by row."""
    g = a_graph()
    g.ndata["h"] = torch.ones(NUM_NODES, 9)
    g.update_all(lambda e: {"m": F.dropout(e.src["h"], 0.4)}, fn.sum("m", "o"))
    g.apply_edges(lambda e: {"r": e.src["h"] * torch.rand_like(e.dst["h"]) + torch.randn_like(e.src["h"])})
    return [g.ndata["o"], g.edata["r"]]


def sampled() -> list[Tensor]:
    g = a_graph()
    found = sample_neighbors(g, torch.arange(20), 4)
    return [torch.stack(found.edges())]


FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)

CASES: dict[str, Callable[[], list[Tensor]]] = {
    **{f"segments {dtype}": lambda dtype=dtype: messages(gated, spread, dtype) for dtype in FLOATS},
    **{f"softmax {dtype}": lambda dtype=dtype: messages(gated, attention, dtype, 17) for dtype in FLOATS[:2]},
    "functions float32": lambda: messages(functions, lambda m: m.sum(1), torch.float32),
    "functions float64": lambda: messages(functions, lambda m: m.sum(1), torch.float64),
    "products float32": lambda: products(torch.float32),
    "products float64": lambda: products(torch.float64),
    "large products": large_products,
    "child-sum trees": lambda: loop("child-sum", "trees", torch.float32),
    "gru dag": lambda: loop("gru", "dag", torch.float64),
    "attentive dag": lambda: loop("attentive", "dag", torch.float32),
    "chains": lambda: loop("gru", "chains", torch.float32),
    "reductions": reduced,
    "random numbers": drawn,
    "sampling": sampled,
}
EXACT = {"sampling", "random numbers", "reductions"}  # no product is added: the same bits, in vectors as long
