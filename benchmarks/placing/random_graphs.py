"""Random graphs: op graphs of the shapes that models have, for tests and benchmarks.

Takes: a size and a seed. Gives: an OpGraph; tempo: once a benchmark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vgraph.partition.placement.op_graph import OpGraph, OpGraphBuilder


class _Growing:
    """Ops of random length, each with one result of random size."""

    def __init__(self, seed: int, seconds: float, num_bytes: float, resident: float = 0.0) -> None:
        self.random = np.random.default_rng(seed)
        self.draft = OpGraphBuilder(("device",))
        self.seconds, self.num_bytes, self.resident = seconds, num_bytes, resident
        self.tensor: list[int] = []

    def op(self, reads: Sequence[int], scale: float = 1.0) -> int:
        draw = self.random.lognormal(0.0, 0.7, size=2)
        name = f"op{len(self.tensor)}"
        read = [self.tensor[i] for i in reads]
        op = self.draft.add_op(name, [self.seconds * scale * draw[0]], read, self.resident * draw[0])
        self.tensor.append(self.draft.add_tensor(op, self.num_bytes * draw[1]))
        return op

    def chain(self, length: int, start: int, scale: float = 1.0) -> int:
        for _ in range(length):
            start = self.op([start], scale)
        return start


def fork_join(
    num_blocks: int, width: int, length: int, *, seed: int = 0, seconds: float = 1e-3, num_bytes: float = 1e6
) -> OpGraph:
    """Blocks of parallel branches that meet, as in Inception.

    >>> fork_join(2, width=3, length=4).num_ops
    27
    """
    grow = _Growing(seed, seconds, num_bytes)
    last = grow.op([])
    for _ in range(num_blocks):
        last = grow.op([grow.chain(length, last) for _ in range(width)])
    return grow.draft.build()


def layered(
    num_layers: int, width: int, *, degree: int = 2, seed: int = 0, seconds: float = 1e-3, num_bytes: float = 1e6
) -> OpGraph:
    """Layers of ops that read a few ops of the layer before.

    >>> layered(3, width=5).num_ops
    15
    """
    grow = _Growing(seed, seconds, num_bytes)
    layer = [grow.op([]) for _ in range(width)]
    for _ in range(num_layers - 1):
        layer = [grow.op(grow.random.choice(layer, degree).tolist()) for _ in range(width)]
    return grow.draft.build()


def chain_with_skips(
    length: int, *, skip: float = 0.3, seed: int = 0, seconds: float = 1e-3, num_bytes: float = 1e6
) -> OpGraph:
    """A chain in which some ops also read an earlier one, as in residual networks.

    >>> chain_with_skips(10).num_ops
    10
    """
    grow = _Growing(seed, seconds, num_bytes)
    grow.op([])
    for i in range(1, length):
        reads = [i - 1]
        if i > 2 and grow.random.random() < skip:
            reads.append(int(grow.random.integers(0, i - 1)))
        grow.op(reads)
    return grow.draft.build()


def training(
    forward: Callable[[Callable[[Sequence[int]], int]], int], *, seed: int = 0, seconds: float = 1e-3,
    num_bytes: float = 1e6,
) -> OpGraph:  # fmt: skip
    """A forward that the caller draws op by op, and the backward of every op, which reads what the forward saved.

    >>> training(lambda op: op([op([op([])])])).num_ops
    9
    """
    grow = _Growing(seed, seconds, num_bytes, resident=num_bytes)
    reads: list[Sequence[int]] = []

    def op(before: Sequence[int]) -> int:
        reads.append(before)
        return grow.op(before)

    forward(op)
    arriving: list[list[int]] = [[] for _ in reads]
    for number in range(len(reads) - 1, -1, -1):
        saved = [number, *reads[number]]
        above = arriving[number]
        grow.op([*above, *saved])  # the gradient of its weights
        gradient = grow.op([*above, number])
        for before in reads[number]:
            arriving[before].append(gradient)
    return grow.draft.build()


def unrolled(
    num_layers: int, num_steps: int, *, seed: int = 0, seconds: float = 1e-3, num_bytes: float = 1e6
) -> OpGraph:
    """Recurrent layers unrolled in time: each cell reads the cell before and the one below.

    >>> unrolled(2, 3).num_ops
    6
    """
    grow = _Growing(seed, seconds, num_bytes)
    below: list[int] = []
    for _ in range(num_layers):
        row: list[int] = []
        for step in range(num_steps):
            row.append(grow.op([*row[-1:], *below[step : step + 1]]))
        below = row
    return grow.draft.build()


def tree(depth: int, *, seed: int = 0, seconds: float = 1e-3, num_bytes: float = 1e6) -> OpGraph:
    """A binary tree from its leaves to its root.

    >>> tree(2).num_ops
    7
    """
    grow = _Growing(seed, seconds, num_bytes)
    layer = [grow.op([]) for _ in range(2**depth)]
    while len(layer) > 1:
        layer = [grow.op(layer[i : i + 2]) for i in range(0, len(layer), 2)]
    return grow.draft.build()
