"""What DGL's programs say of blocks, masks, files and types, and get."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import vgraph
from vgraph.compat import augment, diffusion, names, transforms
from vgraph.compat.collections import KarateClubDataset
from vgraph.errors import DTypeError, NameLookupError
from vgraph.nn import GraphConv, HeteroGraphConv, LabelPropagation


def typed() -> vgraph.Graph:
    g = vgraph.heterograph({("u", "f", "u"): ([0, 1, 2], [1, 2, 0]), ("u", "p", "g"): ([0, 2, 2], [1, 0, 1])})
    g.nodes["u"].data["h"], g.nodes["g"].data["h"] = torch.ones(3, 2), torch.ones(2, 2)
    g.edges["f"].data["w"], g.edges["p"].data["w"] = torch.ones(3), torch.ones(3)
    return g


def test_sides_of_blocks_by_name() -> None:
    block = vgraph.to_block(vgraph.graph(([0, 1], [2, 2])))
    assert [block.num_nodes(name) for name in ("_N", "SRC/_N", "DST/_N")] == [3, 3, 1]
    assert block.nodes["DST/_N"].data["_ID"].tolist() == [2]
    assert block.nodes["SRC/_N"].data["_ID"].tolist() == [2, 0, 1]
    with pytest.raises(NameLookupError, match="there is no node type 'x'"):
        block.num_nodes("DST/x")


def test_masks_of_a_wrong_length_say_lengths() -> None:
    g = vgraph.graph(([0], [1]), num_nodes=3)
    with pytest.raises(DTypeError, match="a mask of 3, one for each node; this has 2"):
        g.subgraph(torch.tensor([True, False]))


def test_features_that_not_every_type_has() -> None:
    g = typed()
    del g.nodes["g"].data["h"]
    assert set(vgraph.to_homogeneous(g, ndata=["h"]).ndata) == {"_ID", "_TYPE"}
    with pytest.raises(NameLookupError):
        vgraph.to_homogeneous(g, ndata=["nowhere"])


def test_files_in_new_folders(tmp_path: Path) -> None:
    names.save_graphs(tmp_path / "a" / "b.bin", [typed()])
    assert vgraph.load_graphs(tmp_path / "a" / "b.bin")[0][0].ntypes == ["g", "u"]


def test_labels_by_ids() -> None:
    g, labels = vgraph.graph(([0, 1, 2], [1, 2, 0])), torch.tensor([0, 1, 1])
    layer = LabelPropagation(2, 0.5)
    assert torch.equal(layer(g, labels, torch.tensor([2, 0])), layer(g, labels, torch.tensor([True, False, True])))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_labels_of_any_whole_numbers(dtype: torch.dtype) -> None:
    """As are ids and masks of labels that are known."""
    g, labels, ids = vgraph.graph(([0, 1, 2, 3], [1, 2, 3, 0])), torch.tensor([0, 1, 2, 1]), torch.tensor([0, 3])
    layer, is_known = LabelPropagation(2, 0.5), torch.tensor([True, False, False, True])
    wanted = layer(g, labels, is_known)
    torch.testing.assert_close(layer(g, labels.to(dtype), is_known), wanted)
    torch.testing.assert_close(layer(g, labels, ids.int() if dtype == torch.int32 else is_known.byte()), wanted)
    one = torch.rand(4, 1)
    torch.testing.assert_close(layer(g, one), layer(g, one.expand(4, 2))[:, :1])


def test_layers_of_types_are_pickled() -> None:
    layer = HeteroGraphConv({"f": GraphConv(2, 2), "p": GraphConv(2, 2)}, "max")
    g, x = typed(), {"u": torch.ones(3, 2), "g": torch.ones(2, 2)}
    for name, rows in pickle.loads(pickle.dumps(layer))(g, x).items():
        assert torch.equal(rows, layer(g, x)[name])


@pytest.mark.parametrize(
    "transform",
    [
        transforms.RowFeatNormalizer(node_feat_names=["h"], edge_feat_names=["w"]),
        transforms.GCNNorm(),
        transforms.GCNNorm("w"),
        transforms.DropNode(1.0),
        transforms.DropEdge(1.0),
        augment.AddEdge(1.0),
    ],
    ids=lambda transform: type(transform).__name__,
)
def test_transforms_of_several_types(transform: Any) -> None:
    g = typed()
    made = transform(g)
    counts = [made.num_nodes(t) for t in g.ntypes], [made.num_edges(t) for t in g.canonical_etypes]
    wanted = {"DropNode": ([0, 0], [0, 0]), "DropEdge": ([2, 3], [0, 0]), "AddEdge": ([2, 3], [6, 6])}
    assert counts == wanted.get(type(transform).__name__, ([2, 3], [3, 3]))
    if isinstance(transform, transforms.GCNNorm):
        assert torch.equal(made.edges["f"].data[transform.name], torch.ones(3))
    if isinstance(transform, transforms.RowFeatNormalizer):
        assert made.nodes["u"].data["h"].unique().tolist() == [0.5]


def path() -> vgraph.Graph:
    g = vgraph.graph(([0, 1, 2, 2], [1, 2, 0, 1]))
    g.ndata["h"] = torch.tensor([[0.25, 0.25], [1.0, 3.0], [-2.0, 1.0]])
    g.edata["a"] = torch.tensor([1.0, 2.0, 0.0, 3.0])
    return g


def test_rows_are_divided_by_sums_above_one() -> None:
    """As DGL divides, so that small sums and negative ones leave a row as it is."""
    rows = transforms.RowFeatNormalizer(node_feat_names=["h"])(path()).ndata["h"]
    assert rows.tolist() == [[0.25, 0.25], [0.25, 0.75], [-2.0, 1.0]]


@pytest.mark.parametrize(
    ("transform", "name"),
    [
        (transforms.RowFeatNormalizer(node_feat_names=["h"]), "h"),
        (augment.FeatMask(1.0, node_feat_names=["h"]), "h"),
        (transforms.GCNNorm("a"), "a"),
        (transforms.LapPE(1), "PE"),
        (transforms.RandomWalkPE(2), "PE"),
        (augment.SVDPE(1), "svd_pe"),
        (diffusion.SIGNDiffusion(1, "h"), "out_feat_1"),
    ],
    ids=lambda transform: type(transform).__name__,
)
def test_transforms_of_features_change_the_graph_itself(transform: Any, name: str) -> None:
    """Programs of DGL's call them and go on with the graph; tensors that they hold stay as they are."""
    g = path()
    rows, weights = g.ndata["h"], g.edata["a"]
    kept = rows.clone(), weights.clone()
    before = {**g.ndata, **g.edata}
    assert transform(g) is g
    after = {**g.ndata, **g.edata}
    assert name not in before or not torch.equal(after[name], before[name])
    assert name in after
    assert torch.equal(rows, kept[0])
    assert torch.equal(weights, kept[1])


def test_what_a_set_transforms_is_not_transformed_again() -> None:
    graphs = KarateClubDataset(transform=transforms.GCNNorm("a"))
    graphs[0]
    assert torch.equal(graphs[0].edata["a"], KarateClubDataset(transform=transforms.GCNNorm("a"))[0].edata["a"])


def test_weights_of_edges_may_be_columns() -> None:
    """And a negative sum of weights has no square root."""
    flat, column = path(), path()
    column.edata["a"] = flat.edata["a"].unsqueeze(1)
    normed = transforms.GCNNorm("a")(column.local_var()).edata["a"]
    assert torch.equal(normed.squeeze(1), transforms.GCNNorm("a")(flat.local_var()).edata["a"])
    for how in ("raw", "gcn", "ppr"):
        spread = diffusion.SIGNDiffusion(2, "h", eweight_name="a", diffuse_op=how)
        assert torch.equal(spread(column).ndata["out_feat_2"], spread(flat).ndata["out_feat_2"])
    for g in (flat, column):
        g.edata["a"] = g.edata["a"] + 1
        diffusion.SIGNDiffusion(2, "h", eweight_name="a", diffuse_op="rw")(g)
    assert torch.equal(column.ndata["out_feat_2"], flat.ndata["out_feat_2"])
    flat.edata["a"] = torch.tensor([-1.0, 1.0, 1.0, 0.0])
    assert transforms.GCNNorm("a")(flat).edata["a"].isnan().tolist() == [True, True, False, True]


def test_features_spread_beside_those_of_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another thread reads of the graph meanwhile is the graph's."""
    g, seen = path(), []
    send = vgraph.Graph.update_all

    def spied(self: vgraph.Graph, *functions: Any) -> None:
        send(self, *functions)
        seen.append((list(g.ndata), list(g.edata)))

    monkeypatch.setattr(vgraph.Graph, "update_all", spied)
    diffusion.SIGNDiffusion(2, "h")(g)
    assert seen == [(["h"], ["a"])] * 2
