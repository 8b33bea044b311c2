"""Subgraphs of Cora with two classes of nodes each, for line graph neural networks (Chen et al. 2019).

Takes: DGL's archive. Gives: graphs, a matrix and labels each. Runs once per set.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import vgraph
from vgraph.compat.datasets.kinds import ManyGraphs, NamedVerbose, graph_of
from vgraph.files import read_pickle, read_text

__all__ = ["CoraBinary"]

Item = tuple[vgraph.Graph, sparse.coo_matrix, NDArray[np.int64]]


class CoraBinary(NamedVerbose, ManyGraphs):
    """Graphs with a matrix from their line graph's nodes to theirs (``pmpds``) and a label for each node."""

    set_name = "cora_binary"

    def read(self, folder: Path) -> None:
        self.graphs = [
            graph_of(*np.array(rows, np.int64).reshape(-1, 2).T) for rows in _sections(folder / "graphs.txt")
        ]
        self.labels = [np.array(rows, np.int64).reshape(-1) for rows in _sections(folder / "labels.txt")]
        self.pmpds = [sparse.coo_matrix(one) for one in read_pickle(folder / "pmpds.pkl")]
        if not len(self.graphs) == len(self.pmpds) == len(self.labels):
            counts = (len(self.graphs), len(self.pmpds), len(self.labels))
            raise ValueError("{} graphs with {} matrices and labels of {}".format(*counts))

    def __getitem__(self, idx: int) -> Item:
        return self.transformed(idx), self.pmpds[idx], self.labels[idx]

    @staticmethod
    def collate_fn(cur: Sequence[Item]) -> Item:
        """A batch of items: one graph, one matrix of blocks, all labels."""
        graphs, matrices, labels = zip(*cur, strict=True)
        return vgraph.batch(graphs), sparse.coo_matrix(sparse.block_diag(matrices)), np.concatenate(labels)


def _sections(path: Path) -> list[list[list[int]]]:
    """Rows of numbers, of every section that a line with the word graph begins."""
    found: list[list[list[int]]] = []
    for line in read_text(path).splitlines():
        if line.startswith("graph"):
            found.append([])
        elif line.strip():
            found[-1].append([int(word) for word in line.split()])
    return [rows for rows in found if rows]
