"""One graph with labels at its nodes: Reddit, Yelp, Flickr, co-purchases, co-authors, WikiCS, pages of the web, actors.

Takes: folders as DGL's archives have them. Gives: data sets of one graph. Runs once per set.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import vgraph
from vgraph.compat.data import dgl_url
from vgraph.compat.datasets.kinds import (
    Named,
    NamedVerbose,
    StoredGraph,
    Transform,
    floats,
    graph_of,
    in_order,
    mask_of,
    whole,
)
from vgraph.errors import DataError
from vgraph.files import dense_rows, most_dense, read_array, read_arrays, read_json, read_sparse, read_text, sparse_of

SPLITS = 10


class RedditDataset(StoredGraph):
    """Posts of Reddit, from ``reddit_graph.npz`` and ``reddit_data.npz``; 41 classes."""

    num_classes = 41

    def __init__(
        self,
        self_loop: bool = False,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = False,
        transform: Transform | None = None,
    ) -> None:
        name = "reddit_self_loop" if self_loop else "reddit"
        url = dgl_url(f"dataset/{name}.zip")
        super().__init__(name, url, raw_dir, force_reload=force_reload, verbose=verbose, transform=transform)

    def read(self, folder: Path) -> None:
        g = vgraph.from_scipy(read_sparse(folder / f"{self.name}_graph.npz"))
        found = read_arrays(folder / "reddit_data.npz", ("feature", "label", "node_types"))
        for number, part in enumerate(("train", "val", "test"), 1):
            g.ndata[f"{part}_mask"] = torch.from_numpy(found["node_types"] == number)
        g.ndata["feat"], g.ndata["label"] = floats(found["feature"]), whole(found["label"])
        self._graph = in_order(g)


class _Saint(StoredGraph):
    """A graph in the form of GraphSAINT."""

    set_name = ""

    def __init__(
        self,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = False,
        transform: Transform | None = None,
        reorder: bool = False,
    ) -> None:
        self._reorder = reorder
        url = dgl_url(f"dataset/{self.set_name}.zip")
        super().__init__(self.set_name, url, raw_dir, force_reload=force_reload, verbose=verbose, transform=transform)

    def read(self, folder: Path) -> None:
        g = vgraph.from_scipy(read_sparse(folder / "adj_full.npz"))
        count = g.num_nodes()
        classes, roles = read_json(folder / "class_map.json"), read_json(folder / "role.json")
        labels = [classes[str(node)] for node in range(count)]
        g.ndata["feat"], g.ndata["label"] = floats(read_array(folder / "feats.npy")), whole(labels)
        for part, role in (("train", "tr"), ("val", "va"), ("test", "te")):
            g.ndata[f"{part}_mask"] = mask_of(roles[role], count)
        self._graph = in_order(g) if self._reorder else g


class YelpDataset(_Saint):
    """Reviews of Yelp, from ``adj_full.npz``, ``feats.npy``, ``class_map.json``, ``role.json``; 100 labels a node."""

    set_name, num_classes = "yelp", 100


class FlickrDataset(_Saint):
    """Pictures of Flickr, from files as of ``YelpDataset``."""

    set_name, num_classes = "flickr", 7


class _Benchmark(Named, StoredGraph):
    """A graph of the benchmark of Shchur et al. 2018, from ``name.npz``."""

    def read(self, folder: Path) -> None:
        path = folder / f"{self.name}.npz"
        names = [f"{of}_{part}" for of in ("adj", "attr") for part in ("data", "indices", "indptr", "shape")]
        found = read_arrays(path, (*names, "attr_matrix", "labels"))
        adjacency = sparse_of(found, path, prefix="adj_").tocoo()
        g = vgraph.to_bidirected(graph_of(adjacency.row, adjacency.col, adjacency.shape[0]))
        rows = (
            found["attr_matrix"] if "attr_matrix" in found else dense_rows(sparse_of(found, path, prefix="attr_"), path)
        )
        g.ndata["feat"], g.ndata["label"] = floats(rows), whole(found["labels"])
        self._graph = in_order(g)
        self._data = [self._graph]


class CoraFullDataset(_Benchmark):
    """All of Cora, from ``cora_full.npz``."""

    set_name, num_classes = "cora_full", 70


class CoauthorCSDataset(_Benchmark):
    """Who has written with whom in computer science, from ``coauthor_cs.npz``."""

    set_name, num_classes = "coauthor_cs", 15


class CoauthorPhysicsDataset(_Benchmark):
    """Who has written with whom in physics, from ``coauthor_physics.npz``."""

    set_name, num_classes = "coauthor_physics", 5


class AmazonCoBuyComputerDataset(_Benchmark):
    """Computers bought together, from ``amazon_co_buy_computer.npz``."""

    set_name, num_classes = "amazon_co_buy_computer", 10


class AmazonCoBuyPhotoDataset(_Benchmark):
    """Cameras bought together, from ``amazon_co_buy_photo.npz``."""

    set_name, num_classes = "amazon_co_buy_photo", 8


class CoraFull(CoraFullDataset):
    """DGL's older name."""


def AmazonCoBuy(name: str) -> _Benchmark:
    """DGL's older name of two sets: "computers" and "photo"."""
    return _one_of(name, {"computers": AmazonCoBuyComputerDataset, "photo": AmazonCoBuyPhotoDataset})


def Coauthor(name: str) -> _Benchmark:
    """DGL's older name of two sets: "cs" and "physics"."""
    return _one_of(name, {"cs": CoauthorCSDataset, "physics": CoauthorPhysicsDataset})


def _one_of(name: str, known: dict[str, type[_Benchmark]]) -> _Benchmark:
    if name not in known:
        raise DataError(f"there is no set {name!r}", cure=f"name one of {', '.join(known)}")
    return known[name]()


class WikiCSDataset(Named, StoredGraph):
    """Articles on computer science, from ``data.json``; masks of 20 splits."""

    set_name, file, num_classes = "wiki_cs", "wiki_cs.zip", 10

    def read(self, folder: Path) -> None:
        data = read_json(folder / "data.json")
        counts = [len(others) for others in data["links"]]
        ends = np.repeat(np.arange(len(counts)), counts), [other for others in data["links"] for other in others]
        g = vgraph.to_bidirected(graph_of(*ends, len(counts)))
        g.ndata["feat"], g.ndata["label"] = floats(data["features"]), whole(data["labels"])
        for name in ("train", "val", "stopping"):
            masks = np.array(data[f"{name}_masks"], np.bool_)
            g.ndata[f"{name}_mask"] = torch.from_numpy(np.ascontiguousarray(masks.T))
        g.ndata["test_mask"] = torch.from_numpy(np.array(data["test_mask"], np.bool_))
        self._graph = in_order(g)


class _Pages(NamedVerbose, StoredGraph):
    """A graph of Pei et al. 2020 with ten splits, from ``out1_node_feature_label.txt`` and ``out1_graph_edges.txt``."""

    def read(self, folder: Path) -> None:
        rows = _table(folder / "out1_node_feature_label.txt", 3)
        label = whole([int(words[2]) for words in rows])
        feat = self.features([[float(word) for word in words[1].split(",")] for words in rows], folder)
        ends = whole([[int(word) for word in words] for words in _table(folder / "out1_graph_edges.txt", 2)])
        # a line is a destination and a source
        g = vgraph.graph((ends.reshape(-1, 2)[:, 1], ends.reshape(-1, 2)[:, 0]), num_nodes=len(rows))
        g.ndata["feat"], g.ndata["label"] = feat, label
        self.num_classes = int(label.max()) + 1
        parts = [
            read_arrays(folder / f"{self.name}_split_0.6_0.2_{number}.npz", ("train_mask", "val_mask", "test_mask"))
            for number in range(SPLITS)
        ]
        for name in ("train_mask", "val_mask", "test_mask"):
            g.ndata[name] = torch.stack([torch.from_numpy(part[name] != 0) for part in parts], 1)
        self._graph = self._g = g

    def features(self, rows: list[list[float]], folder: Path) -> Tensor:
        """What stands in the table, row by row."""
        return floats(rows)


def _table(path: Path, columns: int) -> list[list[str]]:
    """The lines below the header, cell by cell; the first cells of nodes are 0, 1, ..."""
    rows = [line.split("\t") for line in read_text(path).split("\n")[1:] if line]
    wrong = next((number for number, row in enumerate(rows, 2) if len(row) != columns), None)
    if wrong is not None:
        raise DataError(f"there are not {columns} cells", line=f"{path}:{wrong}", cure="separate them by tabs")
    return sorted(rows, key=lambda row: int(row[0])) if columns > 2 else rows


class ChameleonDataset(_Pages):
    """Pages of Wikipedia on chameleons."""

    set_name = "chameleon"


class SquirrelDataset(_Pages):
    """Pages of Wikipedia on squirrels."""

    set_name = "squirrel"


class CornellDataset(_Pages):
    """Pages of Cornell University."""

    set_name = "cornell"


class TexasDataset(_Pages):
    """Pages of the University of Texas."""

    set_name = "texas"


class WisconsinDataset(_Pages):
    """Pages of the University of Wisconsin."""

    set_name = "wisconsin"


class ActorDataset(_Pages):
    """Actors who stand in articles together; a row of features is a list of the columns that are 1."""

    set_name = "actor"

    def features(self, rows: list[list[float]], folder: Path) -> Tensor:
        width = int(max(max(row) for row in rows)) + 1
        path = folder / "out1_node_feature_label.txt"
        if 4 * width * len(rows) > most_dense(path.stat().st_size):
            raise DataError(f"{len(rows)} rows of {width} columns", line=str(path), cure="number columns 0, 1, ...")
        feat = torch.zeros(len(rows), width)
        for number, row in enumerate(rows):
            feat[number, torch.tensor(row, dtype=torch.int64)] = 1.0
        return feat
