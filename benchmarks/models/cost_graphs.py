"""Random CostGraphs of the kinds that coarsened training steps have: chains with skips, forks that join."""

from __future__ import annotations

import numpy as np

from vgraph.ir.sharding import Partial, Placement, Replicate, Split
from vgraph.partition.accounting.costs import transfer
from vgraph.partition.search.cost_graph import CostGraph, Costs


def chain_with_skips(rng: np.random.Generator, length: int, skips: int) -> set[tuple[int, int]]:
    edges = {(v, v + 1) for v in range(length - 1)}
    for _ in range(skips):
        u = int(rng.integers(0, max(length - 2, 1)))
        edges.add((u, min(length - 1, u + 2 + int(rng.integers(0, 4)))))
    return {(u, v) for u, v in edges if u < v}


def fork_join(rng: np.random.Generator, size: int) -> set[tuple[int, int]]:
    """Blocks of parallel branches, one after the other."""
    edges: set[tuple[int, int]] = set()
    at = 0
    while at < size - 2:
        width, depth = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        join = min(at + 1 + width * depth, size - 1)
        for branch in range(width):
            before = at
            for step in range(depth):
                v = at + 1 + branch * depth + step
                if v < join:
                    edges.add((before, v))
                    before = v
            edges.add((before, join))
        at = join
    return {(u, v) for u, v in edges if u < v}


def random_graph(rng: np.random.Generator, size: int) -> CostGraph:
    """Tensors of random sizes between ops that each read and make them in random ways."""
    edges = chain_with_skips(rng, size, size // 4) if rng.random() < 0.5 else fork_join(rng, size)
    placements: list[Placement] = [Split(0), Split(1), Replicate(), Partial()]
    makes = [[placements[i] for i in rng.integers(0, 4, rng.integers(2, 6))] for _ in range(size)]
    alone: list[Costs] = [np.where(rng.random(len(m)) < 0.7, 0.0, rng.integers(0, 50, len(m))) for m in makes]
    pairs: dict[tuple[int, int], Costs] = {}
    for u, v in sorted(edges):
        reads = [placements[i] for i in rng.integers(0, 3, len(makes[v]))]
        amount = float(rng.integers(1, 100))
        pairs[u, v] = np.array([[amount * transfer(have, need, 2) for need in reads] for have in makes[u]])
    return CostGraph(alone, pairs)
