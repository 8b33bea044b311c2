"""Checks of names beyond those that were counted; see ``checks.py``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import dgl
import torch
from samples import check, simple, typed
from torch import nn


def ends(g: Any) -> Any:
    """Edges in a canonical order: which nodes are joined, not in what order they were found."""
    return sorted(zip(*(end.tolist() for end in g.edges()), strict=True)), g.num_nodes()


POINTS = torch.tensor([[0.0, 0.0], [1.0, 0.1], [3.0, 0.3], [3.5, 4.0], [0.2, 4.5]])


@check("g.filter_nodes")
def _() -> Any:
    g, t = simple(), typed()
    large = g.filter_nodes(lambda nodes: nodes.data["h"][:, 0] > 3)
    some = g.filter_nodes(lambda nodes: (nodes.data["h"] > 3).all(1), nodes=torch.tensor([4, 1, 2]))
    return large, some, t.filter_nodes(lambda nodes: nodes.data["h"][:, 0] > 1, ntype="u")


@check("g.filter_edges")
def _() -> Any:
    g = simple()
    some = g.filter_edges(lambda edges: edges.src["h"][:, 0] < edges.dst["h"][:, 0], edges=torch.tensor([3, 2, 0]))
    return g.filter_edges(lambda edges: edges.data["w"][:, 0] > 2), some


@check("dgl.knn_graph", "dgl.nn.KNNGraph")
def _() -> Any:
    near = [
        ends(dgl.knn_graph(POINTS, 2, exclude_self=own, dist=dist)) for own in (False, True) for dist in ("euclidean",)
    ]
    return near, ends(dgl.nn.KNNGraph(3)(POINTS)), dgl.knn_graph(torch.stack([POINTS, -POINTS]), 2).batch_size


@check("dgl.segmented_knn_graph")
def _() -> Any:
    return ends(dgl.segmented_knn_graph(POINTS, 2, [2, 3]))


@check("dgl.radius_graph")
def _() -> Any:
    g, apart = dgl.radius_graph(POINTS, 3.2, get_distances=True)
    return ends(g), apart.sort(0).values, ends(dgl.radius_graph(POINTS, 3.2, self_loop=True))


@check("dgl.norm_by_dst")
def _() -> Any:
    return dgl.norm_by_dst(simple()), dgl.norm_by_dst(typed(), etype="p")


@check("dgl.random_walk_pe", "dgl.RandomWalkPE")
def _() -> Any:
    g = dgl.graph(([0, 1, 1, 2], [1, 0, 2, 1]))
    return dgl.random_walk_pe(g, 3), dgl.RandomWalkPE(2)(g).ndata["PE"]


@check("dgl.lap_pe")
def _() -> Any:
    g = dgl.graph(([0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]))
    return dgl.lap_pe(g, 2).abs(), dgl.lap_pe(g, 5, padding=True).shape


@check("dgl.laplacian_lambda_max")
def _() -> Any:
    g = dgl.graph(([0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]))
    return torch.tensor(dgl.laplacian_lambda_max(dgl.batch([g, g])), dtype=torch.float64)


@check("dgl.nn.JumpingKnowledge")
def _() -> Any:
    rows = [torch.arange(6.0).view(2, 3), torch.ones(2, 3)]
    lstm = dgl.nn.JumpingKnowledge("lstm", 3, 2)
    for parameter in lstm.parameters():
        nn.init.constant_(parameter, 0.1)
    names = sorted(lstm.state_dict())
    return dgl.nn.JumpingKnowledge()(rows), dgl.nn.JumpingKnowledge("max")(rows), lstm(rows), names


@check("dgl.nn.Sequential")
def _() -> Any:
    class Twice(nn.Module):
        def forward(self, g: Any, x: Any) -> Any:
            return 2 * x + g.num_nodes()

    net, x = dgl.nn.Sequential(Twice(), Twice()), torch.ones(2)
    return net(simple(), x), net([simple(), dgl.graph(([0], [1]))], x)


@check("dgl.nn.WeightBasis")
def _() -> Any:
    made = dgl.nn.WeightBasis((2, 3), 2, 4)
    for i, parameter in enumerate(made.parameters()):
        nn.init.constant_(parameter, 1.0 + i)
    return made(), sorted(made.state_dict())


@check("dgl.nn.LabelPropagation")
def _() -> Any:
    g, labels, mask = simple(), torch.tensor([0, 2, 1, 1, 0]), torch.tensor([True, True, False, False, True])
    return [
        dgl.nn.LabelPropagation(2, 0.5, **given)(g, labels, mask)
        for given in ({}, {"norm_type": "row"}, {"reset": True}, {"normalize": True}, {"clamp": False})
    ]


@check("dgl.nn.EdgePredictor")
def _() -> Any:
    a, b = torch.arange(6.0).view(2, 3), torch.ones(2, 3)
    made = dgl.nn.EdgePredictor("cat", 3, 2)
    nn.init.constant_(made.linear.weight, 0.5)
    return [dgl.nn.EdgePredictor(op)(a, b) for op in ("dot", "cos", "ele", "cat")], made(a, b)


@check("dgl.data.KarateClubDataset")
def _() -> Any:
    data = dgl.data.KarateClubDataset()
    g = data[0]
    return g.num_nodes(), g.num_edges(), data.num_classes, len(data), sorted(g.in_degrees().tolist()), ends(g)


@check("dgl.data.utils.split_dataset")
def _() -> Any:
    parts = dgl.data.utils.split_dataset(list(range(10)), [0.5, 0.3, 0.2])
    shuffled = dgl.data.utils.split_dataset(list(range(10)), shuffle=True, random_state=0)
    return [[part[i] for i in range(len(part))] for part in parts], [len(part) for part in shuffled]


@check("dgl.AddSelfLoop", "dgl.GCNNorm", "dgl.RowFeatNormalizer", "dgl.DropEdge", "dgl.DropNode")
def _() -> Any:
    g = dgl.AddSelfLoop()(simple())
    weights = dgl.GCNNorm()(dgl.graph(([0, 1, 1, 2], [1, 0, 2, 1]))).edata["w"]
    rows = dgl.RowFeatNormalizer(node_feat_names=["h"])(simple()).ndata["h"]
    kept = [drop(p)(simple()).num_edges() for drop in (dgl.DropEdge, dgl.DropNode) for p in (0.0, 1.0)]
    return g.num_edges(), weights, rows, kept


@check("dgl.AddReverse", "dgl.ToSimple", "dgl.LineGraph", "dgl.ToLevi", "dgl.AddMetaPaths")
def _() -> Any:
    g, t = simple(), typed()
    both = [dgl.AddReverse(copy)(g).edata["w"] for copy in (False, True)]
    turned = dgl.AddReverse(copy_edata=True, sym_new_etype=True)(t)
    levi = dgl.ToLevi()(g)
    there_and_back = {"met": [("u", "p", "g"), ("g", "rev_p", "u")]}
    return (
        both, turned.canonical_etypes, dgl.ToSimple()(g).edata["count"], ends(dgl.LineGraph()(g)),
        levi.canonical_etypes, levi.nodes["edge"].data["w"], ends(dgl.AddMetaPaths(there_and_back)(turned)["met"]),
        dgl.AddSelfLoop(new_etypes=True)(t).canonical_etypes,
    )  # fmt: skip


@check("dgl.FeatMask", "dgl.NodeShuffle", "dgl.AddEdge")
def _() -> Any:
    masked = [dgl.FeatMask(p, ["h"], ["w"])(simple()) for p in (0.0, 1.0)]
    shuffled = dgl.NodeShuffle()(simple()).ndata["h"]
    return (
        [(g.ndata["h"], g.edata["w"]) for g in masked],
        shuffled.sort(0).values,
        dgl.AddEdge(0.5)(simple()).num_edges(),
    )


@check("dgl.PPR", "dgl.HeatKernel", "dgl.GDC")
def _() -> Any:
    made = []
    for transform in (dgl.PPR(avg_degree=2), dgl.HeatKernel(1.0, eps=0.05), dgl.GDC([0.3, 0.2, 0.1], avg_degree=9)):
        for g in (dgl.graph(([0, 1, 1, 2], [1, 0, 2, 1])), dgl.graph(([0, 1, 2, 3, 0], [1, 2, 3, 0, 2]))):
            g.edata["w"] = (
                torch.linspace(0.5, 1.0, g.num_edges())
                if transform.__class__.__name__ == "GDC"
                else (torch.full((g.num_edges(),), 0.5))
            )
            spread = transform(g)
            dense = torch.zeros(g.num_nodes(), g.num_nodes())
            dense[spread.edges()] = spread.edata["w"]
            made.append(dense)
    return made


@check("dgl.SIGNDiffusion")
def _() -> Any:
    g = dgl.graph(([0, 1, 1, 2, 2], [1, 0, 2, 1, 0]))
    g.ndata["feat"], g.edata["a"] = torch.arange(6.0).view(3, 2), torch.arange(1.0, 6.0)
    found = []
    for how in ("raw", "rw", "gcn", "ppr"):
        made = dgl.SIGNDiffusion(2, diffuse_op=how)(g)
        found.append([made.ndata.pop("out_feat_1"), made.ndata.pop("out_feat_2")])
    weighted = dgl.SIGNDiffusion(1, eweight_name="a", out_feat_name="o")(g)
    return found, weighted.ndata["o_1"]


@check("dgl.shortest_dist", "dgl.double_radius_node_labeling")
def _() -> Any:
    g = dgl.graph(([0, 1, 2, 0, 4, 3, 2], [1, 2, 3, 2, 3, 5, 0]))
    return (
        dgl.shortest_dist(g), dgl.shortest_dist(g, root=0), dgl.shortest_dist(g, root=1, return_paths=True),
        dgl.shortest_dist(g, return_paths=True)[1],
        [dgl.double_radius_node_labeling(g, *pair) for pair in ((0, 3), (5, 1))],
    )  # fmt: skip


@check("dgl.node_homophily", "dgl.edge_homophily", "dgl.linkx_homophily")
def _() -> Any:
    g, y = dgl.graph(([1, 2, 0, 4, 3, 0], [0, 1, 2, 3, 4, 1])), torch.tensor([0, 0, 0, 1, 1])
    made = [measure(g, y) for measure in (dgl.node_homophily, dgl.edge_homophily, dgl.linkx_homophily)]
    return torch.tensor(made)


@check("dgl.svd_pe", "dgl.SVDPE")
def _() -> Any:
    g = dgl.graph(([0, 1, 2, 3, 0], [1, 2, 3, 0, 2]))
    return dgl.svd_pe(g, 2).shape, dgl.svd_pe(g, 6, padding=True)[:, 8:], dgl.SVDPE(1)(g).ndata["svd_pe"].shape


@check("dgl.adj_product_graph", "dgl.adj_sum_graph")
def _() -> Any:
    a, b = dgl.graph(([0, 1, 2], [1, 2, 0])), dgl.graph(([0, 0, 1], [1, 2, 2]), num_nodes=3)
    a.edata["w"], b.edata["w"] = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 5.0, 6.0])

    def dense(g: Any) -> Any:
        made = torch.zeros(3, 3)
        made[g.edges()] = g.edata["w"]
        return made, g.num_edges()

    return dense(dgl.adj_product_graph(a, b, "w")), dense(dgl.adj_sum_graph([a, b], "w"))


@check("dgl.to_double", "dgl.to_half")
def _() -> Any:
    g = simple()
    g.ndata["i"] = torch.arange(5)
    return [str(made.ndata[n].dtype) for made in (dgl.to_double(g), dgl.to_half(g)) for n in ("h", "i")]


@check("dgl.dataloading.SAINTSampler", "dgl.sampling.PinSAGESampler", "dgl.sampling.RandomWalkNeighborSampler")
def _() -> Any:
    g = dgl.graph((torch.arange(30), (torch.arange(30) + 1) % 30))
    g.ndata["h"] = torch.arange(30.0)
    saint = dgl.dataloading.SAINTSampler
    parts = [
        next(iter(dgl.dataloading.DataLoader(g, torch.arange(2), saint(mode, budget, prefetch_ndata=["h"]))))
        for mode, budget in (("node", 8), ("edge", 8), ("walk", (4, 2)))
    ]
    is_same = [bool((part.ndata["h"] == part.ndata["_ID"]).all()) for part in parts]
    pairs = torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1])
    t = dgl.heterograph({("i", "by", "u"): pairs, ("u", "took", "i"): pairs[::-1]})
    near = dgl.sampling.PinSAGESampler(t, "i", "u", 1, 0.0, 400, 1)(torch.tensor([0, 1, 2]))
    ring = dgl.sampling.RandomWalkNeighborSampler(g, 2, 0.0, 3, 5)(torch.tensor([4]))
    order = ring.edges()[0].argsort()
    return (
        is_same, [part.num_nodes() <= 16 for part in parts], near.num_edges(), near.in_degrees(), near.num_nodes(),
        ring.edges()[0][order], ring.edata["weights"][order],
    )  # fmt: skip


@check("dgl.data.utils.makedirs", "dgl.data.utils.save_tensors", "dgl.data.utils.check_sha1")
def _() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a" / "b"
        dgl.data.utils.makedirs(str(path))
        dgl.data.utils.makedirs(str(path))
        dgl.data.utils.save_tensors(str(path / "t"), {"x": torch.arange(3)})
        (path / "file").write_bytes(b"abc")
        known = dgl.data.utils.check_sha1(str(path / "file"), "a9993e364706816aba3e25717850c26c9cd0d89d")
        return path.is_dir(), dgl.data.utils.load_tensors(str(path / "t"))["x"], known


@check("g.sample_neighbors", "g.select_topk")
def _() -> Any:
    g = simple()
    return g.sample_neighbors([2], 9).num_edges(), ends(g.select_topk(1, "w"))


# ---------------------------------------------------------------- what DGL cannot show without a network
ONLY_HERE = ("dgl.data.GINDataset", "dgl.data.TUDataset")


@check("dgl.data.GINDataset")
def _() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "SMALL.txt").write_text("2\n2 7\n5 1 1\n9 1 0\n1 3\n9 0\n")
        data = dgl.data.GINDataset("SMALL", self_loop=True, raw_dir=folder)
    (g, label), (other, _) = data[0], data[1]
    assert len(data) == 2 and data.num_classes == 2 and data.dim_nfeats == 2 and int(label) == 0
    assert g.num_edges() == 4 and g.ndata["attr"].tolist() == [[1, 0], [0, 1]] and other.ndata["label"].tolist() == [1]
    return True


TU = {
    "A": "1, 2\n2, 1\n3, 4\n4, 5\n", "graph_indicator": "1\n1\n2\n2\n2\n", "graph_labels": "-1\n1\n",
    "node_labels": "3\n4\n3\n3\n5\n", "node_attributes": "0.5, 1\n1, 2\n2, 3\n3, 4\n4, 5\n",
    "edge_labels": "1\n1\n2\n1\n",
}  # fmt: skip


@check("dgl.data.TUDataset")
def _() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "SMALL").mkdir()
        for what, text in TU.items():
            (Path(folder) / "SMALL" / f"SMALL_{what}.txt").write_text(text)
        data = dgl.data.TUDataset("SMALL", raw_dir=folder)
    (g, label), (other, second) = data[0], data[1]
    assert len(data) == 2 and (data.num_classes, data.max_num_node) == (2, 3)
    assert ends(g) == ([(0, 1), (1, 0)], 2) and ends(other) == ([(0, 1), (1, 2)], 3)
    assert (label.tolist(), second.tolist()) == ([0], [1])
    assert other.ndata["node_labels"].flatten().tolist() == [0, 0, 2]
    assert g.ndata["node_attr"].tolist() == [[0.5, 1], [1, 2]] and other.edata["edge_labels"].flatten().tolist() == [
        1,
        0,
    ]
    return True
