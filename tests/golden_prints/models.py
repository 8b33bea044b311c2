"""The models whose prints are kept: written as a user writes them, on small graphs that never change.

``MODELS[name]()`` gives a model's training call: it runs the forward and gives what is differentiated, and in what.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vgraph
import vgraph.function as fn

# In-degrees 0, 0, 1, 2, 3 and 4; children shared by several parents; vertex 3 twice under 5.
DAG = ([0, 1, 0, 2, 0, 3, 1, 3, 2, 3], [2, 3, 3, 4, 4, 5, 5, 5, 5, 4])
# A vertex without in-edges, one without out-edges, a loop of two.
CYCLIC = ([0, 1, 2, 0, 3, 3, 2, 4], [1, 2, 3, 3, 1, 2, 1, 3])
TREES = ([0, 1, 2, 3, 4, 5, 7, 8], [4, 4, 5, 5, 6, 6, 9, 9])  # two, of binary vertices and leaves


@dataclass(frozen=True)
class Training:
    """What one training call gave: a loss, and the leaves of which gradients are asked.

    ``is_twice``: the second gradients are asked for, too.
    """

    loss: Tensor
    leaves: tuple[Tensor, ...]
    is_twice: bool = False


def rows(count: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A feature of which the gradient is asked."""
    return torch.randn(count, *shape, dtype=dtype).requires_grad_()


def train(
    outputs: Tensor | Mapping[str, Tensor], model: nn.Module, *leaves: Tensor, is_twice: bool = False
) -> Training:
    found = [outputs] if isinstance(outputs, Tensor) else list(outputs.values())
    loss = torch.stack([tensor.square().sum() for tensor in found]).sum()
    return Training(loss, (*leaves, *model.parameters()), is_twice)


# ---------------------------------------------------------------- messages
class GCN(nn.Module):
    """Two layers of weighted sums of neighbours (Kipf and Welling 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 20), nn.Linear(20, 3)

    def forward(self, g: vgraph.Graph, h: Tensor, weight: Tensor) -> Tensor:
        g.edata["w"] = weight
        for layer in (self.first, self.second):
            g.ndata["h"] = layer(h)
            g.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "o"))
            h = F.relu(g.ndata["o"])
        return h


class GAT(nn.Module):
    """Additive attention of several heads, of which some weights are dropped (Velickovic et al. 2018)."""

    def __init__(self, heads: int = 2, width: int = 8) -> None:
        super().__init__()
        self.shape = (heads, width)
        self.W = nn.Linear(5, heads * width, bias=False)
        self.left, self.right = (nn.Parameter(torch.randn(heads, width)) for _ in range(2))
        self.drop = nn.Dropout(0.4)

    def message(self, edges: Any) -> dict[str, Tensor]:
        return {"score": F.leaky_relu(edges.src["l"] + edges.dst["r"], 0.2), "z": edges.src["z"]}

    def reduce(self, nodes: Any) -> dict[str, Tensor]:
        weight = self.drop(torch.softmax(nodes.mailbox["score"], 1))
        return {"h": F.elu((weight * nodes.mailbox["z"]).sum(1))}

    def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
        z = self.W(x).view(-1, *self.shape)
        g.ndata["z"] = z
        g.ndata["l"], g.ndata["r"] = (z * self.left).sum(-1, keepdim=True), (z * self.right).sum(-1, keepdim=True)
        g.update_all(self.message, self.reduce)
        return g.ndata["h"]


class Gated(nn.Module):
    """Gates made of both ends and the edge, and a sum that is divided by theirs (Bresson and Laurent 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.A, self.B, self.C, self.D = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(3, 12), nn.Linear(12, 12)

    def message(self, edges: Any) -> dict[str, Tensor]:
        gate = torch.sigmoid(self.A(edges.src["h"]) + self.B(edges.dst["h"]) + self.C(edges.data["e"]))
        return {"gate": gate, "m": gate * self.D(edges.src["h"])}

    def reduce(self, nodes: Any) -> dict[str, Tensor]:
        return {"o": nodes.mailbox["m"].sum(1) / (nodes.mailbox["gate"].sum(1) + 1e-6)}

    def forward(self, g: vgraph.Graph, h: Tensor, e: Tensor) -> Tensor:
        g.ndata["h"], g.edata["e"] = h, e
        g.update_all(self.message, self.reduce)
        return h + torch.relu(g.ndata["o"])


class PNA(nn.Module):
    """Several statistics of a message side by side, scaled by the in-degree (Corso et al. 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.M, self.U = nn.Linear(2 * 6, 6), nn.Linear(5 * 6, 4)
        self.double()

    def message(self, edges: Any) -> dict[str, Tensor]:
        return {"m": torch.tanh(self.M(torch.cat([edges.src["h"], edges.dst["h"]], -1)))}

    def reduce(self, nodes: Any) -> dict[str, Tensor]:
        m = nodes.mailbox["m"]
        mean = m.mean(1)
        spread = torch.sqrt(F.relu((m * m).mean(1) - mean * mean) + 1e-5)
        return {"o": torch.cat([mean, m.max(1).values, m.amin(1), spread], -1)}

    def forward(self, g: vgraph.Graph, h: Tensor) -> Tensor:
        g.ndata["h"] = h
        g.update_all(self.message, self.reduce)
        scale = torch.log(g.in_degrees().to(h.dtype) + 1).unsqueeze(1)
        return self.U(torch.cat([h, g.ndata["o"] * scale], -1))


class Attention(nn.Module):
    """Scaled products of queries and keys, softmax over the mailbox (Vaswani et al. 2017)."""

    def __init__(self, heads: int = 2, width: int = 4) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.qkv = nn.Linear(7, 3 * heads * width)

    def message(self, edges: Any) -> dict[str, Tensor]:
        score = (edges.src["k"] * edges.dst["q"]).sum(-1, keepdim=True) / math.sqrt(self.width)
        return {"score": score + edges.data["bias"], "v": edges.src["v"]}

    def reduce(self, nodes: Any) -> dict[str, Tensor]:
        weight = F.softmax(nodes.mailbox["score"], dim=1)
        return {"h": (weight * nodes.mailbox["v"]).sum(1)}

    def forward(self, g: vgraph.Graph, x: Tensor, bias: Tensor) -> Tensor:
        g.edata["bias"] = bias
        for name, part in zip("qkv", self.qkv(x).view(-1, 3 * self.heads, self.width).chunk(3, 1), strict=True):
            g.ndata[name] = part
        g.update_all(self.message, self.reduce)
        return g.ndata["h"]


class EdgeNetwork(nn.Module):
    """Each message is the sender's row times a matrix made of the edge (Gilmer et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4 * 5))
        self.update = nn.GRUCell(5, 4)
        self.bfloat16()

    def message(self, edges: Any) -> dict[str, Tensor]:
        matrix = self.net(edges.data["e"]).view(-1, 4, 5)
        return {"m": (edges.src["h"].unsqueeze(-1) * matrix).sum(1)}

    def forward(self, g: vgraph.Graph, h: Tensor, e: Tensor) -> Tensor:
        g.ndata["h"], g.edata["e"] = h, e
        g.update_all(self.message, fn.mean("m", "o"))
        return self.update(g.ndata["o"], h)


class Relations(nn.Module):
    """A matrix for each type of edges, what arrives along all of them added (Schlichtkrull et al. 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.W = nn.ModuleDict({name: nn.Linear(6, 5) for name in ("follows", "plays", "makes")})

    def forward(self, g: vgraph.Graph, user: Tensor, maker: Tensor) -> dict[str, Tensor]:
        ways = {}
        for _, name, _ in g.canonical_etypes:
            source = maker if name == "makes" else user
            g.nodes["maker" if name == "makes" else "user"].data[name] = self.W[name](source)
            ways[name] = (fn.copy_u(name, "m"), fn.max("m", "h") if name == "plays" else fn.mean("m", "h"))
        g.multi_update_all(ways, "sum")
        return {kind: torch.tanh(g.nodes[kind].data["h"]) for kind in ("user", "game")}


# ---------------------------------------------------------------- vertex functions
class ChildSum(vgraph.VertexFunction):
    """The Tree-LSTM of any number of children, without order (Tai et al. 2015)."""

    def __init__(self, in_size: int = 6, size: int = 10) -> None:
        super().__init__()
        self.W, self.U = nn.Linear(in_size, 3 * size), nn.Linear(size, 3 * size, bias=False)
        self.Wf, self.Uf = nn.Linear(in_size, size), nn.Linear(size, size, bias=False)

    def forward(self, v: vgraph.Vertex) -> None:
        child, x = v.gather(), v.pull("x")
        i, o, u = (self.W(x) + self.U(child["h"].sum())).chunk(3, -1)
        f = torch.sigmoid(self.Wf(x) + self.Uf(child["h"]))
        c = torch.sigmoid(i) * torch.tanh(u) + (f * child["c"]).sum()
        h = torch.sigmoid(o) * torch.tanh(c)
        v.scatter(h=h, c=c)
        v.push(h=h)


class Binary(vgraph.VertexFunction):
    """The Tree-LSTM of two children in order, each with matrices of its own; words stand at leaves."""

    def __init__(self, size: int = 8) -> None:
        super().__init__(states={"h": size, "c": size})
        self.W, self.U = nn.Linear(5, 3 * size), nn.Linear(2 * size, 5 * size, bias=False)

    def forward(self, v: vgraph.Vertex) -> None:
        left, right = v.gather(0, default=0.0), v.gather(1, default=0.0)
        *gates, f, g = self.U(torch.cat([left["h"], right["h"]], -1)).chunk(5, -1)
        i, o, u = (mine + theirs for mine, theirs in zip(self.W(v.pull("x")).chunk(3, -1), gates, strict=True))
        c = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(f) * left["c"] + torch.sigmoid(g) * right["c"]
        h = torch.sigmoid(o) * torch.tanh(c)
        v.scatter(h=h, c=c)
        v.push(h=h)


class LSTM(vgraph.VertexFunction):
    """A long short-term memory over chains, whose outputs are scaled."""

    def __init__(self, size: int = 4) -> None:
        super().__init__(states={"h": size, "c": size})
        self.cell, self.scale = nn.LSTMCell(3, size), nn.Parameter(torch.ones(size))

    def forward(self, v: vgraph.Vertex) -> None:
        before = v.gather(0, default=0.0)
        h, c = self.cell(v.pull("x"), (before["h"], before["c"]))
        v.scatter(h=h, c=c)
        v.push(y=self.scale * h)


class Attentive(vgraph.VertexFunction):
    """Children weighed by a softmax, and an output that no parent sees."""

    def __init__(self, size: int = 6) -> None:
        super().__init__()
        self.W, self.U, self.out = nn.Linear(size, size), nn.Linear(size, size), nn.Linear(size, 3)
        self.score = nn.Linear(size, 1)

    def forward(self, v: vgraph.Vertex) -> None:
        child = v.gather()
        weight = self.score(child["h"]).softmax()
        h = torch.tanh(self.W(v.pull("x")) + (weight * self.U(child["h"])).sum())
        v.scatter(h=h)
        v.push(y=self.out(h))


class Gate(vgraph.VertexFunction):
    """What passes of the children's mean: small, as its second derivatives are kept, too."""

    def __init__(self) -> None:
        super().__init__()
        self.W = nn.Linear(4, 4, bias=False)

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(v.pull("x") + torch.sigmoid(self.W(v.gather()["h"].mean())))
        v.scatter(h=h)
        v.push(h=h)


class Word(vgraph.VertexFunction):
    """A leaf, of type 0."""

    def __init__(self) -> None:
        super().__init__()
        self.W = nn.Linear(4, 4)

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(self.W(v.pull("x")))
        v.scatter(h=h)
        v.push(h=h)


class Phrase(vgraph.VertexFunction):
    """What joins children, of types 1 and 2; ``function`` of their sum."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.W, self.function = nn.Linear(4, 4), function

    def forward(self, v: vgraph.Vertex) -> None:
        h = self.function(self.W(v.gather()["h"].sum()) + v.pull("x"))
        v.scatter(h=h)
        v.push(h=h)


# ---------------------------------------------------------------- training calls
def gcn() -> Training:
    model, h, weight = GCN(), rows(5, 16), torch.rand(8, 1)
    return train(model(vgraph.graph(CYCLIC, num_nodes=5), h, weight), model, h)


def gat_dropout() -> Training:
    model, x = GAT(), rows(5, 5)
    return train(model(vgraph.graph(CYCLIC, num_nodes=5), x), model, x)


def gated() -> Training:
    model, h, e = Gated(), rows(5, 12), rows(8, 3)
    return train(model(vgraph.graph(CYCLIC, num_nodes=5), h, e), model, h, e)


def pna() -> Training:
    model, h = PNA(), rows(5, 6, dtype=torch.float64)
    return train(model(vgraph.graph(CYCLIC, num_nodes=5), h), model, h)


def mailbox_softmax() -> Training:
    model, x, bias = Attention(), rows(5, 7), rows(8, 2, 1)
    return train(model(vgraph.graph(CYCLIC, num_nodes=5), x, bias), model, x, bias)


def edge_network() -> Training:
    model, h, e = EdgeNetwork(), rows(5, 4, dtype=torch.bfloat16), rows(8, 3, dtype=torch.bfloat16)
    return train(model(vgraph.graph(CYCLIC, num_nodes=5), h, e), model, h, e)


def heterograph() -> Training:
    edges = {
        ("user", "follows", "user"): ([0, 1, 1], [1, 2, 0]),
        ("user", "plays", "game"): ([0, 2, 2], [1, 0, 1]),
        ("maker", "makes", "game"): ([0, 1], [1, 1]),
    }
    g = vgraph.heterograph(edges, {"user": 3, "game": 2, "maker": 2})
    model, user, maker = Relations(), rows(3, 6), rows(2, 6)
    return train(model(g, user, maker), model, user, maker)


def child_sum() -> Training:
    model, x = ChildSum(), rows(7, 6)
    return train(model(vgraph.graph(DAG, num_nodes=7), x=x), model, x)


def n_ary() -> Training:
    model, words = Binary(), rows(6, 5)
    return train(model(vgraph.graph(TREES), x=vgraph.at(words, torch.tensor([0, 1, 2, 3, 7, 8]))), model, words)


def lstm_chain() -> Training:
    model, x = LSTM(), rows(6, 3)
    return train(model(vgraph.graph(([0, 1, 2, 4], [1, 2, 3, 5])), x=x), model, x)


def child_attention() -> Training:
    model, x = Attentive(), rows(7, 6)
    return train(model(vgraph.graph(DAG, num_nodes=7), x=x), model, x)


def twice() -> Training:
    model, x = Gate(), rows(7, 4)
    return train(model(vgraph.graph(DAG, num_nodes=7), x=x), model, x, is_twice=True)


def by_type() -> Training:
    model, x = vgraph.ByType({0: Word(), 1: Phrase(torch.tanh), 2: Phrase(torch.relu)}), rows(10, 4)
    types = torch.tensor([0, 0, 0, 0, 1, 2, 1, 0, 0, 2])
    return train(model(vgraph.graph(TREES), x=x, type=types), model, x)


MODELS: dict[str, Callable[[], Training]] = {
    model.__name__: model
    for model in (
        gcn, gat_dropout, gated, pna, mailbox_softmax, child_sum, n_ary, lstm_chain, child_attention, twice, by_type,
        heterograph, edge_network,
    )
}  # fmt: skip
