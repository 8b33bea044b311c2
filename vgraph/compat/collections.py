"""``dgl.data``: collections of labelled graphs, and small graphs that need no file.

Takes: a folder. Gives: data sets of graphs. Runs once per file. Nothing is downloaded.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import vgraph
from vgraph.compat.data import DGLBuiltinDataset, DGLDataset, load_info, save_info, short_hash
from vgraph.compat.files import extract_archive
from vgraph.data import load_tu
from vgraph.errors import DataError
from vgraph.files import damage_told, most_dense

Transform = Callable[[vgraph.Graph], vgraph.Graph]


class _Labelled(DGLBuiltinDataset):
    """Graphs with a label each."""

    graph_lists: list[vgraph.Graph]
    graph_labels: Tensor

    def __getitem__(self, idx: int) -> tuple[vgraph.Graph, Tensor]:
        g = self.graph_lists[idx]
        return self._changed(g), self.graph_labels[idx]

    def __len__(self) -> int:
        return len(self.graph_lists)


class TUDataset(_Labelled):
    """A set of the TU collection, from ``name.zip`` or ``name/name_A.txt`` and its companions in ``raw_dir``.

    Items are a graph and its label, (1,); features are called ``node_labels``, ``node_attr``, ``edge_labels``.
    """

    def __init__(
        self,
        name: str,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = False,
        transform: Transform | None = None,
    ) -> None:
        url = f"https://www.chrsmrrs.com/graphkerneldatasets/{name}.zip"
        super().__init__(name, url, raw_dir, force_reload=force_reload, verbose=verbose, transform=transform)

    def process(self) -> None:
        edges, owner = self._table("A", int, 2) - 1, self._table("graph_indicator", int, 1)[:, 0]
        labels = self._table("graph_labels", int)
        owner = owner - (owner.min() if len(owner) else 0)
        if not len(owner) or owner.max() >= len(labels):
            raise self._misfit("graph_indicator", f"names other graphs than the {len(labels)} that have labels")
        if edges.size and not (edges.min() >= 0 and edges.max() < len(owner)):
            raise self._misfit("A", f"names other vertices than the {len(owner)} that belong to graphs")
        _, self._numbers = np.unique(labels, return_inverse=True)
        self.graph_labels = torch.from_numpy(self._numbers.reshape(labels.shape))
        self.num_classes = self.num_labels = int(self._numbers.max()) + 1
        g = vgraph.graph((torch.from_numpy(edges[:, 0]), torch.from_numpy(edges[:, 1])), num_nodes=len(owner))
        for frame, name, file, kind in (
            (g.ndata, "node_labels", "node_labels", int),
            (g.ndata, "node_attr", "node_attributes", float),
            (g.edata, "edge_labels", "edge_labels", int),
            (g.edata, "edge_attr", "edge_attributes", float),
        ):
            if self._file(file).exists():
                found = self._table(file, kind)
                if len(found) != frame.num_rows:
                    raise self._misfit(file, f"has {len(found)} rows for {frame.num_rows}")
                frame[name] = torch.from_numpy(found - found.min() if kind is int and found.size else found)
        sizes = np.bincount(owner, minlength=len(labels))
        self.max_num_node = int(sizes.max())
        order = np.argsort(owner, kind="stable")
        self.graph_lists = [g.subgraph(torch.from_numpy(ids)) for ids in np.split(order, sizes.cumsum()[:-1])]

    def statistics(self) -> tuple[int, int, int]:
        """The width of ``feat``, the number of labels, the nodes of the largest graph."""
        return self.graph_lists[0].ndata["feat"].shape[1], self.num_labels, self.max_num_node

    def _file(self, what: str) -> Path:
        folders = Path(self.raw_path) / self.name, Path(self.raw_path)
        return next((f for f in folders if f.is_dir()), folders[1]) / f"{self.name}_{what}.txt"

    def _misfit(self, what: str, fact: str) -> DataError:
        return DataError(f"the table {fact}", line=str(self._file(what)), cure="unpack the set anew")

    def _table(self, what: str, kind: type, columns: int | None = None) -> NDArray[Any]:
        path = self._file(what)
        cure = "unpack the set there; vgraph downloads nothing"
        with damage_told(path, cure, fact="no table can be read"):
            table = _whole_numbers(path) if kind is int else np.loadtxt(path, delimiter=",", ndmin=2)
            if columns not in (None, table.shape[1]):
                raise ValueError(f"it has {table.shape[1]} columns, not {columns}")
            return table


class LegacyTUDataset(TUDataset):
    """A set of the TU collection with ``ndata["feat"]``: attributes, else one-hot labels, else ``hidden_size`` ones.

    ``data_mode`` says which. Labels begin at 0 and keep their gaps, as in DGL.
    """

    def __init__(
        self,
        name: str,
        use_pandas: bool = False,
        hidden_size: int = 10,
        max_allow_node: int | None = None,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = False,
        transform: Transform | None = None,
    ) -> None:
        self.use_pandas, self.hidden_size, self.max_allow_node = use_pandas, hidden_size, max_allow_node
        self._is_made = False
        super().__init__(name, raw_dir, force_reload, verbose, transform)
        self._is_made = True

    @property
    def hash(self) -> str:
        """Eight letters that tell sets of other arguments apart."""
        return short_hash((self.name, self.use_pandas, self.hidden_size, self.max_allow_node))

    def process(self) -> None:
        super().process()
        labels = self._table("graph_labels", int)[:, 0]
        self.graph_labels = torch.from_numpy(labels - labels.min())
        self.num_classes = self.num_labels = int(self.graph_labels.max()) + 1
        known = set(self.graph_lists[0].ndata)
        self.data_mode = next((mode for mode, name in _FEATURES if name in known), "constant")
        numbers = [g.ndata["node_labels"] for g in self.graph_lists] if self.data_mode == "node_label" else []
        width = int(max(rows.max(initial=0) for rows in map(Tensor.numpy, numbers))) + 1 if numbers else 0
        self._refuse_wide(4 * width * sum(map(len, numbers)))
        for place, g in enumerate(self.graph_lists):
            if self.data_mode == "node_attr":
                feat = g.ndata["node_attr"].float()
            elif self.data_mode == "node_label":
                feat = torch.nn.functional.one_hot(numbers[place].reshape(-1), width).float()
            else:
                feat = torch.ones(g.num_nodes(), self.hidden_size)
            for frame in (g.ndata, g.edata):
                for name in ("node_labels", "node_attr", "edge_labels", "edge_attr"):
                    frame.pop(name, None)
            g.ndata["feat"] = feat
        if self.max_allow_node:
            kept = [i for i, g in enumerate(self.graph_lists) if g.num_nodes() <= self.max_allow_node]
            self.graph_lists = [self.graph_lists[i] for i in kept]
            self.graph_labels, self.max_num_node = self.graph_labels[kept], self.max_allow_node

    def save(self) -> None:
        """Keeps the graphs, with what the program has added to them, for the next time that the set is asked for.

        While the set is made it keeps nothing: its files are read each time until the program saves.
        """
        if self._is_made:
            vgraph.save_graphs(self._kept("bin"), self.graph_lists, {"labels": self.graph_labels})
            save_info(self._kept("info"), {name: getattr(self, name) for name in _KEPT})

    def has_cache(self) -> bool:
        """Whether the program has saved the set."""
        return self._kept("bin").exists() and self._kept("info").exists()

    def load(self) -> None:
        """Reads what ``save`` kept."""
        self.graph_lists, labels = vgraph.load_graphs(self._kept("bin"))
        self.graph_labels = labels["labels"]
        for name, value in load_info(self._kept("info")).items():
            if name in _KEPT:
                setattr(self, name, value)
        self.num_classes = self.num_labels

    def _kept(self, suffix: str) -> Path:
        return Path(self.save_path) / f"legacy_tu_{self.name}_{self.hash}.{suffix}"

    # what programs that add features of their own call
    def _file_path(self, category: str) -> str:
        return str(self._file(category))

    @staticmethod
    def _idx_from_zero(idx_tensor: NDArray[np.int64]) -> NDArray[np.int64]:
        return idx_tensor - idx_tensor.min()

    @staticmethod
    def _to_onehot(label_tensor: NDArray[np.int64]) -> NDArray[np.float64]:
        return (label_tensor[:, None] == np.arange(label_tensor.max() + 1)).astype(np.float64)

    def _refuse_wide(self, needed: int) -> None:
        length = self._file("node_labels").stat().st_size if needed else 0
        if needed > most_dense(length):
            raise self._misfit("node_labels", f"makes {needed} bytes of one-hot rows")


_KEPT = ("max_num_node", "num_labels", "data_mode")
_FEATURES = (("node_attr", "node_attr"), ("node_label", "node_labels"))


def _whole_numbers(path: Path) -> NDArray[np.int64]:
    """A table of whole numbers, exactly; some files write them as ``3.0``."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            table, most = np.loadtxt(path, np.int64, delimiter=",", ndmin=2), 2**62
        except (ValueError, DeprecationWarning):
            table, most = np.loadtxt(path, delimiter=",", ndmin=2), 2**53
    if not ((table > -most) & (table < most) & (table == np.floor(table))).all():
        raise ValueError("there are numbers that are not whole, or too large")
    return table.astype(np.int64)


class GINDataset(_Labelled):
    """A set in the text form of graph isomorphism networks, from ``name.txt`` or ``GINDataset.zip`` in ``raw_dir``.

    ``ndata``: ``label``, and ``attr``, its one-hot rows.
    """

    def __init__(
        self,
        name: str,
        self_loop: bool = False,
        degree_as_nlabel: bool = False,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = False,
        transform: Transform | None = None,
    ) -> None:
        self.self_loop, self.degree_as_nlabel = self_loop, degree_as_nlabel
        url = "https://raw.githubusercontent.com/weihua916/powerful-gnns/master/dataset.zip"
        key = (name, self_loop, degree_as_nlabel)
        super().__init__(
            name, url, raw_dir, hash_key=key, force_reload=force_reload, verbose=verbose, transform=transform
        )

    @property
    def raw_path(self) -> str:
        return str(Path(self.raw_dir) / "GINDataset")

    @property
    def _text(self) -> Path:
        plain = Path(self.raw_dir) / f"{self.name}.txt"
        return plain if plain.exists() else Path(self.raw_path) / "dataset" / self.name / plain.name

    def download(self) -> None:
        archive = f"{self.raw_path}.zip"
        if Path(archive).is_file():
            extract_archive(archive, self.raw_path)
        elif not self._text.exists():
            raise self.absent(archive, f"neither {Path(self.raw_dir) / self.name}.txt nor ")

    def process(self) -> None:
        data = load_tu(self._text)
        graphs = [vgraph.add_self_loop(g) if self.self_loop else g for g in data.graphs]
        numbers = [g.in_degrees() if self.degree_as_nlabel else g.ndata["tag"] for g in graphs]
        if not graphs:
            raise DataError("it holds no graphs", line=str(self._text), cure="use a set of the TU collection")
        tags, places = torch.cat(numbers).unique(return_inverse=True)
        columns, self.dim_nfeats = _columns(tags.tolist(), data.stored_tags)
        places = columns[places]
        needed, length = 4 * len(places) * self.dim_nfeats, self._text.stat().st_size
        if needed > most_dense(length):
            fact = f"{len(tags)} different tags of {len(places)} vertices, in {length} bytes, make {needed}"
            raise DataError(fact, line=str(self._text), cure="use vgraph.data.load_tu, which keeps numbers")
        for g, number, place in zip(graphs, numbers, places.split([len(n) for n in numbers]), strict=True):
            g.ndata["label"] = number
            g.ndata["attr"] = torch.zeros(len(place), self.dim_nfeats).scatter_(1, place[:, None], 1.0)
            del g.ndata["tag"]
        self.graph_lists, self.graph_labels = graphs, data.labels
        self.labels, self.gclasses, self.num_classes = data.labels, data.num_classes, data.num_classes


def _columns(tags: list[int], stored: Sequence[int]) -> tuple[Tensor, int]:
    """The column of each tag, and how many columns there are.

    A tag's column is its place among them; but where they are 0, 1, 2 ... and the file has these numbers, too, DGL
    looks each up once more as a number of the file, and what it has trained expects that.
    """
    second = {number: place for place, number in enumerate(stored)}
    if tags == list(range(len(tags))) and all(tag in second for tag in tags):
        return torch.tensor([second[tag] for tag in tags], dtype=torch.int64), len(stored)
    return torch.arange(len(tags)), len(tags)


class KarateClubDataset(DGLDataset):
    """Zachary's karate club: 34 members, 78 friendships in both directions, ``ndata["label"]``: the side taken."""

    num_classes = 2

    def __init__(self, transform: Transform | None = None) -> None:
        super().__init__("karate_club", transform=transform)

    def process(self) -> None:
        club = networkx.karate_club_graph()
        ends = np.array(sorted([*club.edges, *((v, u) for u, v in club.edges)]))
        self._graph = vgraph.graph((torch.from_numpy(ends[:, 0]), torch.from_numpy(ends[:, 1])), num_nodes=34)
        sides = [0 if club.nodes[i]["club"] == "Mr. Hi" else 1 for i in range(34)]
        self._graph.ndata["label"] = torch.tensor(sides)

    def __getitem__(self, idx: int) -> vgraph.Graph:
        if idx != 0:
            raise IndexError("the karate club is one graph")
        return self._changed(self._graph)

    def __len__(self) -> int:
        return 1


KarateClub = KarateClubDataset
