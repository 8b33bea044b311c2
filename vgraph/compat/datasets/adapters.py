"""Any data set as one for node classification, link prediction or graph classification: with splits.

Takes: data sets. Gives: data sets with masks, ids or edges of train, val and test. Runs once per set; what is drawn
is kept in ``save_path`` under a name that the arguments make, and read from there the next time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import vgraph
from vgraph.atomic_file import atomic_file
from vgraph.compat.data import DGLDataset
from vgraph.compat.splits import Dataset, add_nodepred_split, idx2mask
from vgraph.errors import DataError, GraphError
from vgraph.files import Pickled, damage_told, read_arrays, read_json

Ratio = Sequence[float]
Ends = tuple[Tensor, Tensor]
PARTS = ("train", "val", "test")
Option: TypeAlias = Any  # what DGLDataset takes by name
STALE = "remove the file, or pass force_reload=True"


class Splittable(Dataset, Protocol):
    """A data set with a name; OGB's have ``get_idx_split`` or ``get_edge_split`` too."""

    @property
    def name(self) -> str: ...


class _Adapted(DGLDataset):
    """A set made of another, and kept in files."""

    kind = ""

    def __init__(self, dataset: Splittable, key: tuple[object, ...], **kwargs: Option) -> None:
        super().__init__(f"{dataset.name}-as-{self.kind}", hash_key=(*key, dataset.name, self.kind), **kwargs)

    def _stored(self, stem: str, suffix: str) -> Path:
        return Path(self.save_path) / f"{stem}_{self.hash}.{suffix}"

    def _write_info(self, **info: object) -> None:
        path = self._stored("info", "json")
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(json.dumps(info).encode())

    def _read_info(self, *names: str) -> list[Pickled]:
        path = self._stored("info", "json")
        info = read_json(path)
        if not isinstance(info, dict) or any(name not in info for name in names):
            raise DataError(f"it lacks one of {', '.join(names)}", line=str(path), cure=STALE)
        return [info[name] for name in names]


def _three(ratio: Ratio) -> Ratio:
    if len(ratio) != 3 or min(ratio) < 0:
        raise GraphError(f"split_ratio is {ratio!r}", cure="give three shares, of train, val and test")
    return ratio


class AsNodePredDataset(_Adapted):
    """One graph with ``train_mask``, ``val_mask`` and ``test_mask``: its own, or drawn by ``split_ratio``."""

    kind = "nodepred"

    def __init__(
        self, dataset: Splittable, split_ratio: Ratio | None = None, target_ntype: str | None = None, **kwargs: Option
    ) -> None:
        self.dataset, self.split_ratio, self.target_ntype = dataset, split_ratio, target_ntype
        super().__init__(dataset, (split_ratio, target_ntype), **kwargs)

    def process(self) -> None:
        split_of = getattr(self.dataset, "get_idx_split", None)  # OGB's have it
        g, label = (self.dataset[0], None) if split_of is None else self.dataset[0]
        self.g = g.clone()
        if label is not None:
            self.g.ndata["label"] = label.reshape(-1)
        if "label" not in self._data:
            raise GraphError("there are no labels", cure='store them as the nodes\' feature "label"')
        if self.split_ratio is not None:
            add_nodepred_split(self, _three(self.split_ratio), self.target_ntype)
        elif split_of is not None:
            split = split_of()
            for part, name in zip(PARTS, ("train", "valid", "test"), strict=True):
                self.g.ndata[f"{part}_mask"] = torch.from_numpy(idx2mask(split[name], self.g.num_nodes()))
        self._find_ids()
        classes = getattr(self.dataset, "num_classes", None)
        self.num_classes = len(self._data["label"].unique()) if classes is None else int(classes)

    @property
    def _data(self) -> MutableMapping[str, Tensor]:
        return self.g.nodes[self.target_ntype].data if self.target_ntype else self.g.ndata

    def _find_ids(self) -> None:
        for part in PARTS:
            if f"{part}_mask" not in self._data:
                raise GraphError(f"there is no {part}_mask", cure="give split_ratio, by which masks are drawn")
            setattr(self, f"{part}_idx", self._data[f"{part}_mask"].nonzero()[:, 0])

    def has_cache(self) -> bool:
        return self._stored("graph", "bin").is_file()

    def save(self) -> None:
        self._write_info(split_ratio=self.split_ratio, target_ntype=self.target_ntype, num_classes=self.num_classes)
        vgraph.save_graphs(str(self._stored("graph", "bin")), [self.g])

    def load(self) -> None:
        (self.num_classes,) = self._read_info("num_classes")
        self.g = vgraph.load_graphs(str(self._stored("graph", "bin")))[0][0]
        self._find_ids()

    def __getitem__(self, idx: int) -> vgraph.Graph:
        return self.g

    def __len__(self) -> int:
        return 1


def negative_sample(g: vgraph.Graph, num_samples: int) -> NDArray[np.int64]:
    """Up to ``num_samples`` pairs of different nodes that no edge joins, (2, pairs), of NumPy's random numbers."""
    count = g.num_nodes()
    share = 1 - g.num_edges() / max(count * count, 1)
    drawn = np.random.randint(0, count, (2, int(num_samples * 1.2 / max(share, 0.05)) + 16))
    pairs = np.unique(drawn, axis=1)
    joined = g.has_edges_between(torch.from_numpy(pairs[0]), torch.from_numpy(pairs[1])).numpy()
    pairs = pairs[:, ~(joined | (pairs[0] == pairs[1]))]
    return pairs[:, np.sort(np.random.permutation(pairs.shape[1])[:num_samples])]


class AsLinkPredDataset(_Adapted):
    """One graph of the edges of train; ``val_edges`` and ``test_edges``: ((src, dst) of edges, (src, dst) of none).

    ``neg_ratio`` pairs that no edge joins are drawn for each edge.
    """

    kind = "linkpred"

    def __init__(
        self, dataset: Splittable, split_ratio: Ratio | None = None, neg_ratio: int = 3, **kwargs: Option
    ) -> None:
        self.dataset, self.split_ratio, self.neg_ratio = dataset, split_ratio, neg_ratio
        self.g: vgraph.Graph = dataset[0]
        self.num_nodes = self.g.num_nodes()
        super().__init__(dataset, (neg_ratio, split_ratio), **kwargs)

    def process(self) -> None:
        if self.split_ratio is not None:
            self._draw(_three(self.split_ratio))
        elif (split_of := getattr(self.dataset, "get_edge_split", None)) is not None:
            split = split_of()
            self._train_graph = self.g
            self._val_edges, self._test_edges = _stated(split["valid"]), _stated(split["test"])
        else:
            raise GraphError("the data set has no split", cure="give split_ratio, by which edges are drawn")

    def _draw(self, ratio: Ratio) -> None:
        src, dst = self.g.edges()
        count = len(src)
        train, val = int(count * ratio[0]), int(count * ratio[1])
        order = torch.from_numpy(np.random.permutation(count))
        parts = order[:train], order[train : train + val], order[train + val :]
        wanted = self.neg_ratio * val, self.neg_ratio * int(count * ratio[2])
        pairs = torch.from_numpy(negative_sample(self.g, sum(wanted)))
        mixed = pairs[:, torch.from_numpy(np.random.permutation(pairs.shape[1]))]
        negative = mixed[:, : wanted[0]], mixed[:, wanted[0] : sum(wanted)]
        self._val_edges, self._test_edges = (
            ((src[ids], dst[ids]), (none[0], none[1])) for ids, none in zip(parts[1:], negative, strict=True)
        )
        self._train_graph = vgraph.graph((src[parts[0]], dst[parts[0]]), num_nodes=self.num_nodes)
        for name, rows in self.g.ndata.items():
            self._train_graph.ndata[name] = rows

    def has_cache(self) -> bool:
        return self._stored("graph", "bin").is_file()

    def save(self) -> None:
        found = {"val": self._val_edges, "test": self._test_edges}
        tensors = {
            f"{part}_{sign}_{end}": edges[i][j]
            for part, edges in found.items()
            for i, sign in enumerate(("pos", "neg"))
            for j, end in enumerate(("src", "dst"))
        }
        self._write_info(split_ratio=self.split_ratio, neg_ratio=self.neg_ratio)
        vgraph.save_graphs(str(self._stored("graph", "bin")), [self._train_graph], tensors)

    def load(self) -> None:
        path = self._stored("graph", "bin")
        graphs, tensors = vgraph.load_graphs(str(path))
        with damage_told(path, STALE):
            self.g = self._train_graph = graphs[0]
            self._val_edges, self._test_edges = (
                (
                    (tensors[f"{part}_pos_src"], tensors[f"{part}_pos_dst"]),
                    (tensors[f"{part}_neg_src"], tensors[f"{part}_neg_dst"]),
                )
                for part in ("val", "test")
            )

    @property
    def feat_size(self) -> int:
        """The width of a row of ``feat``."""
        return self._train_graph.ndata["feat"].shape[-1]

    @property
    def train_graph(self) -> vgraph.Graph:
        """All nodes, with the edges of train."""
        return self._train_graph

    @property
    def val_edges(self) -> tuple[Ends, Ends]:
        """Edges and pairs that are none."""
        return self._val_edges

    @property
    def test_edges(self) -> tuple[Ends, Ends]:
        """Edges and pairs that are none."""
        return self._test_edges

    def __getitem__(self, idx: int) -> vgraph.Graph:
        return self.g

    def __len__(self) -> int:
        return 1


def _stated(split: Mapping[str, Tensor]) -> tuple[Ends, Ends]:
    """Edges and pairs that are none, as OGB states them: by edges, or by sources with many candidates."""
    found = {name: torch.as_tensor(ids) for name, ids in split.items()}
    if "source_node" in found:
        source, candidates = found["source_node"], found["target_node_neg"]
        return (source, found["target_node"]), (source.repeat_interleave(candidates.shape[-1]), candidates.reshape(-1))
    edge, none = found["edge"], found["edge_neg"]
    return (edge[:, 0], edge[:, 1]), (none[:, 0], none[:, 1])


class AsGraphPredDataset(_Adapted):
    """The items of a set of graphs with ``train_idx``, ``val_idx`` and ``test_idx``: its own, or drawn."""

    kind = "graphpred"

    def __init__(self, dataset: Splittable, split_ratio: Ratio | None = None, **kwargs: Option) -> None:
        self.dataset, self.split_ratio = dataset, split_ratio
        super().__init__(dataset, (split_ratio,), **kwargs)

    def process(self) -> None:
        if self.split_ratio is not None:
            ratio, count = _three(self.split_ratio), len(self.dataset)
            order = torch.from_numpy(np.random.permutation(count))
            train, val = int(count * ratio[0]), int(count * ratio[1])
            found = order[:train], order[train : train + val], order[train + val :]
        elif (split_of := getattr(self.dataset, "get_idx_split", None)) is not None:
            split = split_of()
            found = split["train"], split["valid"], split["test"]
        elif all(hasattr(self.dataset, f"{part}_mask") for part in PARTS):
            found = tuple(getattr(self.dataset, f"{part}_mask").nonzero()[:, 0] for part in PARTS)
        else:
            raise GraphError("the data set has no split", cure="give split_ratio, by which graphs are drawn")
        self.train_idx, self.val_idx, self.test_idx = (torch.as_tensor(ids) for ids in found)
        self.num_classes: int | None = getattr(self.dataset, "num_classes", None)
        self.num_tasks: int = getattr(self.dataset, "num_tasks", 1)

    def has_cache(self) -> bool:
        return self._stored("info", "json").is_file() and self._stored("split", "npz").is_file()

    def save(self) -> None:
        path = self._stored("split", "npz")
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            np.savez(file, **{f"{part}_idx": getattr(self, f"{part}_idx").numpy() for part in PARTS})
        self._write_info(split_ratio=self.split_ratio, num_tasks=self.num_tasks, num_classes=self.num_classes)

    def load(self) -> None:
        path = self._stored("split", "npz")
        self.num_tasks, self.num_classes = self._read_info("num_tasks", "num_classes")
        found = read_arrays(path)
        for part in PARTS:
            ids = found.get(f"{part}_idx", np.empty(0))
            if ids.dtype.kind not in "iu" or (ids.size and not (ids.min() >= 0 and ids.max() < len(self.dataset))):
                raise DataError(f"its {part}_idx names no graphs", line=str(path), cure=STALE)
            setattr(self, f"{part}_idx", torch.from_numpy(ids.astype(np.int64)))

    @property
    def node_feat_size(self) -> int | None:
        """The width of ``ndata["feat"]``; None: there is none."""
        return _width(self.dataset[0][0].ndata)

    @property
    def edge_feat_size(self) -> int | None:
        """The width of ``edata["feat"]``; None: there is none."""
        return _width(self.dataset[0][0].edata)

    def __getitem__(self, idx: int) -> object:
        return self.dataset[idx]

    def __len__(self) -> int:
        return len(self.dataset)


def _width(data: Mapping[str, Tensor]) -> int | None:
    return data["feat"].shape[-1] if "feat" in data else None
