"""Molecules with properties: QM7b, QM9.

Takes: files as DGL has them, in ``raw_dir``. Gives: data sets of graphs. Runs once per set.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

import vgraph
from vgraph.compat.datasets.kinds import Named, Transform, floats, graph_of, whole
from vgraph.errors import DataError
from vgraph.files import read_arrays, read_matlab

ATOMS = {"N": 1, "R": 2, "Z": 1}
EDGES = {"n_node": 1, "n_edge": 1, "node_attr": 2, "node_pos": 2, "edge_attr": 2, "src": 1, "dst": 1, "targets": 2}


class _Molecules(Named):
    """One file in ``raw_dir``."""

    stored = ""

    @property
    def raw_path(self) -> str:
        return str(Path(self.raw_dir) / self.stored)

    def download(self) -> None:
        raise self.absent(self.raw_path)


class QM7bDataset(_Molecules):
    """7,211 molecules with 14 properties each, from ``qm7b.mat``; an edge's ``h`` is an entry of the Coulomb matrix."""

    set_name, stored, num_labels, num_tasks = "qm7b", "qm7b.mat", 14, 14
    address = "http://deepchem.io.s3-website-us-west-1.amazonaws.com/datasets/qm7b.mat"

    def read(self, folder: Path) -> None:
        found = read_matlab(folder, ("X", "T"))
        self.label = floats(found["T"])
        self.graphs: list[vgraph.Graph] = []
        for matrix in found["X"]:
            ends = np.nonzero(matrix)
            g = graph_of(ends[0], ends[1])
            g.edata["h"] = floats(matrix[ends][:, None])
            self.graphs.append(g)

    def __getitem__(self, idx: int) -> tuple[vgraph.Graph, Tensor]:
        g = self.graphs[idx]
        return self._changed(g), self.label[idx]

    def __len__(self) -> int:
        return len(self.graphs)


class QM9Dataset(_Molecules):
    """133,885 molecules, from ``qm9_eV.npz``: edges join atoms that are at most ``cutoff`` apart."""

    set_name, stored, file = "qm9", "qm9_eV.npz", "qm9_eV.npz"

    def __init__(
        self,
        label_keys: Sequence[str],
        cutoff: float = 5.0,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = False,
        transform: Transform | None = None,
    ) -> None:
        self.label_keys, self.cutoff = label_keys, cutoff
        super().__init__(raw_dir, force_reload, verbose, transform)

    def read(self, folder: Path) -> None:
        found = read_arrays(folder, (*ATOMS, *self.label_keys))
        self.N, self.R, self.Z = _members(found, ATOMS)
        self.label = np.stack(_members(found, dict.fromkeys(self.label_keys, 1)), 1)
        self.N_cumsum = _starts(self.N, len(self.R), len(self.Z))
        if len(self.N) != len(self.label):
            raise ValueError(f"{len(self.N)} molecules have {len(self.label)} rows of labels")

    @property
    def num_labels(self) -> int:
        return self.label.shape[1]

    @property
    def num_tasks(self) -> int:
        return self.label.shape[1]

    def __getitem__(self, idx: int) -> tuple[vgraph.Graph, Tensor]:
        atoms = slice(*self.N_cumsum[[range(len(self))[idx], range(len(self))[idx] + 1]])
        places = self.R[atoms]
        near = np.linalg.norm(places[:, None] - places[None], axis=-1) <= self.cutoff
        np.fill_diagonal(near, False)
        src, dst = np.nonzero(near)
        g = graph_of(src, dst, len(places))
        g.ndata["R"], g.ndata["Z"] = floats(places), whole(self.Z[atoms])
        return self._changed(g), floats(self.label[idx])

    def __len__(self) -> int:
        return len(self.label)


class QM9EdgeDataset(_Molecules):
    """130,831 molecules with their bonds and 19 properties, from ``qm9_edge.npz``."""

    set_name, stored, file = "qm9Edge", "qm9_edge.npz", "qm9_edge.npz"
    keys = (
        "mu", "alpha", "homo", "lumo", "gap", "r2", "zpve", "U0", "U", "H", "G", "Cv", "U0_atom", "U_atom", "H_atom",
        "G_atom", "A", "B", "C",
    )  # fmt: skip

    def __init__(
        self,
        label_keys: Sequence[str] | None = None,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = True,
        transform: Transform | None = None,
    ) -> None:
        unknown = [key for key in label_keys or () if key not in self.keys]
        if unknown:
            raise DataError(f"there is no property {unknown[0]!r}", cure=f"name some of {', '.join(self.keys)}")
        self.label_keys = None if label_keys is None else [self.keys.index(key) for key in label_keys]
        self.num_labels = self.num_tasks = len(self.keys if label_keys is None else label_keys)
        super().__init__(raw_dir, force_reload, verbose, transform)

    def read(self, folder: Path) -> None:
        found = _members(read_arrays(folder, EDGES), EDGES)
        for name, rows in zip(EDGES, found, strict=True):
            setattr(self, name, rows)
        nodes, edges, attributes, places, of_edges, src, dst, self.targets = found
        self.n_cumsum = _starts(nodes, len(attributes), len(places))
        self.ne_cumsum = _starts(edges, len(of_edges), len(src), len(dst))
        self.n_node, self.node_attr, self.node_pos, self.edge_attr, self.src, self.dst = (
            nodes, attributes, places, of_edges, src, dst,
        )  # fmt: skip
        if not len(nodes) == len(edges) == len(self.targets):
            raise ValueError(f"there are {len(nodes)}, {len(edges)} and {len(self.targets)} molecules")

    def __getitem__(self, idx: int) -> tuple[vgraph.Graph, Tensor]:
        idx = range(len(self))[idx]
        atoms, bonds = (slice(*starts[[idx, idx + 1]]) for starts in (self.n_cumsum, self.ne_cumsum))
        g = graph_of(self.src[bonds], self.dst[bonds], int(self.n_node[idx]))
        g.ndata["pos"], g.ndata["attr"] = floats(self.node_pos[atoms]), floats(self.node_attr[atoms])
        g.edata["edge_attr"] = floats(self.edge_attr[bonds])
        row = self.targets[idx] if self.label_keys is None else self.targets[idx][self.label_keys]
        return self._changed(g), floats(row)

    def __len__(self) -> int:
        return len(self.n_node)


def _members(found: dict[str, NDArray[np.generic]], wanted: dict[str, int]) -> list[NDArray[np.float64]]:
    """Arrays by name, each of so many dims."""
    for name, dims in wanted.items():
        if name not in found or found[name].ndim != dims or found[name].dtype.kind not in "biuf":
            raise ValueError(f"there is no array {name!r} of {dims} dims and numbers")
    return [cast("NDArray[np.float64]", found[name]) for name in wanted]


def _starts(counts: NDArray[np.generic], *lengths: int) -> NDArray[np.int64]:
    """Where each molecule's rows begin; ValueError: there are other rows than the counts say."""
    numbers = whole(counts).numpy()
    starts = np.concatenate([[0], np.cumsum(numbers)])
    if (numbers < 0).any() or any(length != starts[-1] for length in lengths):
        raise ValueError(f"the counts make {starts[-1]} rows, and there are {lengths}")
    return starts


QM7b, QM9, QM9Edge = QM7bDataset, QM9Dataset, QM9EdgeDataset
