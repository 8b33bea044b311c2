"""Valid files of every kind that vgraph reads, small, with what reads them and looks at what was read."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import vgraph
from benchmarks.placing.random_graphs import tree
from tests.campaign.mutations import pack
from tests.campaign.valid_partitions import partition_cases
from tests.compat.dataset_cases import CASES
from tests.stored_by_dgl import DGL_FILES, dgl_bytes, first_format
from vgraph import data
from vgraph.api.dense.plan_file import CHECKSUM
from vgraph.cli.checkpoint import Progress, load_checkpoint, random_states, save_checkpoint
from vgraph.compat.collections import GINDataset, TUDataset
from vgraph.compat.data import CoraGraphDataset, load_info, save_info
from vgraph.compat.files import extract_archive, load_tensors, save_tensors
from vgraph.compat.modules import lookup
from vgraph.data.sst import flatten_forests, restore_forests
from vgraph.files import read_arrays
from vgraph.partition.placement.dot import format_dot, read_dot
from vgraph.partition.placement.profile import Profile
from vgraph.sampling import open_features

AIG = b"aig 7 2 1 2 4\n10 0\n14\n12\n\x02\x02\x04\x02\x02\x06\x04\x02i0 a\ni1 b\nl0 kept\no0 out\nc\nby hand\n"
EDGES = b"# a triangle\n0 1 0.5\n1, 2, 0.25\n2\t0\t1e-3\n3 1 2\n"
GRAPHS = b"2\n3 -1\n4 2 1 2\n9 1 0\n4 1 0 0.5 1.5\n2 1\n9 1 1\n9 1 0\n"
TRIPLES = b'<x#a> <x#knows> <x#b> .\n<x#b> <x#knows> _:c .\n<x#a> <x#age> "7"^^<x#int> .\n'
TRIPLES += b'<y#a> <y#age> "\xc3\xa9"@fr .\n'
TREES = b"(3 (2 It) (4 (2 is) (4 good)))\n(1 (2 It) (1 (2 is) (0 bad)))\n(2 film)\n"
LISTS = b"9\t( ( ( [MAX 2 ) 9 ) ( ( [MIN 4 ) 7 ) ] ) 0 ) ]\n3\t3\n1\t[SM 4 7 ]\n"
SENTENCES = "# tone = calm\n1-2\taux\t_\t_\t_\t_\t_\t_\t_\t_\n1\t\u00e0\t_\tADP\t_\t_\t2\tcase\t_\t_\n".encode()
SENTENCES += b"2\tles\t_\tDET\t_\t_\t0\troot\t_\t_\n2.1\tx\t_\t_\t_\t_\t_\t_\t_\t_\n\n"
PAIRS = {"a.toks": b"a dog\nyes\n", "a.parents": b"2 0\n0\n", "a.rels": b"det root\nroot\n", "sim.txt": b"4.5\n1\n"}
PAIRS |= {name.replace("a.", "b."): text for name, text in PAIRS.items() if name.startswith("a.")}
DAGS = b'[{"nodes": ["in", 3], "edges": [[0, 1, "x"]], "label": 1, "score": 0.5},\n {"nodes": ["in"], "edges": []}]\n'
CELLS = b'graph,node,kind,parents,label\nx,0,in,,good\nx,1,"a, b",0,\ny,0,in,,bad\n'
MARKET = b"%%MatrixMarket matrix coordinate real symmetric\n% half\n3 3 2\n2 1 0.5\n3 3 1e2\n"
MUSAE = {"x_edges.csv": b"id_1,id_2\n0,1\n1,2\n", "x_target.csv": b"id,target\n2,a\n0,b\n1,a\n"}
MUSAE |= {"x_features.json": b'{"0": [1, 3], "1": [], "2": [0]}'}
SOURCE = b"def get_x(self):\n    return self.x + 1\n\n\n"
SOURCE += b"async def run(a, *b):\n    with a as c:\n        yield [d for d in c]\n"


@dataclass(frozen=True)
class Loader:
    """Valid ``files`` of one kind, by path; ``load`` reads them in a folder; ``seal`` makes a checksum fit again."""

    name: str
    files: dict[str, bytes]
    load: Callable[[Path], Any]
    seal: Callable[[bytes], bytes] | None = None


def make_loaders(folder: Path) -> list[Loader]:
    """All of them; files are made in ``folder``."""
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    return [
        *_stored_graphs(folder), *_tensors(folder), *_texts(), *_arrays(), *_trees(), *_collections(), *_archives(),
        *_sets(folder), *_plans(folder), _checkpoint(folder),
        *(Loader(*case) for case in partition_cases(folder / "partitions")),
    ]  # fmt: skip


# ---------------------------------------------------------------- graphs
def check_graph(g: vgraph.Graph) -> None:
    """AssertionError: ids or rows that kernels would trust do not fit."""
    for key in g.canonical_etypes:
        t, src, dst, edges = g.relation(key)
        assert t.src.shape == t.dst.shape == (edges.num_rows,) and t.src.dtype == t.dst.dtype == g.idtype
        assert t.num_src == src.num_rows and t.num_dst == dst.num_rows
        for end, count in ((t.src, t.num_src), (t.dst, t.num_dst)):
            assert end.is_contiguous() and (not end.numel() or (int(end.min()) >= 0 and int(end.max()) < count))
    frames = [*g.src_frames.values(), *g.dst_frames.values(), *g.edge_frames.values(), g.gdata]
    for frame in frames:
        assert all(column.shape[0] == frame.num_rows for column in frame.values())
    g.canonical_etypes and [g.in_degrees(etype=key) for key in g.canonical_etypes]


def _stored_graphs(folder: Path) -> list[Loader]:
    plain = vgraph.graph(([0, 1, 1], [1, 1, 2]), num_nodes=4, idtype=torch.int32)
    plain.ndata["h"], plain.edata["w"] = torch.rand(4, 2), torch.ones(3, dtype=torch.bool)
    edges: Any = {("u", "f", "u"): ([0, 1, 2], [1, 2, 0]), ("u", "p", "g"): ([0, 2, 2], [1, 0, 1])}
    typed = vgraph.heterograph(edges)
    typed.edges["p"].data["w"] = torch.arange(3, dtype=torch.bfloat16)
    kinds = {
        "plain": [plain, vgraph.batch([plain, plain])], "typed": [typed, vgraph.batch([typed, typed])],
        "block": [vgraph.to_block(vgraph.graph(([0, 2], [1, 1])))],
    }  # fmt: skip
    files: dict[str, bytes] = {}
    for name, graphs in kinds.items():
        vgraph.save_graphs(folder / name, graphs, {"y": torch.tensor([1, 2])})
        files[name] = (folder / name).read_bytes()
    files |= {f"dgl {name}": dgl_bytes(name) for name in DGL_FILES} | {"dgl first format": first_format()}
    return [Loader(f"load_graphs ({name})", {"g.bin": content}, _load_graphs) for name, content in files.items()]


def _load_graphs(folder: Path) -> None:
    graphs, labels = vgraph.load_graphs(folder / "g.bin")
    for g in graphs:
        check_graph(g)
    assert all(isinstance(label, torch.Tensor) for label in labels.values())
    vgraph.load_labels(folder / "g.bin")


def _tensors(folder: Path) -> list[Loader]:
    x = torch.rand(4, 3)
    tensors = {"x": x, "t": x.t(), "wide": x[:1].expand(5, 3), "some": x > 0.5, "sparse": x.to_sparse()}
    save_tensors(folder / "t.bin", tensors)
    save_info(folder / "i.bin", {"x": x, "numbers": [1, 2.5, -3, 2**70], "pair": ("a", None), "seen": {1, 2}})
    (tensors_file, info_file) = ((folder / name).read_bytes() for name in ("t.bin", "i.bin"))
    return [
        Loader("load_tensors", {"t.bin": tensors_file}, lambda place: _touch(load_tensors(place / "t.bin"))),
        Loader("load_info", {"i.bin": info_file}, lambda place: load_info(place / "i.bin")),
    ]


def _touch(tensors: dict[str, torch.Tensor]) -> None:
    for tensor in tensors.values():
        tensor.sum()


# ---------------------------------------------------------------- text
def _texts() -> list[Loader]:
    tables = {"graph.nt": TRIPLES, "a.tsv": b"who\tkind\nx#a\t1.0\n", "b.tsv": b"who\tkind\nx#b\ttwo\n"}
    return [
        Loader("load_aiger", {"c.aig": AIG}, lambda place: check_graph(data.load_aiger(place / "c.aig").graph)),
        Loader("load_edge_list", {"e.txt": EDGES}, lambda place: check_graph(data.load_edge_list(place / "e.txt"))),
        Loader("load_tu", {"g.txt": GRAPHS}, lambda place: _check_all(data.load_tu(place / "g.txt").graphs)),
        Loader("load_rdf", {"g.nt": TRIPLES}, lambda place: check_graph(data.load_rdf(place / "g.nt").graph)),
        Loader("load_rdf (.gz)", {"g.nt.gz": gzip.compress(TRIPLES * 20)}, _load_compressed_rdf),
        Loader("load_rdf_task", tables, _load_rdf_task),
        Loader("load_listops", {"l.tsv": LISTS}, lambda place: _check_trees(data.load_listops(place / "l.tsv"))),
        Loader("load_dags", {"d.json": DAGS}, lambda place: _check_all(data.load_dags(place / "d.json").graphs)),
        Loader("load_dags (.csv)", {"d.csv": CELLS}, lambda place: _check_all(data.load_dags(place / "d.csv").graphs)),
        Loader("load_matrix", {"g.mtx": MARKET}, lambda place: check_graph(data.load_matrix(place / "g.mtx"))),
        Loader("load_musae", MUSAE, lambda place: check_graph(data.load_musae(place).graph)),
        Loader("parse_functions", {"f.py": SOURCE}, lambda place: data.parse_functions((place / "f.py").read_bytes())),
    ]


def _check_all(graphs: list[vgraph.Graph]) -> None:
    for g in graphs:
        check_graph(g)


def _load_compressed_rdf(folder: Path) -> None:
    check_graph(data.load_rdf(folder / "g.nt.gz").graph)


def _load_rdf_task(folder: Path) -> None:
    graph = data.load_rdf(folder / "graph.nt")
    task = data.load_rdf_task(graph, folder / "a.tsv", folder / "b.tsv", entity="who", label="kind")
    assert len(task.train_ids) == len(task.train_labels) and len(task.test_ids) == len(task.test_labels)


def _trees() -> list[Loader]:
    forest = data.parse_ptb(TREES.decode())
    kept = _npz(**flatten_forests(["only"], [forest]))

    def load_cache(folder: Path) -> None:
        (again,) = restore_forests(["only"], read_arrays(folder / "cache.npz"), folder)
        _check_trees(data.TreeDataset(again))

    def load_splits(folder: Path) -> None:
        for part in data.load_sst(folder):
            _check_trees(part)

    def load_sentences(folder: Path) -> None:
        _check_trees(data.load_conllu(folder / "s.conllu", label="tone"))

    def load_sides(folder: Path) -> None:
        pairs = data.load_pairs(folder)
        _check_all([sample.left for sample in pairs] + [sample.right for sample in pairs])

    return [
        Loader("load_ptb", {"t.txt": TREES}, lambda place: _check_trees(data.load_ptb(place / "t.txt"))),
        Loader("load_sst", dict.fromkeys(("train.txt", "dev.txt", "test.txt"), TREES), load_splits),
        Loader("load_conllu", {"s.conllu": SENTENCES}, load_sentences),
        Loader("load_pairs", PAIRS, load_sides),
        Loader("the cache of trees", {"cache.npz": kept}, load_cache),
    ]


def _check_trees(trees: data.TreeDataset) -> None:
    for index in range(min(len(trees), 3)):
        check_graph(trees[index].graph)
        assert 0 <= trees[index].label < trees.num_classes


# ---------------------------------------------------------------- arrays
def _npz(**arrays: Any) -> bytes:
    made = io.BytesIO()
    (np.savez_compressed if random.Random(len(arrays)).random() < 0.5 else np.savez)(made, **arrays)
    return made.getvalue()


def _arrays() -> list[Loader]:
    mask = np.eye(3, dtype=bool)
    cora = _npz(
        feat_indptr=np.array([0, 2, 3, 3], np.int32), feat_indices=np.array([0, 3, 1], np.int32),
        feat_data=np.array([1, 3, 2], np.float32), feat_shape=np.array([3, 4]), label=np.array([1, 0, 1]),
        train_mask=mask[0], val_mask=mask[1], test_mask=mask[2], src=np.array([0, 1]), dst=np.array([1, 0]),
    )  # fmt: skip
    pair = _npz(
        node_features=np.ones((3, 2), np.float32), node_labels=np.array([0, 1, 0]), edges=np.array([[0, 1], [1, 2]]),
        **{f"{part}_masks": np.ones((2, 3), bool) for part in ("train", "val", "test")},
    )  # fmt: skip
    rows = io.BytesIO()
    np.save(rows, np.asfortranarray(np.ones((5, 3), np.float32)))
    return [
        Loader(
            "load_planetoid", {"c.npz": cora}, lambda place: check_graph(data.load_planetoid(place / "c.npz").graph)
        ),
        Loader("CoraGraphDataset", {"cora.npz": cora}, lambda place: check_graph(CoraGraphDataset(str(place))[0])),
        Loader("load_heterophilous", {"p.npz": pair}, _load_heterophilous),
        Loader("open_features", {"f.npy": rows.getvalue()}, lambda place: open_features(place / "f.npy").sum()),
    ]


def _load_heterophilous(folder: Path) -> None:
    check_graph(data.load_heterophilous(folder / "p.npz", split=1).graph)


def _collections() -> list[Loader]:
    tables = {
        "A": b"1, 2\n2, 1\n3, 4\n4, 5\n", "graph_indicator": b"1\n1\n2\n2\n2\n", "graph_labels": b"-1\n1\n",
        "node_labels": b"3\n4\n3\n5\n3\n", "edge_attributes": b"0.5\n0.5\n1e3\n-1\n",
    }  # fmt: skip
    files = {f"SMALL/SMALL_{name}.txt": content for name, content in tables.items()}
    return [
        Loader("TUDataset", files, lambda place: _check_all(TUDataset("SMALL", raw_dir=str(place)).graph_lists)),
        Loader(
            "GINDataset", {"MM.txt": GRAPHS}, lambda place: _check_all(GINDataset("MM", raw_dir=str(place)).graph_lists)
        ),
    ]


def _sets(folder: Path) -> list[Loader]:
    """The data sets of DGL, each from files in the form of its archive."""
    found: list[Loader] = []
    for number, (name, arguments, write, *_) in enumerate(CASES):
        place = folder / f"set {number}"
        write(place)
        files = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
        found.append(Loader(f"dgl.data.{name} ({number})", files, partial(_load_set, name, arguments)))
    return found


def _load_set(name: str, arguments: dict[str, Any], place: Path) -> None:
    found = lookup("dgl.data", name)(raw_dir=str(place), **arguments)
    for item in (found[i] for i in range(min(len(found), 3))):
        for part in item if isinstance(item, tuple) else (item,):
            if isinstance(part, vgraph.Graph):
                check_graph(part)


# ---------------------------------------------------------------- archives
def _archives() -> list[Loader]:
    members = {"a/b.txt": b"text", "c.txt": b"more" * 100}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    kinds = {"x.zip": pack(members), "x.tar": made.getvalue(), "x.tar.gz": gzip.compress(made.getvalue())}
    return [Loader(f"extract_archive ({name})", {name: content}, _unpack) for name, content in kinds.items()]


def _unpack(folder: Path) -> None:
    (file,) = folder.iterdir()
    try:
        extract_archive(file, folder / "made")
    except vgraph.VGraphError:
        assert sorted(folder.iterdir()) == [file], "what was refused has left something"
        raise
    assert {path.name for path in folder.iterdir()} == {file.name, "made"}, "something lies outside"


# ---------------------------------------------------------------- plans and checkpoints
class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu().sum()


def _plans(folder: Path) -> list[Loader]:
    x = torch.rand(4, 4)
    plan = vgraph.parallelize(Small(), (x,), 2)
    plan.save(folder / "plan.json")
    profile = Profile({"cpu": {"mm": 1e-3, "add": 2}}, {"cpu -> cpu": (1e-6, 1e10)}, {"cpu": "measured"}).to_text()
    saved = (folder / "plan.json").read_bytes()
    return [
        Loader("Plan.load", {"p.json": saved}, lambda place: plan.load(place / "p.json"), _sealed_plan),
        Loader("Profile.load", {"p.json": profile.encode()}, lambda place: Profile.load(place / "p.json")),
        Loader("read_dot", {"g.dot": format_dot(tree(2)).encode()}, lambda place: read_dot(place / "g.dot")),
    ]


def _sealed_plan(content: bytes) -> bytes:
    try:
        plan = json.loads(content)
        plan.pop(CHECKSUM, None)
        return json.dumps({**plan, CHECKSUM: zlib.crc32(json.dumps(plan).encode())}).encode()
    except (ValueError, AttributeError, RecursionError):
        return content


def _checkpoint(folder: Path) -> Loader:
    model = Small()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    parts: dict[str, Any] = {"model": model, "optimizer": optimizer}

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).backward()
        optimizer.step()

    step()
    entry = {"seed": 0, "epoch": 1, "loss": 0.5, "val": 50.0, "test": 51.0, "seconds": 1.0}
    save_checkpoint(folder / "c.pt", {"model": "small"}, parts, Progress(0, 1, 1, [2, 0, 1], 0.5, 1.0, [entry]))

    def load(place: Path) -> None:
        before = str((model.state_dict(), optimizer.state_dict(), random_states()))
        try:
            load_checkpoint(place / "c.pt", {"model": "small"}).restore(parts, 3)
        except vgraph.VGraphError:
            after = str((model.state_dict(), optimizer.state_dict(), random_states()))
            assert after == before, "what was refused has changed something"
            raise
        step()
        torch.rand(1), np.random.rand(), random.random()

    return Loader("load_checkpoint", {"c.pt": (folder / "c.pt").read_bytes()}, load)
