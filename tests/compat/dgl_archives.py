"""Small sets in the form that DGL's archives have: what is published, with a few nodes each.

Takes: the ``raw_dir`` of a set. Writes: its folder, under the name that DGL gives it.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import zipfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp
import torch

import vgraph

Content = bytes | str | dict[str, Any]
PARTS = ("train", "val", "test")


def put(folder: Path, **files: Content) -> None:
    """Files by name; ``__`` stands for a point."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = json.dumps(content) if isinstance(content, dict) else content
        path = folder / name.replace("__", ".")
        path.write_bytes(data.encode() if isinstance(data, str) else data)


def npz(**arrays: Any) -> bytes:
    made = io.BytesIO()
    np.savez(made, **arrays)
    return made.getvalue()


def npy(rows: Any) -> bytes:
    made = io.BytesIO()
    np.save(made, np.asarray(rows))
    return made.getvalue()


def sparse(matrix: Any) -> bytes:
    made = io.BytesIO()
    sp.save_npz(made, matrix)
    return made.getvalue()


def zipped(**files: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "."), content)
    return made.getvalue()


def ring(count: int, kind: Callable[..., Any] = sp.coo_matrix) -> Any:
    """Every node and the next one, in both directions."""
    i = np.arange(count)
    ends = np.concatenate([i, (i + 1) % count]), np.concatenate([(i + 1) % count, i])
    return kind((np.ones(2 * count), ends), shape=(count, count))


# ---------------------------------------------------------------- sets
def planetoid(raw: Path, protocol: int = 2) -> dict[str, bytes]:
    """Five nodes, then a test of 6 and 7 in another order: 5 is in no file."""
    feat = sp.csr_matrix(np.array([[1, 1, 0], [0, 2, 0], [0, 0, 3], [1, 0, 0], [0, 0, 0]], np.float32))
    onehot = np.eye(2, dtype=np.int32)[[0, 1, 0, 1, 1]]
    lists: defaultdict[int, list[int]] = defaultdict(list)
    for u in range(8):
        lists[u] = [(u + 1) % 8, (u - 1) % 8]
    tx = sp.csr_matrix(np.array([[0, 0, 5], [4, 4, 0], [2, 0, 0]], np.float32))
    ty = np.eye(2, dtype=np.int32)[[1, 0, 1]]
    objects = {"x": feat[:2], "y": onehot[:2], "tx": tx, "ty": ty, "allx": feat, "ally": onehot, "graph": lists}
    return {f"ind.cora_v2.{name}": pickle.dumps(thing, protocol) for name, thing in objects.items()} | {
        "ind.cora_v2.test.index": b"7\n5\n6\n"
    }


def cora(raw: Path) -> None:
    put(raw / "cora_v2_d697a464", **{name.replace(".", "__"): data for name, data in planetoid(raw).items()})


def cora_zip(raw: Path) -> None:
    put(raw, cora_v2__zip=zipped(**planetoid(raw)))


def reddit(raw: Path) -> None:
    data = npz(feature=np.eye(4, 3), label=np.arange(4), node_types=np.array([1, 2, 3, 1]), node_ids=np.arange(4))
    put(raw / "reddit", reddit_graph__npz=sparse(ring(4)), reddit_data__npz=data)


def saint(name: str) -> Callable[[Path], None]:
    def write(raw: Path) -> None:
        label = {str(i): [i, 0] if name == "yelp" else i for i in range(4)}
        put(
            raw / name,
            adj_full__npz=sparse(ring(4, sp.csr_matrix)),
            feats__npy=npy(np.eye(4)),
            class_map__json=label,
            role__json={"tr": [0, 3], "va": [1], "te": [2]},
        )

    return write


def benchmark(name: str) -> Callable[[Path], None]:
    def write(raw: Path) -> None:
        adjacency, feat = sp.csr_matrix(np.triu(ring(4).toarray())), sp.csr_matrix(np.eye(4, 5))
        arrays = {
            f"{of}_{part}": getattr(matrix, part)
            for of, matrix in (("adj", adjacency), ("attr", feat))
            for part in ("data", "indices", "indptr", "shape")
        }
        names = np.array(["a", None], object)  # pickled, and not looked at
        put(raw / name, **{f"{name}__npz": npz(**arrays, labels=np.arange(4), class_names=names)})

    return write


def wiki(raw: Path) -> None:
    masks = {f"{name}_masks": [[True, False, False]] * 2 for name in ("train", "val", "stopping")}
    data = {"features": [[1.0]] * 3, "labels": [0, 1, 2], "links": [[1], [2], []], "test_mask": [False, True, True]}
    put(raw / "wiki_cs", data__json={**data, **masks})


def pages(name: str, rows: tuple[str, ...] = ("1,0", "0,1", "1,1")) -> Callable[[Path], None]:
    def write(raw: Path) -> None:
        table = "".join(f"{i}\t{row}\t{i}\n" for i, row in enumerate(rows))
        masks = npz(**{f"{part}_mask": np.array([1, 0, 0]) for part in PARTS})
        put(
            raw / name,
            out1_node_feature_label__txt="id\tfeature\tlabel\n" + table,
            out1_graph_edges__txt="a\tb\n0\t1\n2\t1\n",
            **{f"{name}_split_0__6_0__2_{i}__npz": masks for i in range(10)},
        )

    return write


def fraud(name: str, file: str, relations: tuple[str, ...]) -> Callable[[Path], None]:
    def write(raw: Path) -> None:
        made = io.BytesIO()
        arrays = {relation: ring(6, sp.csc_matrix) for relation in relations}
        arrays |= {"features": sp.csc_matrix(np.eye(6)), "label": np.array([[0, 1, 0, 1, 0, 1]])}
        scipy.io.savemat(made, arrays, do_compression=True)
        put(raw / name, **{file.replace(".", "__"): made.getvalue()})

    return write


def ppi(raw: Path) -> None:
    links = [{"source": 0, "target": 1}, {"source": 2, "target": 3}]
    graph = {"directed": False, "nodes": [{"id": i} for i in range(4)], "links": links}
    put(
        raw / "ppi",
        valid_graph__json=graph,
        valid_labels__npy=npy(np.ones((4, 121))),
        valid_feats__npy=npy(np.arange(8.0).reshape(4, 2)),
        valid_graph_id__npy=npy([21, 21, 22, 22]),
    )


def stored(name: str, file: str) -> Callable[[Path], None]:
    def write(raw: Path) -> None:
        (raw / name).mkdir(parents=True)
        graphs = [vgraph.graph(([0], [1])), vgraph.graph(([0, 1], [1, 0]))]
        vgraph.save_graphs(str(raw / name / file), graphs, {"g_label": torch.tensor([1.0, 2.0])})

    return write


def motifs(raw: Path) -> None:
    matrices = np.array([ring(3).toarray(), ring(3).toarray()])
    put(raw, **{"BA-2motifs__pkl": pickle.dumps((matrices, np.ones((2, 3, 10)), np.array([0, 1])))})


def news(raw: Path) -> None:
    put(
        raw / "politifact",
        graph_labels__npy=npy([0, 1]),
        node_graph_id__npy=npy([0, 0, 1, 1]),
        A__txt="0, 1\n2, 3\n3, 2\n",
        train_idx__npy=npy([0]),
        val_idx__npy=npy([1]),
        test_idx__npy=npy([1]),
        new_bert_feature__npz=sparse(sp.csr_matrix(np.eye(4))),
    )


def legacy_tu(raw: Path) -> None:
    put(
        raw / "SMALL" / "SMALL",
        SMALL_A__txt="1, 2\n2, 1\n3, 4\n4, 5\n",
        SMALL_graph_indicator__txt="1\n1\n2\n2\n2\n",
        SMALL_graph_labels__txt="-1\n1\n",
        SMALL_node_labels__txt="3\n4\n3\n5\n3\n",
    )


def gin(raw: Path) -> None:
    put(raw / "GINDataset" / "dataset" / "MM", MM__txt="1\n2 7\n5 1 1\n6 1 0\n")


def gin_of_whole_tags(raw: Path) -> None:
    put(raw / "GINDataset" / "dataset" / "TWICE", TWICE__txt="1\n3 7\n2 1 1\n0 2 0 2\n1 1 1\n")


def qm7b(raw: Path) -> None:
    made = io.BytesIO()
    scipy.io.savemat(made, {"X": np.array([[[1.0, 2.0], [2.0, 0.0]]] * 2), "T": np.ones((2, 14))})
    put(raw, qm7b__mat=made.getvalue())


def qm9(raw: Path) -> None:
    places = np.array([[0, 0, 0], [1, 0, 0], [9, 0, 0], [0, 0, 0], [0, 1, 0]], float)
    arrays = {"N": np.array([3, 2]), "R": places, "Z": np.array([6, 1, 1, 8, 1]), "mu": np.array([0.5, 1.5])}
    put(raw, qm9_eV__npz=npz(**arrays, id=np.array(["a", None], object)))


def qm9_edge(raw: Path) -> None:
    put(
        raw,
        qm9_edge__npz=npz(
            n_node=np.array([2, 3]), n_edge=np.array([2, 1]), node_attr=np.eye(5, 2), node_pos=np.zeros((5, 3)),
            edge_attr=np.ones((3, 4)), src=np.array([0, 1, 2]), dst=np.array([1, 0, 0]),
            targets=np.arange(38.0).reshape(2, 19),
        ),
    )  # fmt: skip


def knowledge(name: str) -> Callable[[Path], None]:
    def write(raw: Path) -> None:
        put(
            raw / name,
            entities__dict="0\ta\n1\tb\n2\tc\n",
            relations__dict="0\tr\n1\ts\n",
            train__txt="a\ts\tb\nb\tr\tc\n",
            valid__txt="c\ts\ta\n",
            test__txt="a\tr\tc\n",
        )

    return write


def sentences(raw: Path) -> None:
    put(raw / "sst", tiny__txt="(3 (2 It) (4 (2 was) (1 Fine)))\n(2 so)\n", vocab__txt="it\nfine\n")


def rdf(name: str, triples: str, split: tuple[str, str]) -> Callable[[Path], None]:
    def write(raw: Path) -> None:
        head = "x\ty\tz\n"
        put(raw / name, a__nt=triples, trainingSet__tsv=head + split[0], testSet__tsv=head + split[1])

    return write


def bitcoin(raw: Path) -> None:
    rows = [(1, 2, 4, 0), (2, 3, -1, 1300000), (3, 1, 2, 4000000)]
    text = "".join(f"{u},{v},{rate},{time}.5\n" for u, v, rate, time in rows)
    put(raw, bitcoinotc__csv__gz=gzip.compress(text.encode()))


def events(name: str, hours: int) -> Callable[[Path], None]:
    def write(raw: Path) -> None:
        put(raw / name, train__txt=f"0\t5\t1\t0\t0\n1\t6\t2\t{hours}\t0\n2\t7\t0\t{2 * hours}\t0\n")

    return write
