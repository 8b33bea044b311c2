"""What one process of a distributed test checks beside training; started by torchrun with names of cases."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import vgraph
import vgraph.distributed as vd
import vgraph.function as fn
import vgraph.nn as layers
from tests.distributed.in_memory import InMemory
from tests.distributed.small_graphs import heterogeneous, homogeneous
from vgraph.errors import GraphError, ModelError, VGraphError, WorkerError
from vgraph.runtime.distributed import ranks as limits
from vgraph.runtime.distributed.ranks import current_ranks

F64 = torch.float64


def divided(g: vgraph.Graph, num_parts: int = 5, seed: int = 1, digest: str = "0" * 64) -> vd.DistGraph:
    """The graph with every node in a part drawn at random."""
    draw = torch.Generator().manual_seed(seed)
    parts = {t: torch.randint(0, num_parts, (g.num_nodes(t),), generator=draw) for t in g.ntypes}
    return vd.DistGraph(InMemory(g, parts, num_parts, digest))


def same(found: Tensor, wanted: Tensor, what: str) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12, msg=lambda told: f"{what}: {told}")


def ids_and_counts() -> None:
    whole = homogeneous()
    g = divided(whole)
    own = g.orig_ids()
    assert (g.num_nodes(), g.num_edges()) == (whole.num_nodes(), whole.num_edges())
    assert (g.num_own_nodes(), g.num_own_edges()) == (len(own), len(g.edata["w"]))
    assert sum(current_ranks().gather(len(own), "test")) == whole.num_nodes()
    assert torch.equal(g.new_ids(own), g.nodes()) and torch.equal(g.orig_ids(g.nodes()), own)
    assert torch.equal(g.orig_ids(g.new_ids(torch.arange(48))), torch.arange(48))
    assert torch.equal(g.in_degrees(), whole.in_degrees()[own])
    assert torch.equal(g.out_degrees(), whole.out_degrees()[own])
    src, dst = g.edges()
    wanted = whole.find_edges(g.own_edge_ids())
    assert torch.equal(g.orig_ids(src), wanted[0]) and torch.equal(g.orig_ids(dst), wanted[1])
    given = (src, dst, *g.all_edges("all"), *g.coo(), *g.csr(), *g.csc(), g.nodes(), g.own_edge_ids(), g.in_degrees())
    assert g.idtype == torch.int64 and {ids.dtype for ids in given} == {torch.int64}
    assert g.long() is g and g.astype(torch.int64) is g
    with pytest.raises(GraphError, match="ids of a distributed graph are int64"):
        g.int()
    asked = torch.randint(0, 48, (9 if vd.rank() else 0,))
    same(g.fetch("x", asked), whole.ndata["x"][g.orig_ids(asked)], "fetch")
    assert torch.equal(g.fetch("train", g.new_ids(torch.tensor([5, 5, 0]))), whole.ndata["train"][[5, 5, 0]])


def other_layers() -> None:
    """Layers beside those that are trained; every one as on the whole."""
    whole = homogeneous()
    g = divided(whole)
    own, edges, x = g.orig_ids(), g.own_edge_ids(), whole.ndata["x"]
    w, e = whole.edata["w"], torch.randn(whole.num_edges(), 4, dtype=F64, generator=torch.Generator().manual_seed(1))
    kind, sort = whole.edata["kind"], torch.arange(48) % 2
    cases: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...], tuple[Tensor, ...]]] = {
        "weighted": (lambda: layers.GraphConv(7, 3, allow_zero_in_degree=True), (), ()),
        "gatv2": (lambda: layers.GATv2Conv(7, 3, 2, allow_zero_in_degree=True), (), ()),
        "gin": (lambda: layers.GINConv(nn.Linear(7, 3), "max"), (), ()),
        "gcn": (lambda: layers.SAGEConv(7, 3, "gcn"), (), (w,)),
        "lstm": (lambda: layers.SAGEConv(7, 3, "lstm"), (), ()),
        "gated": (lambda: layers.GatedGraphConv(7, 8, 2, 3), (), (kind,)),
        "cheb": (lambda: layers.ChebConv(7, 3, 3), (), ()),
        "tag": (lambda: layers.TAGConv(7, 3), (), (w,)),
        "edge": (lambda: layers.EdgeConv(7, 3, allow_zero_in_degree=True), (), ()),
        "nn": (lambda: layers.NNConv(7, 3, nn.Linear(4, 21), "mean"), (), (e,)),
        "hgt": (lambda: layers.HGTConv(7, 4, 2, 2, 3, dropout=0.0), (sort,), (kind,)),
    }
    for name, (make, rows, of_edges) in cases.items():
        torch.manual_seed(2)
        layer = make().double()
        wanted = layer(whole, x, *rows, *of_edges)
        found = layer(g, x[own], *(one[own] for one in rows), *(one[edges] for one in of_edges))
        same(found, wanted[own], name)
    both = layers.EdgeWeightNorm("both")
    same(both(g, w[edges]), both(whole, w)[edges], "weights")
    attention = layers.GlobalAttentionPooling(nn.Linear(7, 1)).double()
    same(attention(g, x[own]), attention(whole, x), "pooling")


def readouts() -> None:
    whole = homogeneous()
    g = divided(whole)
    own = g.orig_ids()
    for op in ("sum", "mean", "max", "min"):
        x, mine = whole.ndata["x"].clone().requires_grad_(), g.ndata["x"].clone().requires_grad_()
        whole.ndata["h"], g.ndata["h"] = x, mine
        wanted, found = (vgraph.readout_nodes(graph, "h", op=op) for graph in (whole, g))
        same(found, wanted, op)
        (slope,) = torch.autograd.grad(wanted.square().sum(), x)
        (own_slope,) = torch.autograd.grad(found.square().sum() / vd.num_ranks(), mine)
        same(own_slope, slope[own], f"gradient of {op}")
        same(vgraph.readout_edges(g, "w", op=op), vgraph.readout_edges(whole, "w", op=op), f"{op} of edges")
    same(vgraph.softmax_nodes(g, "x"), vgraph.softmax_nodes(whole, "x")[own], "softmax")
    for graph in (whole, g):
        graph.ndata["n"] = torch.ones(len(graph.ndata["x"]), 1, dtype=torch.int32)
    for op in ("sum", "mean", "max"):
        wanted, found = (vgraph.readout_nodes(graph, "n", op=op) for graph in (whole, g))
        assert found.dtype == wanted.dtype and torch.equal(found, wanted), f"{op} of whole numbers"


def many_types() -> None:
    whole = heterogeneous()
    g = divided(whole)
    for graph in (whole, g):
        for t in graph.ntypes:
            graph.nodes[t].data["h"] = graph.nodes[t].data["x"].clone().requires_grad_()
    way = (lambda edges: {"m": edges.src["h"] * 2}, fn.sum("m", "s"))
    for graph in (whole, g):
        graph.multi_update_all(dict.fromkeys(graph.canonical_etypes, way), "sum")
        (sum(graph.nodes[t].data["s"].square().sum() for t in ("paper", "venue"))).backward()
    for t in whole.ntypes:
        own = g.orig_ids(ntype=t)
        assert g.num_nodes(t) == whole.num_nodes(t)
        if t != "author":
            same(g.nodes[t].data["s"], whole.nodes[t].data["s"][own], t)
        wanted = whole.nodes[t].data["h"].grad
        found = g.nodes[t].data["h"].grad
        assert (found is None) == (wanted is None)
        if found is not None and wanted is not None:
            same(found, wanted[own], f"gradient of {t}")
    torch.manual_seed(4)
    convs = {e: layers.GraphConv(5, 3, allow_zero_in_degree=True) for e in whole.etypes}
    conv = layers.HeteroGraphConv(convs, "mean").double()
    wanted = conv(whole, {t: whole.nodes[t].data["x"] for t in whole.ntypes})
    found = conv(g, {t: g.nodes[t].data["x"] for t in g.ntypes})
    for t, rows in found.items():
        same(rows, wanted[t][g.orig_ids(ntype=t)], f"conv to {t}")


def sent_once() -> None:
    """Relations that begin at papers, or at authors, read one column: it comes once a type, not once a relation."""
    g, ranks = divided(heterogeneous()), current_ranks()
    halo = {t: sum(ranks.gather(sum(g.whole.routes[t].received), "test")) for t in g.ntypes}
    sources = {key[0] for key in g.canonical_etypes}
    once = sum(halo[t] for t in sources) * 5 * 8
    way = (lambda edges: {"m": edges.src["h"] * 2}, fn.sum("m", "s"))
    convs = {e: layers.GraphConv(5, 4, norm="none", allow_zero_in_degree=True) for e in g.etypes}
    model = layers.HeteroGraphConv(convs).double()
    functions = dict.fromkeys(g.canonical_etypes, way)
    for has_grad in (True, False):
        for asks in (lambda _: g.multi_update_all(functions, "sum"), lambda rows: model(g, rows)):
            rows = {t: g.nodes[t].data["x"].clone().requires_grad_(has_grad) for t in g.ntypes}
            for t in g.ntypes:
                g.nodes[t].data["h"] = rows[t]
            before = ranks.sent_bytes
            found = asks(rows) or {t: g.nodes[t].data["s"] for t in ("paper", "venue")}
            total = sum(out.sum() for out in found.values())
            if total.requires_grad:
                total.backward()
            assert sum(ranks.gather(ranks.sent_bytes - before, "test")) == once * (1 + has_grad)


def at_the_edges() -> None:
    """Parts without nodes, ranks without edges, a graph without edges; rounds of few bytes."""
    whole, ranks = homogeneous(), current_ranks()
    for parts in (torch.zeros(48, dtype=torch.int64), torch.full((48,), 4), (torch.arange(48) < 40) * 4):
        stored = InMemory(whole, {"_N": parts}, 5)
        g = vd.DistGraph(stored)
        x, mine = whole.ndata["x"].clone().requires_grad_(), g.ndata["x"].clone().requires_grad_()
        for make in (lambda: layers.GATConv(7, 2, 2, allow_zero_in_degree=True), lambda: layers.SAGEConv(7, 3, "lstm")):
            torch.manual_seed(2)
            layer = make().double()
            wanted, found = layer(whole, x), layer(g, mine)
            same(found, wanted[g.orig_ids()], "a layer")
            (slope,) = torch.autograd.grad(wanted.square().sum(), x)
            (own_slope,) = torch.autograd.grad(found.square().sum(), mine)
            same(own_slope, slope[g.orig_ids()], "its gradient")
    most, limits.MOST_BYTES = limits.MOST_BYTES, 300
    g, sent = divided(whole), ranks.sent_bytes
    g.update_all(fn.copy_u("x", "m"), fn.sum("m", "s"))
    whole.update_all(fn.copy_u("x", "m"), fn.sum("m", "s"))
    same(g.ndata["s"], whole.ndata["s"][g.orig_ids()], "in rounds")
    assert ranks.sent_bytes - sent == sum(g.whole.routes["_N"].sent) * 7 * 8
    limits.MOST_BYTES = most
    bare = vgraph.graph(([], []), num_nodes=6)
    bare.ndata["x"] = torch.ones(6, 2)
    g = divided(bare)
    with pytest.warns(UserWarning, match="without edges"):
        g.update_all(fn.copy_u("x", "m"), fn.sum("m", "s"))
    assert torch.equal(g.ndata["s"], torch.zeros(g.num_own_nodes(), 2))
    assert vd.mean(torch.ones(vd.rank()), torch.ones(vd.rank())).item() == 1.0 or vd.num_ranks() == 1


def numbers_of_16_bits() -> None:
    """Sums and counts of many rows are kept in 32 bits; what comes out has the dtype of what went in."""
    for dtype, tolerance in ((torch.float16, 2e-3), (torch.bfloat16, 2e-2)):
        torch.manual_seed(vd.rank())
        rows = (30 + torch.rand(4097, 3)).to(dtype).requires_grad_()
        every = torch.cat([part.float() for part in gathered(rows.detach())])
        loss = vd.mean(rows)
        assert loss.dtype == dtype
        torch.testing.assert_close(loss.float(), every.mean(), rtol=tolerance, atol=0.0)
        layer = vd.BatchNorm1d(3)
        found = layer(rows)
        assert found.dtype == dtype
        wanted = torch.nn.functional.batch_norm(every, None, None, training=True)
        mine = wanted.split(4097)[vd.rank()]
        torch.testing.assert_close(found.float(), mine, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(layer.running_mean, 0.1 * every.mean(0), rtol=1e-5, atol=0.0)
        (slope,) = torch.autograd.grad(found.sum() + loss, rows)
        assert slope.dtype == dtype
        whole = vgraph.graph(([], []), num_nodes=210_000)
        whole.ndata["x"] = torch.full((210_000, 1), 2.0, dtype=dtype)  # whose sum is beyond what 16 bits hold
        g = divided(whole)
        means, shares = vgraph.mean_nodes(g, "x"), vgraph.softmax_nodes(g, "x")
        assert means.tolist() == [[2.0]] and means.dtype == shares.dtype == dtype
        torch.testing.assert_close(
            shares.float().sum(), torch.tensor(len(shares) / whole.num_nodes()), rtol=0.1, atol=0.0
        )
    turned = torch.complex(torch.ones(2), torch.full((2,), vd.rank() + 1.0))
    assert vd.mean(turned).item() == complex(1.0, (vd.num_ranks() + 1) / 2)


def gathered(rows: Tensor) -> list[Tensor]:
    ranks = current_ranks()
    numbers = rows.float().repeat(ranks.size, 1)
    return list(ranks.all_to_all(numbers, [len(rows)] * ranks.size, [len(rows)] * ranks.size, "test").split(len(rows)))


def sparse_gradients() -> None:
    """All ranks refuse what one of them has, and no gradient is changed."""
    model = nn.Sequential(nn.Embedding(5, 2, sparse=vd.rank() == 0), nn.Linear(2, 1))
    model(torch.tensor([1, 2])).sum().backward()
    before = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    if vd.num_ranks() > 1:
        with pytest.raises(ModelError, match=r"the gradient of 0\.weight is sparse"):
            vd.all_reduce_gradients(model)
    after = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(torch.equal(one.to_dense(), other.to_dense()) for one, other in zip(before, after, strict=True))


def bytes_sent() -> None:
    """Bytes of a step are what the cost model says, as integers."""
    g, ranks = divided(homogeneous()), current_ranks()
    halo = sum(ranks.gather(sum(g.whole.routes["_N"].received), "test"))

    def sent(layer: nn.Module, x: Tensor) -> int:
        before = ranks.sent_bytes
        layer(g, x).square().sum().backward()
        return sum(ranks.gather(ranks.sent_bytes - before, "test"))

    rows = torch.ones(g.num_own_nodes(), 602)
    for norm in ("none", "both"):
        narrow = layers.GraphConv(602, 16, norm=norm, allow_zero_in_degree=True)
        assert sent(narrow, rows) == 4 * halo * (16 + 16), "GraphConv(602, 16) sends 16 columns"
    wide = layers.GraphConv(16, 602, norm="none", allow_zero_in_degree=True)
    rows = torch.ones(g.num_own_nodes(), 16)
    assert sent(wide, rows) == 4 * halo * 16, "what has no gradient has no way back"
    assert sent(wide, rows.requires_grad_()) == 4 * halo * (16 + 16)


def refusals() -> None:
    g = divided(homogeneous())
    with pytest.raises(GraphError, match="add_edges changes nodes or edges"):
        g.add_edges([0], [1])
    with pytest.raises(GraphError, match="reverse makes another graph"):
        g.reverse()
    with pytest.raises(GraphError, match="line_graph makes another graph"):
        g.line_graph()
    with pytest.raises(GraphError, match="stays as it was partitioned"):
        vgraph.add_self_loop(g)
    with pytest.raises(GraphError, match="pull passes messages along some edges"):
        g.pull([0], fn.copy_u("x", "m"), fn.sum("m", "s"))
    if vd.num_ranks() > 1:
        with pytest.raises(GraphError, match="nodes have no in-edge"):
            layers.GraphConv(7, 3).double()(g, g.ndata["x"])
        with pytest.raises(GraphError, match="a function of a vertex and its children"):
            Heights()(g, x=g.ndata["x"])
        with pytest.raises(WorkerError, match="ranks have 1 parts between them"):
            divided(homogeneous(), 1)
        with pytest.raises(WorkerError, match="different partitions"):
            divided(homogeneous(), digest=f"{vd.rank()}" * 64)


class Heights(vgraph.VertexFunction):
    def forward(self, v: vgraph.Vertex) -> None:
        v.push("h", v.pull("x"))


# ---------------------------------------------------------------- faults: told in one line, with an exit status
def out_of_step() -> None:
    g = divided(homogeneous())
    if vd.rank():
        g.update_all(fn.copy_u("x", "m"), fn.sum("m", "s"))
    else:
        vd.mean(g.ndata["x"])


def outlive_torchrun() -> None:
    """torchrun ends the other ranks as soon as one has failed; here each is to say what it sees by itself."""
    if vd.rank() != 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def killed() -> None:
    outlive_torchrun()
    g = divided(homogeneous())
    for step in range(100):
        if step == 3 and vd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        g.update_all(fn.copy_u("x", "m"), fn.sum("m", "s"))


def silent() -> None:
    outlive_torchrun()
    g = divided(homogeneous())
    if vd.rank() == 1:
        time.sleep(30)
    g.update_all(fn.copy_u("x", "m"), fn.sum("m", "s"))


def say(text: str) -> None:
    """A line by itself: ranks share one pipe, and ``print`` writes its end apart."""
    os.write(sys.stdout.fileno(), f"{text}\n".encode())


def main(*names: str) -> None:
    vd.init(timeout=4 if names[0] in ("silent", "killed") else 60)
    start = time.time()
    for name in names:
        try:
            globals()[name]()
        except VGraphError as error:
            told = str(error).replace("\n", " ")
            say(f"rank {vd.rank()} after {time.time() - start:.0f} s: {type(error).__name__}: {told}")
            os._exit(3)
        say(f"rank {vd.rank()}: {name} is right")


if __name__ == "__main__":
    main(*sys.argv[1:])
