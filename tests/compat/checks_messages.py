"""Checks of messages, batches, layers and data; see ``checks.py``."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import dgl
import dgl.function as fn
import torch
from samples import applied, check, pair, simple, typed


# ---------------------------------------------------------------- functions of edges and nodes
@check("g.update_all", "dgl.function.sum", "dgl.function.copy_u")
def _() -> Any:
    return applied(simple(), fn.copy_u("h", "m"), fn.sum("m", "out"))


@check("dgl.function.copy_e", "dgl.function.mean")
def _() -> Any:
    return applied(simple(), fn.copy_e("w", "m"), fn.mean("m", "out"))


@check("dgl.function.u_mul_e", "dgl.function.max")
def _() -> Any:
    return applied(simple(), fn.u_mul_e("h", "w", "m"), fn.max("m", "out"))


@check("g.apply_edges", "dgl.function.u_add_v", "dgl.function.u_dot_v")
def _() -> Any:
    g = simple()
    g.apply_edges(fn.u_add_v("h", "h", "a"))
    g.apply_edges(fn.u_dot_v("h", "h", "d"))
    g.apply_edges(lambda edges: {"c": torch.cat([edges.src["h"], edges.dst["h"], edges.data["w"]], 1)})
    return g.edata["a"], g.edata["d"], g.edata["c"]


@check("edges.src", "edges.dst", "edges.data", "nodes.mailbox", "nodes.data")
def _() -> Any:
    g = simple()

    def message(edges: Any) -> dict[str, torch.Tensor]:
        return {"m": edges.src["h"] * edges.data["w"] - edges.dst["h"]}

    def reduce(nodes: Any) -> dict[str, torch.Tensor]:
        weights = torch.softmax(nodes.mailbox["m"], 1)
        return {"out": (weights * nodes.mailbox["m"]).sum(1) + nodes.data["h"] * nodes.mailbox["m"].shape[1]}

    return applied(g, message, reduce)


@check("g.apply_nodes")
def _() -> Any:
    g = simple()
    g.apply_nodes(lambda nodes: {"x": nodes.data["h"].sum(1)})
    g.apply_nodes(lambda nodes: {"x": -nodes.data["x"]}, v=[1, 2])
    return g.ndata["x"]


@check("g.send_and_recv", "g.pull", "g.push")
def _() -> Any:
    results = []
    for run in (
        lambda g: g.send_and_recv([0, 2], fn.copy_u("h", "m"), fn.sum("m", "h")),
        lambda g: g.send_and_recv(([0, 3], [2, 3]), fn.copy_u("h", "m"), fn.sum("m", "h")),
        lambda g: g.pull([2, 0], fn.copy_u("h", "m"), fn.sum("m", "h")),
        lambda g: g.push([1], fn.copy_u("h", "m"), fn.max("m", "h")),
    ):
        g = dgl.to_simple(simple(), return_counts=None)
        run(g)
        results.append(g.ndata["h"])
    return results


@check("g.multi_update_all")
def _() -> Any:
    g = typed()
    g.multi_update_all(
        {"f": (fn.copy_u("h", "m"), fn.sum("m", "s")), "p": (fn.copy_u("h", "m"), fn.mean("m", "s"))}, "sum"
    )
    return g.nodes["u"].data["s"], g.nodes["g"].data["s"]


@check("dgl.prop_nodes", "dgl.prop_edges", "dgl.prop_nodes_topo")
def _() -> Any:
    results = []
    for run in (
        lambda g, f: dgl.prop_nodes(g, [[1, 2], [3], [4]], *f, None),
        lambda g, f: dgl.prop_edges(g, [[0, 1], [2, 3], [4]], *f, None),
        lambda g, f: dgl.prop_nodes_topo(g, *f, apply_node_func=None),
    ):
        g = dgl.graph(([0, 0, 1, 2, 3], [1, 2, 3, 3, 4]))
        g.ndata["h"] = torch.tensor([[1.0], [0.0], [0.0], [0.0], [0.0]])
        run(g, (lambda edges: {"m": edges.src["h"]}, lambda nodes: {"h": nodes.mailbox["m"].sum(1)}))
        results.append(g.ndata["h"])
    return results


# ---------------------------------------------------------------- batches
@check("dgl.batch", "dgl.unbatch", "g.batch_size", "g.batch_num_nodes", "g.batch_num_edges")
def _() -> Any:
    g = pair()
    parts = dgl.unbatch(g)
    return g.batch_size, g.batch_num_nodes(), g.batch_num_edges(), g.edges(), g.ndata["h"], [p.edges() for p in parts]


@check("dgl.sum_nodes", "dgl.mean_nodes", "dgl.max_nodes", "dgl.readout_nodes")
def _() -> Any:
    g = pair()
    g.ndata["a"] = torch.arange(8.0).view(8, 1)
    return (
        dgl.sum_nodes(g, "h"), dgl.mean_nodes(g, "h"), dgl.max_nodes(g, "h"), dgl.sum_nodes(g, "h", "a"),
        dgl.readout_nodes(g, "h", op="min"),
    )  # fmt: skip


@check("dgl.broadcast_nodes", "dgl.softmax_nodes", "dgl.softmax_edges", "dgl.topk_nodes")
def _() -> Any:
    g = pair()
    return (
        dgl.broadcast_nodes(g, torch.eye(2)), dgl.softmax_nodes(g, "h"), dgl.softmax_edges(g, "w"),
        dgl.topk_nodes(g, "h", 2), dgl.topk_nodes(g, "h", 2, sortby=0)[0],
    )  # fmt: skip


# ---------------------------------------------------------------- layers: same seed, same numbers
def layer(make: Callable[[], Any], *given: Any, graph: Any = None) -> Any:
    torch.manual_seed(0)
    module = make()
    shapes = {name: list(value.shape) for name, value in module.state_dict().items()}
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in module.parameters():
            value.copy_(torch.rand(value.shape, generator=generator) - 0.5)
    g = dgl.add_self_loop(simple()) if graph is None else graph
    return shapes, module(g, *given)


H = torch.arange(10.0).view(5, 2) / 10


@check("dgl.nn.GraphConv")
def _() -> Any:
    return layer(lambda: dgl.nn.GraphConv(2, 3), H)


@check("dgl.nn.GATConv")
def _() -> Any:
    return layer(lambda: dgl.nn.GATConv(2, 3, num_heads=2), H)


@check("dgl.nn.SAGEConv")
def _() -> Any:
    return [layer(lambda kind=kind: dgl.nn.SAGEConv(2, 3, kind), H) for kind in ("mean", "gcn", "pool")]


@check("dgl.nn.GINConv")
def _() -> Any:
    return layer(lambda: dgl.nn.GINConv(torch.nn.Linear(2, 3), "max"), H)


@check("dgl.nn.NNConv")
def _() -> Any:
    return layer(lambda: dgl.nn.NNConv(2, 3, torch.nn.Linear(1, 6), "mean"), H, torch.ones(10, 1))


@check("dgl.nn.EdgeWeightNorm")
def _() -> Any:
    return dgl.nn.EdgeWeightNorm("both")(dgl.add_self_loop(simple()), torch.arange(1.0, 11.0))


@check("dgl.nn.edge_softmax")
def _() -> Any:
    return dgl.nn.functional.edge_softmax(simple(), torch.arange(5.0).view(5, 1))


@check("dgl.nn.AvgPooling", "dgl.nn.MaxPooling", "dgl.nn.SumPooling")
def _() -> Any:
    g = pair()
    return [pool()(g, g.ndata["h"]) for pool in (dgl.nn.AvgPooling, dgl.nn.MaxPooling, dgl.nn.SumPooling)]


@check("dgl.nn.Set2Set")
def _() -> Any:
    g = pair()
    return layer(lambda: dgl.nn.Set2Set(2, 2, 1), g.ndata["h"], graph=g)


@check("dgl.nn.HeteroGraphConv")
def _() -> Any:
    g = typed()
    parts = {name: dgl.nn.GraphConv(2, 2, norm="none", allow_zero_in_degree=True) for name in g.etypes}
    conv = dgl.nn.HeteroGraphConv(parts, aggregate="sum")
    for value in conv.parameters():
        torch.nn.init.constant_(value, 0.5)
    return conv(g, {"u": g.nodes["u"].data["h"], "g": torch.ones(2, 2)})


# ---------------------------------------------------------------- the rest
@check("dgl.ops", "dgl.ops.segment_reduce")
def _() -> Any:
    g = simple()
    return (
        dgl.ops.u_mul_e_sum(g, g.ndata["h"], g.edata["w"]), dgl.ops.copy_u_max(dgl.add_self_loop(g), g.ndata["h"]),
        dgl.ops.u_add_v(g, g.ndata["h"], g.ndata["h"]), dgl.ops.edge_softmax(g, g.edata["w"]),
        dgl.ops.segment_reduce(torch.tensor([2, 3]), g.ndata["h"], "mean"),
        dgl.ops.gspmm(g, "mul", "sum", g.ndata["h"], g.edata["w"]),
    )  # fmt: skip


@check("dgl.backend")
def _() -> Any:
    import dgl.backend as F

    x = F.tensor([[1.0, 2.0], [3.0, 4.0]])
    return (
        F.sum(x, 0), F.asnumpy(F.mean(x, 1)).tolist(), F.cat([x, x], 0), str(F.dtype(x)), F.shape(x),
        F.zeros((2,), F.float32, F.cpu()), F.gather_row(x, F.tensor([1])), str(F.cpu()), F.astype(x, F.int64),
        F.arange(0, 3, F.int64, F.cpu()), F.stack([x, x], 0),
    )  # fmt: skip


@check("dgl.save_graphs", "dgl.load_graphs")
def _() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graphs.bin")
        dgl.save_graphs(path, [simple(), typed()], {"y": torch.tensor([1, 2])})
        graphs, labels = dgl.load_graphs(path)
        (only,), _ = dgl.load_graphs(path, [1])
    return graphs[0].edges(), graphs[0].ndata["h"], labels, only.canonical_etypes


@check("dgl.data.DGLDataset")
def _() -> Any:
    class Mine(dgl.data.DGLDataset):
        def __init__(self) -> None:
            super().__init__(name="mine")

        def process(self) -> None:
            self.graphs = [simple(), simple()]

        def __getitem__(self, idx: int) -> Any:
            return self.graphs[idx]

        def __len__(self) -> int:
            return len(self.graphs)

    data = Mine()
    return len(data), data[1].edges(), data.name


@check("dgl.data.get_download_dir")
def _() -> Any:
    return isinstance(dgl.data.get_download_dir(), str)


@check("dgl.utils.expand_as_pair")
def _() -> Any:
    block, x = dgl.to_block(simple()), torch.arange(4.0)
    return dgl.utils.expand_as_pair(x), dgl.utils.expand_as_pair((x, x + 1)), dgl.utils.expand_as_pair(x, block)


# ---------------------------------------------------------------- sampling: everything, so that nothing is random
@check("dgl.dataloading.DataLoader", "dgl.dataloading.MultiLayerFullNeighborSampler")
def _() -> Any:
    g = simple()
    loader = dgl.dataloading.DataLoader(
        g, torch.tensor([2, 0]), dgl.dataloading.MultiLayerFullNeighborSampler(2), batch_size=1, shuffle=False
    )
    return [
        (sorted(inputs.tolist()), outputs, [sorted(b.srcdata["_ID"][b.edges()[0].long()].tolist()) for b in blocks])
        for inputs, outputs, blocks in loader
    ]


@check("dgl.dataloading.NeighborSampler")
def _() -> Any:
    g = simple()
    sampler = dgl.dataloading.NeighborSampler([-1])
    inputs, outputs, blocks = sampler.sample(g, torch.tensor([2]))
    return sorted(inputs.tolist()), outputs, blocks[0].num_edges(), blocks[0].num_dst_nodes()


@check("dgl.dataloading.GraphDataLoader")
def _() -> Any:
    graphs = [(simple(), torch.tensor(i)) for i in range(3)]
    return [(g.batch_num_nodes(), y) for g, y in dgl.dataloading.GraphDataLoader(graphs, batch_size=2)]


@check("dgl.sampling.random_walk")
def _() -> Any:
    ring = dgl.graph(([0, 1, 2], [1, 2, 0]))
    return dgl.sampling.random_walk(ring, torch.tensor([0, 2]), length=4)


# ---------------------------------------------------------------- what DGL cannot show without a network or a library
ONLY_HERE = ("g.adj", "dgl.data.download", "dgl.data.CoraGraphDataset", "dgl.data.PubmedGraphDataset")


@check("g.adj")
def _() -> Any:
    g = simple()
    dense = torch.zeros(5, 5)
    for u, v in zip(*(end.tolist() for end in g.edges()), strict=True):
        dense[u, v] += 1
    found = g.adj()
    assert torch.equal(found.to_dense(), dense)
    assert torch.equal(g.adjacency_matrix(transpose=True).to_dense(), dense.T)
    assert torch.equal(found @ torch.ones(5, 1), dense.sum(1, keepdim=True))
    return True


@check("dgl.data.download")
def _() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        open(os.path.join(folder, "there.txt"), "w").close()
        assert dgl.data.download("http://x/there.txt", folder) == os.path.join(folder, "there.txt")
        try:
            dgl.data.download("http://x/missing.txt", folder)
        except dgl.DGLError as error:
            assert "downloads nothing" in str(error)
            return True
    return False


def citations(kind: Any, name: str) -> bool:
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        np.savez(
            os.path.join(folder, f"{name}.npz"), feat_indptr=[0, 1, 2], feat_indices=[0, 1], feat_shape=[2, 2],
            feat_data=np.ones(2, np.float32), label=[0, 1], has_label=[True, True], src=[0, 1], dst=[1, 0],
            train_mask=[True, False], val_mask=[False, True], test_mask=[False, False],
        )  # fmt: skip
        data = kind(raw_dir=folder)
        g = data[0]
    assert (len(data), data.num_classes, g.num_nodes(), g.num_edges()) == (1, 2, 2, 2)
    return g.ndata["feat"].shape == (2, 2) and "train_mask" in g.ndata


@check("dgl.data.CoraGraphDataset")
def _() -> Any:
    return citations(dgl.data.CoraGraphDataset, "cora")


@check("dgl.data.PubmedGraphDataset")
def _() -> Any:
    return citations(dgl.data.PubmedGraphDataset, "pubmed")
