"""Graphs made by rules: random graphs with motifs, trees with cycles or grids, eight kinds of small graphs.

Takes: sizes and a seed. Gives: data sets of graphs; the same seed gives what it gives in DGL. Runs once per set.
Source: Ying et al. 2019, section 5 (the motifs).
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import cast

import networkx
import numpy as np
import torch

import vgraph
from vgraph.compat.data import DGLDataset
from vgraph.compat.datasets.kinds import OneGraph, Transform, graph_of, in_order
from vgraph.errors import DataError

Drawn = np.random.RandomState
Edges = list[tuple[int, int]]
HOUSE: Edges = [(0, 1), (1, 2), (2, 3), (3, 0), (4, 0), (4, 1)]


class _Generated(OneGraph, ABC):
    """One graph; nothing is read."""

    set_name = ""

    def __init__(
        self, seed: int | None, raw_dir: str | None, force_reload: bool, verbose: bool, transform: Transform | None
    ) -> None:
        self.seed = seed
        super().__init__(self.set_name, None, raw_dir, force_reload=force_reload, verbose=verbose, transform=transform)

    def process(self) -> None:
        self._graph = in_order(self.made(_numbers(self.seed)))

    @abstractmethod
    def made(self, rng: Drawn) -> vgraph.Graph:
        """The graph before its nodes are put in order."""


def _numbers(seed: int | None) -> Drawn:
    """Random numbers: those of NumPy's own generator where no seed is given."""
    return cast("Drawn", np.random) if seed is None else np.random.RandomState(seed)


def _labelled(edges: Edges, labels: list[int], perturb_ratio: float, rng: Drawn) -> vgraph.Graph:
    """The graph of these edges and of some random ones, with its labels and a feature of ones."""
    count, known = len(labels), set(edges)
    most = (count * (count - 1) - len(edges)) / len(edges)
    if perturb_ratio > most:
        raise DataError(f"perturb_ratio is {perturb_ratio}", cure=f"give at most {most:.4f}: there are no more pairs")
    made = list(edges)
    for _ in range(int(len(edges) * perturb_ratio)):
        while True:
            pair = int(rng.randint(0, count)), int(rng.randint(0, count))
            if pair not in known and pair[0] != pair[1]:
                break
        known.add(pair)
        made.append(pair)
    g = graph_of([u for u, _ in made], [v for _, v in made], count)
    g.ndata["label"], g.ndata["feat"] = torch.tensor(labels), torch.ones(count, 1)
    return g


def _houses(base: networkx.Graph[int], num_motifs: int) -> tuple[Edges, list[int]]:
    """The graph with houses: 1 stands for the middle, 2 for the bottom, 3 for the roof."""
    edges, labels = list(base.edges), [0] * len(base)
    spacing = len(base) // num_motifs
    for motif in range(num_motifs):
        first = len(labels)
        edges += [(first + u, first + v) for u, v in HOUSE] + [(first, motif * spacing)]
        labels += [1, 1, 2, 2, 3]
    return edges, labels


class BAShapeDataset(_Generated):
    """A graph of Barabasi and Albert with houses of five nodes; labels are places in a house, 0 outside."""

    set_name, num_classes = "BA-SHAPES", 4

    def __init__(
        self,
        num_base_nodes: int = 300,
        num_base_edges_per_node: int = 5,
        num_motifs: int = 80,
        perturb_ratio: float = 0.01,
        seed: int | None = None,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = True,
        transform: Transform | None = None,
    ) -> None:
        self.num_base_nodes, self.num_base_edges_per_node = num_base_nodes, num_base_edges_per_node
        self.num_motifs, self.perturb_ratio = num_motifs, perturb_ratio
        super().__init__(seed, raw_dir, force_reload, verbose, transform)

    def made(self, rng: Drawn) -> vgraph.Graph:
        base = networkx.barabasi_albert_graph(self.num_base_nodes, self.num_base_edges_per_node, self.seed)
        return _labelled(*_houses(base, self.num_motifs), self.perturb_ratio, rng)


class BACommunityDataset(_Generated):
    """Two of ``BAShapeDataset`` with edges between them and features drawn around -1 and 1."""

    set_name, num_classes = "BA-COMMUNITY", 8

    def __init__(
        self,
        num_base_nodes: int = 300,
        num_base_edges_per_node: int = 4,
        num_motifs: int = 80,
        perturb_ratio: float = 0.01,
        num_inter_edges: int = 350,
        seed: int | None = None,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = True,
        transform: Transform | None = None,
    ) -> None:
        self.num_base_nodes, self.num_base_edges_per_node = num_base_nodes, num_base_edges_per_node
        self.num_motifs, self.perturb_ratio, self.num_inter_edges = num_motifs, perturb_ratio, num_inter_edges
        super().__init__(seed, raw_dir, force_reload, verbose, transform)

    def made(self, rng: Drawn) -> vgraph.Graph:
        words = random if self.seed is None else random.Random(self.seed)
        halves: list[vgraph.Graph] = []
        for _ in range(2):
            base = networkx.barabasi_albert_graph(self.num_base_nodes, self.num_base_edges_per_node, words)
            halves.append(in_order(_labelled(*_houses(base, self.num_motifs), self.perturb_ratio, rng)))
        count = halves[0].num_nodes()
        src = rng.randint(0, count, (self.num_inter_edges,))
        dst = rng.randint(count, 2 * count, (self.num_inter_edges,))
        g = vgraph.batch(halves)
        g.add_edges(torch.from_numpy(src), torch.from_numpy(dst))
        g.ndata["label"] = torch.cat([halves[0].ndata["label"], halves[1].ndata["label"] + 4])
        spread = np.diag([0.5] * 2 + [1.0] * 8)
        feats = [rng.multivariate_normal([side] * 2 + [0.0] * 8, spread, count) for side in (-1.0, 1.0)]
        g.ndata["feat"] = torch.from_numpy(np.concatenate(feats))
        return g


class _Tree(_Generated):
    """A balanced binary tree with motifs."""

    tree_height: int
    perturb_ratio: float
    num_classes = 2

    def made(self, rng: Drawn) -> vgraph.Graph:
        tree = networkx.balanced_tree(2, self.tree_height)
        edges, labels = list(tree.edges), [0] * len(tree)
        self.add_motifs(edges, labels, rng)
        return _labelled(edges, labels, self.perturb_ratio, rng)

    @abstractmethod
    def add_motifs(self, edges: Edges, labels: list[int], rng: Drawn) -> None:
        """Appends edges and labels, in place."""


class TreeCycleDataset(_Tree):
    """A tree with cycles of six nodes, whose label is 1."""

    set_name = "TREE-CYCLES"

    def __init__(
        self,
        tree_height: int = 8,
        num_motifs: int = 60,
        cycle_size: int = 6,
        perturb_ratio: float = 0.01,
        seed: int | None = None,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = True,
        transform: Transform | None = None,
    ) -> None:
        self.tree_height, self.num_motifs, self.cycle_size = tree_height, num_motifs, cycle_size
        self.perturb_ratio = perturb_ratio
        super().__init__(seed, raw_dir, force_reload, verbose, transform)

    def add_motifs(self, edges: Edges, labels: list[int], rng: Drawn) -> None:
        spacing = len(labels) // self.num_motifs
        for motif in range(self.num_motifs):
            first, anchor = len(labels), motif * spacing
            edges += [(first + i, first + i + 1) for i in range(5)] + [(first + 5, first), (first, anchor)]
            labels += [1] * self.cycle_size
            if rng.random() > 0.5:
                one, other = rng.randint(1, 4), rng.randint(1, 4)
                edges.append((first + one, anchor + other))


class TreeGridDataset(_Tree):
    """A tree with grids, whose nodes have label 1."""

    set_name = "TREE-GRIDS"

    def __init__(
        self,
        tree_height: int = 8,
        num_motifs: int = 80,
        grid_size: int = 3,
        perturb_ratio: float = 0.1,
        seed: int | None = None,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = True,
        transform: Transform | None = None,
    ) -> None:
        self.tree_height, self.num_motifs, self.grid_size = tree_height, num_motifs, grid_size
        self.perturb_ratio = perturb_ratio
        super().__init__(seed, raw_dir, force_reload, verbose, transform)

    def add_motifs(self, edges: Edges, labels: list[int], rng: Drawn) -> None:
        spacing = len(labels) // self.num_motifs
        grid = networkx.convert_node_labels_to_integers(networkx.grid_graph([self.grid_size, self.grid_size]))
        for motif in range(self.num_motifs):
            first = len(labels)
            edges += [(first + u, first + v) for u, v in grid.edges] + [(first, motif * spacing)]
            labels += [1] * len(grid)


# ---------------------------------------------------------------- many graphs
def _lollipop(count: int, rng: Drawn) -> networkx.Graph[int]:
    path = rng.randint(2, count // 2)
    return networkx.lollipop_graph(count - path, path)


def _grid(count: int, rng: Drawn) -> networkx.Graph[int]:
    if count < 4:
        raise DataError(f"a grid of {count} nodes", cure="give a min_num_v of 4 or more")
    rows = rng.randint(2, count // 2)
    return networkx.grid_graph([rows, count // rows])


SHAPES: tuple[Callable[[int, Drawn], networkx.Graph[int]], ...] = (
    lambda count, _: networkx.cycle_graph(count),
    lambda count, _: networkx.star_graph(count - 1),
    lambda count, _: networkx.wheel_graph(count),
    _lollipop,
    lambda count, _: networkx.hypercube_graph(int(math.log2(count))),
    _grid,
    lambda count, _: networkx.complete_graph(count),
    lambda count, _: networkx.circular_ladder_graph(count // 2),
)


class MiniGCDataset(DGLDataset):
    """Cycles, stars, wheels, lollipops, hypercubes, grids, cliques and ladders, as many of each; labels say which."""

    num_classes = len(SHAPES)

    def __init__(
        self,
        num_graphs: int,
        min_num_v: int,
        max_num_v: int,
        seed: int | None = 0,
        save_graph: bool = True,
        force_reload: bool = False,
        verbose: bool = False,
        transform: Transform | None = None,
    ) -> None:
        self.num_graphs, self.min_num_v, self.max_num_v = num_graphs, min_num_v, max_num_v
        self.seed, self.save_graph = seed, save_graph
        key = (num_graphs, min_num_v, max_num_v, seed)
        super().__init__("minigc", hash_key=key, force_reload=force_reload, verbose=verbose, transform=transform)

    def process(self) -> None:
        rng, each = _numbers(self.seed), self.num_graphs // len(SHAPES)
        kinds = [kind for kind in range(len(SHAPES)) for _ in range(each)]
        kinds += [len(SHAPES) - 1] * (self.num_graphs - len(kinds))
        self.graphs: list[vgraph.Graph] = []
        for kind in kinds:
            found = SHAPES[kind](rng.randint(self.min_num_v, self.max_num_v), rng)
            numbered = networkx.convert_node_labels_to_integers(cast("networkx.Graph[Hashable]", found))
            self.graphs.append(vgraph.add_self_loop(vgraph.from_networkx(numbered)))
        self.labels = torch.tensor(kinds)

    def __getitem__(self, idx: int) -> tuple[vgraph.Graph, torch.Tensor]:
        g = self.graphs[idx]
        return self._changed(g), self.labels[idx]

    def __len__(self) -> int:
        return len(self.graphs)
