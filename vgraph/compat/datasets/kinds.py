"""What sets of DGL's archives share: one graph or many, from files that are told as damaged where they are.

Takes: a folder. Gives: graphs. Runs once per set.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

import vgraph
from vgraph.compat.data import DGLBuiltinDataset, dgl_url
from vgraph.errors import DataError
from vgraph.files import damage_told

CURE = "unpack DGL's archive anew"
Transform = Callable[[vgraph.Graph], vgraph.Graph]


class StoredSet(DGLBuiltinDataset, ABC):
    """A set that ``read`` makes of the files in ``raw_path``."""

    def process(self) -> None:
        with damage_told(self.raw_path, CURE, fact="the files are damaged, or do not fit each other"):
            self.read(Path(self.raw_path))

    @abstractmethod
    def read(self, folder: Path) -> None:
        """Makes the graphs of what is in the folder."""


class OneGraph(DGLBuiltinDataset):
    """A set of one graph."""

    _graph: vgraph.Graph

    def __getitem__(self, idx: int) -> vgraph.Graph:
        if idx != 0:
            raise IndexError(f"{self.name} has one graph")
        return self._changed(self._graph)

    def __len__(self) -> int:
        return 1


class StoredGraph(StoredSet, OneGraph):
    """A set of one graph, which lies in files."""


class ManyGraphs(StoredSet):
    """A set of graphs."""

    graphs: list[vgraph.Graph]

    def transformed(self, idx: int) -> vgraph.Graph:
        """One of the graphs, transformed where a transform was given."""
        g = self.graphs[idx]
        return self._changed(g)

    def __getitem__(self, idx: int) -> object:
        return self.transformed(idx)

    def __len__(self) -> int:
        return len(self.graphs)


class Named(StoredSet):
    """A set with a name and an address of its own."""

    set_name = ""
    file = ""  # what DGL calls it, where that is not name.zip
    address = ""  # where it comes from, if not from DGL

    def __init__(
        self,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = False,
        transform: Transform | None = None,
    ) -> None:
        url = self.address or dgl_url(f"dataset/{self.file or self.set_name + '.zip'}")
        super().__init__(self.set_name, url, raw_dir, force_reload=force_reload, verbose=verbose, transform=transform)


class NamedVerbose(Named):
    """The same, of those that talk unless they are told not to."""

    def __init__(
        self,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = True,
        transform: Transform | None = None,
    ) -> None:
        super().__init__(raw_dir, force_reload, verbose, transform)


class InMode(StoredSet):
    """A set in parts, of which ``mode`` names one."""

    set_name = ""
    file = ""
    modes: tuple[str, ...] = ("train", "valid", "test")

    def __init__(
        self,
        mode: str = "train",
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = False,
        transform: Transform | None = None,
    ) -> None:
        self.mode = mode if mode in self.modes else mode.lower()
        if self.mode not in self.modes:
            raise DataError(f"{self.set_name} has no part {mode!r}", cure=f"name one of {', '.join(self.modes)}")
        url = dgl_url(f"dataset/{self.file or self.set_name + '.zip'}")
        super().__init__(self.set_name, url, raw_dir, force_reload=force_reload, verbose=verbose, transform=transform)


def graph_of(src: ArrayLike, dst: ArrayLike, num_nodes: int | None = None) -> vgraph.Graph:
    """A graph of two arrays of ids."""
    ends = (torch.from_numpy(np.array(side, np.int64)) for side in (src, dst))
    return vgraph.graph((*ends,), num_nodes=num_nodes)


def mask_of(ids: ArrayLike, count: int) -> Tensor:
    """A mask, true at these ids; ValueError: one is out of range."""
    places = np.asarray(ids, np.int64)
    if places.size and not (places.min() >= 0 and places.max() < count):
        raise ValueError(f"ids from {places.min()} to {places.max()} of {count}")
    mask = torch.zeros(count, dtype=torch.bool)
    mask[torch.from_numpy(places)] = True
    return mask


def floats(rows: ArrayLike) -> Tensor:
    """Rows as float32."""
    return torch.from_numpy(np.array(rows, np.float32))


def whole(rows: ArrayLike) -> Tensor:
    """Rows as int64; ValueError: they are no whole numbers."""
    found = np.asarray(rows)
    if found.dtype.kind not in "iub":
        raise ValueError(f"there are {found.dtype} where whole numbers are needed")
    return torch.from_numpy(found.astype(np.int64))


def parted(g: vgraph.Graph, owner: NDArray[np.int64], count: int) -> list[vgraph.Graph]:
    """The nodes of each of ``count`` graphs, and the edges between them; ValueError: a node belongs to none."""
    if len(owner) != g.num_nodes() or (owner.size and not (owner.min() >= 0 and owner.max() < count)):
        raise ValueError(f"{g.num_nodes()} nodes belong to {len(owner)} places of {count} graphs")
    sizes = np.bincount(owner, minlength=count)
    order = np.argsort(owner, kind="stable")
    return [g.subgraph(torch.from_numpy(ids)) for ids in np.split(order, sizes.cumsum()[:-1])]


def in_order(g: vgraph.Graph) -> vgraph.Graph:
    """Nodes by reverse Cuthill-McKee, edges by destination, as DGL stores large graphs."""
    return vgraph.reorder_graph(g, "rcmk", "dst", store_ids=False)
