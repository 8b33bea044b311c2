"""Graphs of stochastic block models, with their line graphs.

Takes: sizes. Gives: a data set of graphs. Runs once per set. Source: Chen, Li and Bruna 2019 (appendix C).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from torch import Tensor

import vgraph
from vgraph.compat.data import DGLDataset
from vgraph.errors import DataError
from vgraph.files import SparseMatrix

Item = tuple[vgraph.Graph, vgraph.Graph, Tensor, Tensor, Tensor]


def sbm(n_blocks: int, block_size: int, p: float, q: float, rng: np.random.RandomState | None = None) -> SparseMatrix:
    """A symmetric matrix: p edges a node are expected within its block, q to others."""
    count = n_blocks * block_size
    rng = np.random.RandomState() if rng is None else rng
    drawn = cast("Callable[..., SparseMatrix]", scipy.sparse.random)
    rows, columns = list[NDArray[np.int64]](), list[NDArray[np.int64]]()
    for i in range(n_blocks):
        for j in range(i, n_blocks):
            density = (p if i == j else q) / count
            block = drawn(block_size, block_size, density, random_state=rng, data_rvs=np.ones)
            rows.append(block.row + i * block_size)
            columns.append(block.col + j * block_size)
    places = np.concatenate(rows), np.concatenate(columns)
    found = scipy.sparse.coo_matrix((np.ones(len(places[0])), places), shape=(count, count))
    return scipy.sparse.triu(found) + scipy.sparse.triu(found, 1).transpose()


class SBMMixtureDataset(DGLDataset):
    """Graphs of equal communities; an item is a graph, its line graph, degrees of both, and the sources of its edges.

    ``pq``: "Appendix_C" draws how many edges are within communities and between them, or a list of such pairs.
    """

    def __init__(
        self,
        n_graphs: int,
        n_nodes: int,
        n_communities: int,
        k: int = 2,
        avg_deg: int = 3,
        pq: str | Sequence[tuple[float, float]] = "Appendix_C",
        rng: np.random.RandomState | None = None,
    ) -> None:
        if n_nodes % n_communities:
            fact = f"{n_nodes} nodes in {n_communities} communities"
            raise DataError(fact, cure="give a multiple of n_communities as n_nodes")
        if (pq != "Appendix_C") if isinstance(pq, str) else (len(pq) != n_graphs):
            raise DataError(f"pq is {pq!r} for {n_graphs} graphs", cure='give "Appendix_C", or a pair for each graph')
        self._n_graphs, self._n_nodes, self._n_communities = n_graphs, n_nodes, n_communities
        self._k, self._avg_deg, self._pq, self._rng = k, avg_deg, pq, rng
        super().__init__("sbmmixture", hash_key=(n_graphs, n_nodes, n_communities, k, avg_deg, pq, rng))

    def process(self) -> None:
        pairs = [self._drawn() for _ in range(self._n_graphs)] if isinstance(self._pq, str) else self._pq
        size = self._n_nodes // self._n_communities
        found = [sbm(self._n_communities, size, p, q, self._rng) for p, q in pairs]
        self._graphs = [vgraph.from_scipy(matrix) for matrix in found]
        self._line_graphs = [g.line_graph(backtracking=False) for g in self._graphs]
        self._graph_degrees = [g.in_degrees().float() for g in self._graphs]
        self._line_graph_degrees = [g.in_degrees().float() for g in self._line_graphs]
        self._pm_pds = [g.edges()[0] for g in self._graphs]

    def _drawn(self) -> tuple[float, float]:
        q = np.random.uniform(0, self._avg_deg - math.sqrt(self._avg_deg))
        p = self._k * self._avg_deg - q
        return (p, q) if random.random() < 0.5 else (q, p)

    def __getitem__(self, idx: int) -> Item:
        return (
            self._graphs[idx], self._line_graphs[idx], self._graph_degrees[idx], self._line_graph_degrees[idx],
            self._pm_pds[idx],
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self._graphs)

    def collate_fn(self, x: Sequence[Item]) -> tuple[object, ...]:
        """Items as one: batches of the graphs, and arrays of the rest."""
        graphs, lines, degrees, of_lines, sources = zip(*x, strict=True)
        moved = [ids.numpy() + number * self._n_nodes for number, ids in enumerate(sources)]
        arrays = (np.concatenate([rows.numpy() for rows in parts]) for parts in (degrees, of_lines))
        return vgraph.batch(list(graphs)), vgraph.batch(list(lines)), *arrays, np.concatenate(moved)


SBMMixture = SBMMixtureDataset
