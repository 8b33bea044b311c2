"""Sets of ``dgl.data`` from files in DGL's form: what each gives, what an absent or damaged file says."""

from __future__ import annotations

import argparse
import pickle
import random
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch

import vgraph
from tests.campaign.mutations import mutate
from tests.compat import dgl_archives as written
from tests.compat.dataset_cases import CASES, Case, ends
from vgraph.compat.modules import lookup
from vgraph.errors import DataError, GraphError, VGraphError


def data(name: str) -> Any:
    return lookup("dgl.data", name)


@pytest.mark.parametrize("case", CASES, ids=[f"{case[0]}{i}" for i, case in enumerate(CASES)])
def test_a_set_is_read_from_its_files(case: Case, tmp_path: Path) -> None:
    name, arguments, write, look, wanted = case
    with pytest.raises(DataError, match="downloads nothing") as caught:  # before the files are there
        data(name)(raw_dir=str(tmp_path), **arguments)
    assert str(tmp_path) in str(caught.value)
    assert caught.value.cure.startswith("put http")
    write(tmp_path)
    assert look(data(name)(raw_dir=str(tmp_path), **arguments)) == wanted
    torn = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size]
    for path in torn:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2] + b"\x00\xff(")
        _damaged(name, tmp_path, arguments)
        path.write_bytes(content)


def _damaged(name: str, folder: Path, arguments: dict[str, Any]) -> None:
    """A torn file is one of vgraph's errors; a torn table may lack rows, and be a table still."""
    try:
        data(name)(raw_dir=str(folder), **arguments)
    except VGraphError as error:
        assert error.cure


def test_what_a_program_saves_of_a_legacy_set_is_there_the_next_time(tmp_path: Path) -> None:
    written.legacy_tu(tmp_path)
    made = data("LegacyTUDataset")("SMALL", raw_dir=str(tmp_path))
    assert not made.has_cache()  # it is read from its files as long as no program saves it
    labels = made._idx_from_zero(np.loadtxt(made._file_path("graph_indicator"), dtype=int))
    assert made._to_onehot(labels).shape == (len(labels), len(made))
    for g in made.graph_lists:
        g.ndata["own"] = g.in_degrees()
    made.save()
    again = data("LegacyTUDataset")("SMALL", raw_dir=str(tmp_path))
    assert [g.ndata["own"].tolist() for g, _ in again] == [g.in_degrees().tolist() for g, _ in made]
    assert again.statistics() == made.statistics()
    assert again.graph_labels.equal(made.graph_labels)
    assert again.num_classes == made.num_classes
    fresh = data("LegacyTUDataset")("SMALL", raw_dir=str(tmp_path), force_reload=True)
    assert "own" not in fresh[0][0].ndata


def test_a_table_of_rdf_may_be_compressed_and_is_that_of_schlichtkrull(data_dir: Path, tmp_path: Path) -> None:
    stored = data_dir / "rdf" / "mutag"
    if not stored.exists():
        pytest.skip("no rdf/mutag")
    (tmp_path / "mutag-hetero").symlink_to(stored)
    found = data("MUTAGDataset")(raw_dir=str(tmp_path))
    g = found[0]
    nodes = g.nodes["d"].data
    assert (g.num_nodes(), g.num_edges(), found.num_classes) == (27163, 148100, 2)
    assert (int(nodes["train_mask"].sum()), int(nodes["test_mask"].sum())) == (272, 68)


# ---------------------------------------------------------------- pickles
class _Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("run",))


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_files_of_any_protocol_are_read_and_run_nothing(protocol: int, tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "cora_v2"
    folder.mkdir()
    for name, content in written.planetoid(tmp_path, protocol).items():
        (folder / name).write_bytes(content)
    assert data("CoraGraphDataset")(raw_dir=str(tmp_path))[0].num_edges() == 16
    (folder / "ind.cora_v2.y").write_bytes(pickle.dumps(_Runs(), protocol))
    with pytest.raises(DataError, match=r"no data need|no function of data"):
        data("CoraGraphDataset")(raw_dir=str(tmp_path))
    assert not capsys.readouterr().out


def test_arrays_of_a_citation_graph_give_each_edge_once_where_that_is_asked_for(tmp_path: Path) -> None:
    masks = dict.fromkeys(("has_label", "train_mask", "val_mask", "test_mask"), np.ones(3, np.bool_))
    features = {"feat_indptr": [0, 1, 2, 3], "feat_indices": [0, 1, 0], "feat_shape": [3, 2], "feat_data": np.ones(3)}
    edges = {"src": [0, 2, 1, 2, 2], "dst": [2, 0, 2, 1, 2]}
    np.savez(tmp_path / "cora.npz", **features, **masks, **edges, label=[0, 1, 1])
    both, one = (data("CoraGraphDataset")(str(tmp_path), reverse_edge=asked)[0] for asked in (True, False))
    assert ends(both) == [(0, 2), (1, 2), (2, 0), (2, 1), (2, 2)]
    assert ends(one) == [(0, 2), (1, 2), (2, 2)]
    assert set(one.ndata) == set(both.ndata) and torch.equal(one.ndata["label"], both.ndata["label"])


def test_damaged_files_of_matlab_are_told(tmp_path: Path) -> None:
    """SciPy's reader ended the process over some of these."""
    written.qm7b(tmp_path)
    path = tmp_path / "qm7b.mat"
    content, told = path.read_bytes(), 0
    for seed in range(150):
        path.write_bytes(mutate(random.Random(seed), content, [content]))
        try:
            data("QM7bDataset")(raw_dir=str(tmp_path))
        except DataError:
            told += 1
    assert told > 50


# ---------------------------------------------------------------- by name
def test_a_set_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGL_DOWNLOAD_DIR", str(tmp_path))
    written.cora(tmp_path)
    written.reddit(tmp_path)
    written.knowledge("wn18")(tmp_path)
    written.benchmark("coauthor_cs")(tmp_path)
    parser = argparse.ArgumentParser()
    data("register_data_args")(parser)
    assert data("load_data")(parser.parse_args(["--dataset", "cora"]))[0].num_nodes() == 8
    assert data("load_data")(parser.parse_args(["--dataset", "reddit"])).num_classes == 41
    assert lookup("dgl.data.knowledge_graph", "load_data")("wn18").num_rels == 2
    assert lookup("dgl.data.citegrh", "load_cora")().num_classes == data("Coauthor")("cs").num_classes - 13
    for call in (lambda: data("load_data")(parser.parse_args([])), lambda: data("AmazonCoBuy")("x")):
        with pytest.raises(DataError, match="there is no"):
            call()
    assert data("_get_dgl_url")("a/b.zip") == "https://data.dgl.ai/a/b.zip"
    monkeypatch.setenv("DGL_REPO", "https://elsewhere")
    assert data("_get_dgl_url")("a/b.zip") == "https://elsewhere/a/b.zip"


# ---------------------------------------------------------------- made by rules
@pytest.mark.parametrize(
    ("name", "arguments", "nodes", "edges", "classes"),
    [
        ("BAShapeDataset", {"num_base_nodes": 40, "num_motifs": 8}, 80, 175 + 56 + 2, 4),
        ("BACommunityDataset", {"num_base_nodes": 40, "num_motifs": 8, "num_inter_edges": 9}, 160, 2 * 202 + 9, 8),
        ("TreeCycleDataset", {"tree_height": 4, "num_motifs": 3}, 49, None, 2),
        ("TreeGridDataset", {"tree_height": 4, "num_motifs": 3}, 58, 30 + 39 + 6, 2),
    ],
)
def test_a_generated_graph(name: str, arguments: dict[str, Any], nodes: int, edges: int | None, classes: int) -> None:
    one, same, other = (data(name)(seed=seed, **arguments)[0] for seed in (3, 3, 4))
    assert one.num_nodes() == nodes
    assert edges in (one.num_edges(), None)
    assert sorted(set(one.ndata["label"].tolist())) == list(range(classes))
    assert ends(one) == ends(same) != ends(other)
    assert data(name)(seed=3, **arguments).num_classes == classes
    random.seed(0)
    assert data(name)(**arguments)[0].num_nodes() == nodes
    with pytest.raises(DataError, match="perturb_ratio"):
        data(name)(perturb_ratio=1e4, **arguments)


def test_small_graphs_of_eight_kinds() -> None:
    found = data("MiniGCDataset")(17, 8, 12)
    graphs = [g for g, _ in (found[i] for i in range(len(found)))]
    assert found.labels.tolist() == [kind for kind in range(8) for _ in range(2)] + [7]
    assert all(g.has_edges_between(g.nodes(), g.nodes()).all() for g in graphs)
    cycle, star = (networkx.Graph(vgraph.remove_self_loop(graphs[i]).to_networkx()) for i in (0, 2))
    assert networkx.is_isomorphic(cycle, networkx.cycle_graph(len(cycle)))
    assert networkx.is_isomorphic(star, networkx.star_graph(len(star) - 1))
    assert [g.num_edges() for g in graphs] == [
        g.num_edges() for g, _ in map(data("MiniGCDataset")(17, 8, 12).__getitem__, range(17))
    ]


def test_mixtures_of_communities() -> None:
    found = data("SBMMixtureDataset")(2, 20, 2, rng=np.random.RandomState(0))
    g, lines, degrees, of_lines, sources = found[1]
    assert g.num_nodes() == 20
    assert lines.num_nodes() == g.num_edges() == len(of_lines) == len(sources)
    assert degrees.tolist() == g.in_degrees().tolist()
    batch, _, _, _, moved = found.collate_fn([found[0], found[1]])
    assert batch.num_nodes() == 40
    assert len(moved) == batch.num_edges()
    for arguments in ((2, 21, 2), (2, 20, 2, 2, 3, [(1, 1)])):
        with pytest.raises(DataError):
            data("SBMMixtureDataset")(*arguments)


# ---------------------------------------------------------------- with splits
class _Own(lookup("dgl.data", "DGLDataset")):  # type: ignore[misc]
    def process(self) -> None:
        i = torch.arange(40)
        self.g = vgraph.graph((i, (i + 1) % 40))
        self.g.ndata["label"], self.g.ndata["feat"] = i % 3, torch.eye(40)[:, :6]

    def __getitem__(self, idx: int) -> Any:
        return self.g

    def __len__(self) -> int:
        return 1


def test_splits_of_nodes_are_kept(tmp_path: Path) -> None:
    made = [data("AsNodePredDataset")(_Own("own"), (0.5, 0.25, 0.25), save_dir=str(tmp_path)) for _ in range(2)]
    assert [len(ids) for ids in (made[0].train_idx, made[0].val_idx, made[0].test_idx)] == [20, 10, 10]
    assert made[0].train_idx.tolist() == made[1].train_idx.tolist()
    assert (made[1].num_classes, len(made[1].hash), made[1].name) == (3, 8, "own-as-nodepred")
    assert repr(made[1]).startswith('Dataset("own-as-nodepred", num_graphs=1')
    with pytest.raises(GraphError, match="no train_mask"):
        data("AsNodePredDataset")(_Own("own"), save_dir=str(tmp_path / "x"))
    with pytest.raises(GraphError, match="three shares"):
        data("AsNodePredDataset")(_Own("own"), (0.5, 0.5), save_dir=str(tmp_path / "x"))
    again = data("AsNodePredDataset")(made[1], save_dir=str(tmp_path / "y"))
    assert again.test_idx.tolist() == made[0].test_idx.tolist()


def test_splits_of_edges_are_kept(tmp_path: Path) -> None:
    made = [data("AsLinkPredDataset")(_Own("own"), [0.5, 0.25, 0.25], 2, save_dir=str(tmp_path)) for _ in range(2)]
    (src, dst), (no_src, no_dst) = made[0].val_edges
    assert (made[0].train_graph.num_edges(), len(src), len(no_src), made[0].feat_size) == (20, 10, 20, 6)
    assert made[0].g.has_edges_between(src, dst).all()
    assert not made[0].g.has_edges_between(no_src, no_dst).any()
    assert [side.tolist() for side in made[1].test_edges[1]] == [side.tolist() for side in made[0].test_edges[1]]
    with pytest.raises(GraphError, match="no split"):
        data("AsLinkPredDataset")(_Own("own"), save_dir=str(tmp_path))


def test_splits_of_graphs_are_kept(tmp_path: Path) -> None:
    graphs = data("MiniGCDataset")(16, 8, 12)
    made = [data("AsGraphPredDataset")(graphs, (0.5, 0.25, 0.25), save_dir=str(tmp_path)) for _ in range(2)]
    ids = [made[1].train_idx, made[1].val_idx, made[1].test_idx]
    assert sorted(torch.cat(ids).tolist()) == list(range(16))
    assert made[0].train_idx.tolist() == made[1].train_idx.tolist()
    assert (made[1].num_classes, made[1].num_tasks, made[1].node_feat_size) == (8, 1, None)
    with pytest.raises(GraphError, match="no split"):
        data("AsGraphPredDataset")(graphs, save_dir=str(tmp_path))


def test_splits_by_properties() -> None:
    own = _Own("own")
    data("add_node_property_split")(own, [0.2] * 5, "popularity", random_seed=1)
    names = ["in_train_mask", "in_valid_mask", "in_test_mask", "out_valid_mask", "out_test_mask"]
    assert torch.stack([own.g.ndata[name] for name in names]).sum(0).tolist() == [1] * 40
    masks = data("mask_nodes_by_property")(np.arange(10), [0.2] * 5)
    assert masks["out_test_mask"].nonzero()[:, 0].tolist() == [8, 9]
    for name in ("locality", "density"):
        data("add_node_property_split")(own, [0.2] * 5, name)
    with pytest.raises(GraphError, match="shares"):
        data("add_node_property_split")(own, [0.2] * 5, "size")


def test_every_public_name_of_dgl_data_is_there() -> None:
    assert not [name for name in PUBLIC.split() if not callable(data(name))]


PUBLIC = """
    ActorDataset AMDataset AIFBDataset AmazonCoBuy AmazonCoBuyComputerDataset AmazonCoBuyPhotoDataset
    AsGraphPredDataset AsLinkPredDataset AsNodePredDataset BA2MotifDataset BACommunityDataset BAShapeDataset
    BGSDataset BitcoinOTC BitcoinOTCDataset ChameleonDataset CitationGraphDataset CiteseerGraphDataset
    CLUSTERDataset Coauthor CoauthorCSDataset CoauthorPhysicsDataset CoraFull CoraFullDataset CoraGraphDataset
    CoraBinary CornellDataset DGLBuiltinDataset DGLDataset FakeNewsDataset FB15k237Dataset FB15kDataset FlickrDataset
    FraudAmazonDataset FraudDataset FraudYelpDataset GDELT GDELTDataset GINDataset ICEWS18 ICEWS18Dataset
    KarateClub KarateClubDataset LegacyPPIDataset LegacyTUDataset MUTAGDataset MiniGCDataset PATTERNDataset
    PPIDataset PubmedGraphDataset QM7b QM7bDataset QM9 QM9Dataset QM9Edge QM9EdgeDataset RedditDataset
    SBMMixture SBMMixtureDataset SST SSTDataset SquirrelDataset Subset TUDataset TexasDataset TreeCycleDataset
    TreeGridDataset WN18Dataset WikiCSDataset WisconsinDataset YelpDataset ZINCDataset add_node_property_split
    add_nodepred_split check_sha1 download extract_archive get_download_dir load_data load_graphs load_labels
    load_tensors loadtxt mask_nodes_by_property register_data_args save_graphs save_tensors split_dataset
"""


def test_a_program_writes_where_it_keeps_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGL_DOWNLOAD_DIR", str(tmp_path / "sets" / "dgl"))
    kept = Path(lookup("dgl.data.utils", "get_download_dir")()) / "own" / "g.bin"
    assert kept.parents[1].is_dir()
    for module in ("dgl", "dgl.data", "dgl.data.utils"):
        lookup(module, "save_graphs")(str(kept), [vgraph.graph(([0], [1]))])
        assert lookup(module, "load_graphs")(str(kept))[0][0].num_edges() == 1
        kept.unlink()
        kept.parent.rmdir()


def test_the_page_names_every_set() -> None:
    page = (Path(__file__).parents[2] / "docs" / "coming_from" / "dgl_data.md").read_text(encoding="utf-8")
    newest = [name for name in PUBLIC.split() if name.endswith("Dataset")]
    bases = {"CitationGraphDataset", "DGLBuiltinDataset", "DGLDataset", "FraudDataset"}
    assert not [name for name in newest if f"`{name}`" not in page and name not in bases]
