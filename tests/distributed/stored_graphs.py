"""One graph stored in every format that the partitioner reads."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

import vgraph

CODES = {torch.float32: (2, 32), torch.int64: (0, 64), torch.bool: (1, 1)}


def plain_graph() -> vgraph.Graph:
    torch.manual_seed(0)
    g = vgraph.graph((torch.randint(12, (40,)), torch.randint(12, (40,))), num_nodes=12)
    g.ndata["feat"], g.ndata["label"] = torch.rand(12, 3), torch.arange(12) % 3
    return g


def typed_graph() -> vgraph.Graph:
    torch.manual_seed(0)
    relations: Any = {
        ("user", "follows", "user"): (torch.randint(9, (30,)), torch.randint(9, (30,))),
        ("user", "likes", "item"): (torch.randint(9, (20,)), torch.randint(5, (20,))),
    }
    g = vgraph.heterograph(relations, {"user": 9, "item": 5})
    g.nodes["item"].data["feat"] = torch.rand(5, 2)
    g.edges["likes"].data["w"] = torch.rand(20)
    return g


def store_ogb(g: vgraph.Graph, folder: Path) -> Path:
    (folder / "raw").mkdir(parents=True)
    (folder / "split" / "time").mkdir(parents=True)
    np.savez_compressed(
        folder / "raw" / "data.npz",
        edge_index=torch.stack(g.edges()).numpy(),
        node_feat=g.ndata["feat"].numpy(),
        num_nodes_list=np.array([12]),
        num_edges_list=np.array([40]),
    )
    np.savez_compressed(folder / "raw" / "node-label.npz", node_label=g.ndata["label"].numpy())
    (folder / "split" / "time" / "train.csv.gz").write_bytes(gzip.compress(b"1\n3\n", mtime=0))
    return folder


def store_pair(g: vgraph.Graph, folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, array in zip(("src", "dst"), g.edges(), strict=True):
        np.save(folder / f"{name}.npy", array.numpy().astype(np.int32))
    np.save(folder / "node_feat.npy", np.asfortranarray(g.ndata["feat"].numpy()))
    return folder


def store_chunked(g: vgraph.Graph, folder: Path) -> Path:
    """The first relation as CSV in two chunks, the second as .npy; features of items in two chunks."""
    folder.mkdir(parents=True)
    follows, likes = (torch.stack(g.edges(etype=e), 1) for e in ("follows", "likes"))
    for number, some in enumerate(follows.tensor_split(2)):
        (folder / f"follows{number}.csv").write_text("".join(f"{a} {b}\n" for a, b in some.tolist()))
    np.save(folder / "likes.npy", likes.numpy())
    for number, rows in enumerate(g.nodes["item"].data["feat"].tensor_split(2)):
        np.save(folder / f"feat{number}.npy", rows.numpy())
    np.save(folder / "w.npy", g.edges["likes"].data["w"].numpy())
    csv, plain = {"name": "csv", "delimiter": " "}, {"name": "numpy"}
    content = {
        "graph_name": "shop",
        "node_type": ["user", "item"],
        "num_nodes_per_chunk": [[5, 4], [3, 2]],
        "edge_type": ["user:follows:user", "user:likes:item"],
        "num_edges_per_chunk": [[15, 15], [10, 10]],
        "edges": {
            "user:follows:user": {"format": csv, "data": ["follows0.csv", "follows1.csv"]},
            "user:likes:item": {"format": plain, "data": ["likes.npy"]},
        },
        "node_data": {"item": {"feat": {"format": plain, "data": ["feat0.npy", "feat1.npy"]}}},
        "edge_data": {"user:likes:item": {"w": {"format": plain, "data": ["w.npy"]}}},
    }
    (folder / "metadata.json").write_text(json.dumps(content))
    return folder


def dgl_tensors(tensors: dict[str, Tensor]) -> bytes:
    """As ``dgl.data.utils.save_tensors`` lays them out."""
    data = struct.pack("<QQQ", 0xDD5A9FBE3FA2443F, len(tensors), len(tensors))
    for name, tensor in tensors.items():
        array = tensor.numpy()
        data += struct.pack("<Q", len(name)) + name.encode()
        data += struct.pack("<QQiiiBBH", 0xDD5E40F096B4A13F, 0, 1, 0, array.ndim, *CODES[tensor.dtype], 1)
        data += struct.pack(f"<{array.ndim}qq", *array.shape, array.nbytes) + array.tobytes()
    return data


OWN = {"user": [(0, 5), (5, 9)], "item": [(0, 3), (3, 5)]}  # of each part, among the ids of their type
NODE_MAP = {"user": [[0, 5], [8, 12]], "item": [[5, 8], [12, 14]]}  # among the ids of all types


def store_dist_dgl(g: vgraph.Graph, folder: Path) -> Path:
    """``typed_graph`` in two parts, each with what its edges come from."""
    parts, edge_map = dict[str, Any](), dict[str, list[list[int]]]({":".join(e): [] for e in g.canonical_etypes})
    for part in (0, 1):
        path = folder / f"part{part}"
        path.mkdir(parents=True)
        rows, features = _part_edges(g, part, edge_map)
        vgraph.save_graphs(path / "graph.dgl", [_part_graph(rows, part)])
        first, last = OWN["item"][part]
        rows_of_items = g.nodes["item"].data["feat"][first:last]
        (path / "node_feat.dgl").write_bytes(dgl_tensors({"item/feat": rows_of_items}))
        (path / "edge_feat.dgl").write_bytes(dgl_tensors(features))
        names = {"part_graph": "graph", "node_feats": "node_feat", "edge_feats": "edge_feat"}
        parts[f"part-{part}"] = {key: f"part{part}/{name}.dgl" for key, name in names.items()}
    content = {
        "graph_name": "shop",
        "num_parts": 2,
        "node_map": NODE_MAP,
        "edge_map": edge_map,
        "ntypes": {"user": 0, "item": 1},
        "etypes": {":".join(etype): kind for kind, etype in enumerate(g.canonical_etypes)},
        **parts,
    }
    (folder / "shop.json").write_text(json.dumps(content))
    return folder


def _part_edges(g: vgraph.Graph, part: int, edge_map: dict[str, list[list[int]]]) -> tuple[list[Any], dict[str, Any]]:
    """(source, destination, type, id) of the edges of a part, by ids of all types; features of these."""
    numbers = {t: [m for first, last in ranges for m in range(first, last)] for t, ranges in NODE_MAP.items()}
    rows, features = list[Any](), dict[str, Any]()
    at = max((pairs[-1][1] for pairs in edge_map.values() if pairs), default=0)
    for kind, etype in enumerate(g.canonical_etypes):
        first, last = OWN[etype[2]][part]
        src, dst = g.edges(etype=etype)
        mine = ((dst >= first) & (dst < last)).nonzero().squeeze(1).tolist()
        edge_map[":".join(etype)].append([at, at + len(mine)])
        for number, edge in enumerate(mine):
            ends = (numbers[etype[0]][int(src[edge])], numbers[etype[2]][int(dst[edge])])
            rows.append((*ends, kind, at + number))
        at += len(mine)
        if "w" in g.edges[etype].data:
            features[f"{':'.join(etype)}/w"] = g.edges[etype].data["w"][mine]
    return rows, features


def _part_graph(rows: list[Any], part: int) -> vgraph.Graph:
    """Its edges in any order, and one of another part's."""
    rows = [*rows[::-1], (rows[0][0], rows[0][1], 0, 99)]
    own = {n for ranges in NODE_MAP.values() for n in range(*ranges[part])}
    ids = sorted(own | {row[end] for row in rows for end in (0, 1)})
    src, dst, kinds, edges = (torch.tensor(column) for column in zip(*rows, strict=True))
    local = torch.full((20,), -1).scatter(0, torch.tensor(ids), torch.arange(len(ids)))
    g = vgraph.graph((local[src], local[dst]), num_nodes=len(ids))
    g.ndata["_ID"], g.edata["_ID"], g.edata["_TYPE"] = torch.tensor(ids), edges, kinds
    g.edata["inner_edge"] = (edges != 99).to(torch.uint8)
    return g


def store_all(folder: Path) -> dict[str, tuple[Path, vgraph.Graph]]:
    """Files of every format, and the graph that they hold."""
    plain, typed = plain_graph(), typed_graph()
    src, dst = plain.edges()
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "edges.npy", torch.stack([src, dst], 1).numpy())
    sums: Any = scipy.sparse.coo_matrix((np.arange(1, 41), (src.numpy(), dst.numpy())), shape=(12, 12))
    for name in ("csr", "csc"):
        scipy.sparse.save_npz(folder / f"{name}.npz", sums.asformat(name))
    scipy.sparse.save_npz(folder / "coo.npz", sums)
    vgraph.save_graphs(folder / "typed.bin", [typed])
    return {
        "ogb": (store_ogb(plain, folder / "ogb"), plain),
        "pair": (store_pair(plain, folder / "pair"), plain),
        "npy": (folder / "edges.npy", plain),
        "csr": (folder / "csr.npz", plain),
        "csc": (folder / "csc.npz", plain),
        "coo": (folder / "coo.npz", plain),
        "bin": (folder / "typed.bin", typed),
        "chunked": (store_chunked(typed, folder / "chunked"), typed),
        "dist_dgl": (store_dist_dgl(typed, folder / "dist_dgl"), typed),
    }
