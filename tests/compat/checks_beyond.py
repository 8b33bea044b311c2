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
