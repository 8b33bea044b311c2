"""Many graphs: proteins, motifs, spread news, and sets that DGL's archives hold as graphs.

Takes: folders as DGL's archives have them. Gives: data sets of graphs. Runs once per set.
"""

from __future__ import annotations

from pathlib import Path

import networkx
import numpy as np
import torch
from torch import Tensor

import vgraph
from vgraph.compat.data import dgl_url
from vgraph.compat.datasets.kinds import (
    InMode,
    ManyGraphs,
    NamedVerbose,
    Transform,
    floats,
    graph_of,
    mask_of,
    parted,
    whole,
)
from vgraph.errors import DataError
from vgraph.files import dense_rows, read_array, read_json, read_pickle, read_sparse, read_text


class PPIDataset(InMode, ManyGraphs):
    """Proteins of 24 tissues, from ``mode_graph.json`` and ``mode_labels.npy``, ``_feats``, ``_graph_id``.

    An item has ``feat`` and ``label``, both float32.
    """

    set_name = "ppi"
    num_labels = 121

    def read(self, folder: Path) -> None:
        data = read_json(folder / f"{self.mode}_graph.json")
        labels, feats, owner = (
            read_array(folder / f"{self.mode}_{part}.npy") for part in ("labels", "feats", "graph_id")
        )
        known = networkx.DiGraph() if data["directed"] else networkx.Graph()
        known.add_nodes_from(node["id"] for node in data["nodes"])
        known.add_edges_from((link["source"], link["target"]) for link in data["links"])
        self.graph = vgraph.from_networkx(networkx.DiGraph(known))
        first, end = {"train": (1, 21), "valid": (21, 23), "test": (23, 25)}[self.mode]
        self.graphs = []
        for number in range(first, end):
            ids = np.flatnonzero(owner == number)
            g = self.graph.subgraph(torch.from_numpy(ids))
            g.ndata["feat"], g.ndata["label"] = floats(feats[ids]), floats(labels[ids])
            self.graphs.append(g)


class LegacyPPIDataset(PPIDataset):
    """The same; an item is a graph, its features and its labels."""

    def __getitem__(self, idx: int) -> tuple[vgraph.Graph, Tensor, Tensor]:
        g = self.transformed(idx)
        return g, g.ndata["feat"], g.ndata["label"]


class _Stored(InMode, ManyGraphs):
    """Graphs in one of DGL's files of graphs."""

    stem = ""

    def read(self, folder: Path) -> None:
        self.graphs, self._labels = vgraph.load_graphs(str(folder / f"{self.stem}_{self.mode}.bin"))


class CLUSTERDataset(_Stored):
    """Graphs of a stochastic block model, from ``CLUSTER_mode.bin``."""

    set_name, file, stem, num_classes = "cluster", "SBM_CLUSTER.zip", "CLUSTER", 6


class PATTERNDataset(_Stored):
    """Graphs with a hidden pattern, from ``SBM_PATTERN_mode.bin``."""

    set_name, file, stem, num_classes = "pattern", "SBM_PATTERN.zip", "SBM_PATTERN", 2


class ZINCDataset(_Stored):
    """Molecules with their solubility, from ``ZincDGL_mode.bin``."""

    set_name, file, stem, num_atom_types, num_bond_types = "zinc", "ZINC12k.zip", "ZincDGL", 28, 4

    def __getitem__(self, idx: int) -> tuple[vgraph.Graph, Tensor]:
        return self.transformed(idx), self._labels["g_label"][idx]


class BA2MotifDataset(NamedVerbose, ManyGraphs):
    """Random graphs with one of two motifs, from ``BA-2motifs.pkl`` in ``raw_dir``."""

    set_name, file, num_classes = "BA-2motifs", "BA-2motif.pkl", 2

    @property
    def raw_path(self) -> str:
        return str(Path(self.raw_dir) / f"{self.name}.pkl")

    suffix = ".pkl"

    def download(self) -> None:
        raise self.absent(self.raw_path)

    def read(self, folder: Path) -> None:
        adjacencies, features, labels = read_pickle(folder)
        self.graphs, self.labels = [], whole(labels)
        for matrix, rows in zip(adjacencies, features, strict=True):
            src, dst = np.nonzero(matrix)
            g = graph_of(src, dst, len(matrix))
            g.ndata["feat"] = torch.from_numpy(rows.copy())
            self.graphs.append(g)

    def __getitem__(self, idx: int) -> tuple[vgraph.Graph, Tensor]:
        return self.transformed(idx), self.labels[idx]


class FakeNewsDataset(ManyGraphs):
    """How true and false news spread; ``feature`` has a row for every node of all graphs."""

    num_classes = 2

    def __init__(
        self, name: str, feature_name: str, raw_dir: str | None = None, transform: Transform | None = None
    ) -> None:
        files = {"gossipcop": "FakeNewsGOS.zip", "politifact": "FakeNewsPOL.zip"}
        features = ("bert", "content", "profile", "spacy")
        if name not in files or feature_name not in features:
            cure = f"name one of {', '.join(files)} and one of {', '.join(features)}"
            raise DataError(f"there is no news {name!r} with features {feature_name!r}", cure=cure)
        self.feature_name = feature_name
        super().__init__(name, dgl_url(f"dataset/{files[name]}"), raw_dir, transform=transform)

    def read(self, folder: Path) -> None:
        self.labels = whole(read_array(folder / "graph_labels.npy"))
        owner = whole(read_array(folder / "node_graph_id.npy")).numpy()
        lines = read_text(folder / "A.txt").split("\n")
        ends = np.array([[int(word) for word in line.split(",")] for line in lines if line.strip()], np.int64).reshape(
            -1, 2
        )
        self.graphs = parted(graph_of(ends[:, 0], ends[:, 1], len(owner)), owner, self.num_graphs)
        for part in ("train", "val", "test"):
            setattr(self, f"{part}_mask", mask_of(read_array(folder / f"{part}_idx.npy"), self.num_graphs))
        path = folder / f"new_{self.feature_name}_feature.npz"
        self.feature = torch.from_numpy(dense_rows(read_sparse(path), path))

    @property
    def num_graphs(self) -> int:
        return len(self.labels)

    def __getitem__(self, idx: int) -> tuple[vgraph.Graph, Tensor]:
        return self.transformed(idx), self.labels[idx]
