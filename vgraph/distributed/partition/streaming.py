"""Streaming: parts found by passes over adjacency lists, with four bytes a node in memory.

Takes: adjacency lists, in memory or mapped; what parts have equal shares of. Gives: a part for every node. Runs once
per graph. Source: LDG, Stanton and Kliot 2012; Fennel, Tsourakakis et al. 2014; several passes, Nishimura and Ugander
2013. Compiled where there is a compiler, else in Python: the same parts either way, to the last node.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import vgraph_kernels
from vgraph.distributed.partition.constraints import Balance, Classes, totals_of
from vgraph.distributed.partition.whole_graph import WholeGraph
from vgraph.distributed.progress import Progress, no_progress
from vgraph.fusion.cpu.build import FOR_ALL, build_kernels
from vgraph.runtime.cpu.kernels import no_memory

PASSES = 6
SLACK = 0.05  # a part may hold so much more than the mean
BLOCK = 64  # neighbours in the order of ids that stay together: about a page of mapped lists
GOLDEN = 0.6180339887498949
GAMMA = 1.5  # Fennel's exponent
TURNS_AT_ONCE = 1 << 18


class _Lists(NamedTuple):
    """Lists of some nodes; see streaming.h."""

    ptr: NDArray[np.int64]
    other: NDArray[Any]
    first: int
    first_other: int
    is_weight: bool


def streamed_parts(
    whole: WholeGraph,
    num_parts: int,
    method: str,
    balance: Balance,
    seed: int = 0,
    passes: int = PASSES,
    progress: Progress = no_progress,
) -> NDArray[np.int32]:
    """The part of every node, (nodes,), nodes of all types numbered one after the other.

    Both directions of an edge count, where out-edges are known. Every pass begins with what the one before gave.
    """
    stream = _Stream(whole, num_parts, method == "fennel", balance, seed)
    turns, total = stream.num_turns, passes * stream.num_turns
    for done in range(0, total, turns):
        for first in range(0, turns, TURNS_AT_ONCE):
            last = min(turns, first + TURNS_AT_ONCE)
            stream.run(first, last)
            progress("pass over the lists", done + last, total)
    return stream.parts


class _Stream:
    """Parts and how full they are, between two turns."""

    def __init__(self, whole: WholeGraph, num_parts: int, is_fennel: bool, balance: Balance, seed: int) -> None:
        self.num_nodes, self.num_parts = whole.total_nodes, num_parts
        self.lists = _all_lists(whole)
        self.balance = balance
        self.parts = np.full(self.num_nodes, -1, np.int32)
        self.loads = np.zeros((num_parts, balance.num_constraints), np.int64)
        self.room = np.maximum(totals_of(whole, balance), 1) / num_parts * (1 + SLACK)
        num_entries = sum(len(lists.other) for lists in self.lists)
        self.is_fennel, self.alpha = is_fennel, GAMMA * num_entries / max(1, self.num_nodes)
        self.num_blocks = -(-self.num_nodes // BLOCK)
        self.stride = _stride(self.num_blocks, seed)

    @property
    def num_turns(self) -> int:
        return self.num_blocks * BLOCK

    def run(self, first: int, last: int) -> None:
        """Some turns of a pass."""
        functions = _compiled()
        if functions is None:
            self._run_in_python(first, last)
            return
        keep, stream = self._packed()
        words = (ctypes.c_int64 * 3)(_address(stream), first, last)
        if functions[0](ctypes.addressof(words)):
            raise no_memory("partitioning")
        del keep

    def _packed(self) -> tuple[Sequence[NDArray[Any]], NDArray[np.int64]]:
        """``vg_stream`` as words, and the arrays that it points to."""
        lists = np.array(
            [
                (
                    _address(x.ptr),
                    _address(x.other),
                    x.other.itemsize,
                    x.first,
                    len(x.ptr) - 1,
                    x.first_other,
                    x.is_weight,
                )
                for x in self.lists
            ],
            np.int64,
        )
        classes = np.array([(_address(c.of_nodes), at) for c, at in self._classes()], np.int64)
        words = np.array(
            [
                *(_address(self.parts), self.num_parts, self.loads.shape[1], _address(self.loads), _address(self.room)),
                *(_address(lists), len(lists), _address(classes), len(classes)),
                *(self.balance.edges, self.is_fennel, 0, self.num_nodes, BLOCK, self.stride),
            ],
            np.int64,
        )
        words[11:12].view(np.float64)[0] = self.alpha
        return (lists, classes), words

    def _classes(self) -> list[tuple[Classes, int]]:
        """Classes, and the constraint of the first of each."""
        column, found = 1 + self.balance.edges, list[tuple[Classes, int]]()
        for classes in self.balance.classes:
            found.append((classes, column))
            column += classes.num_classes
        return found

    # ---------------------------------------------------------------- the same in Python
    def _run_in_python(self, first: int, last: int) -> None:
        for turn in range(first, last):
            node = turn // BLOCK * self.stride % self.num_blocks * BLOCK + turn % BLOCK
            if node < self.num_nodes:
                self._place(node)

    def _place(self, node: int) -> None:
        weight = self._weigh(node)
        if self.parts[node] >= 0:
            self.loads[self.parts[node]] -= weight
        count = dict[int, int]()
        for lists in self._lists_of(node):
            others = lists.other[lists.ptr[node - lists.first] : lists.ptr[node - lists.first + 1]].astype(np.int64)
            others = others + lists.first_other
            for part in self.parts[others[others != node]].tolist():
                if part >= 0:
                    count[part] = count.get(part, 0) + 1
        self.parts[node] = self._best(weight, count)
        self.loads[self.parts[node]] += weight

    def _lists_of(self, node: int) -> list[_Lists]:
        return [x for x in self.lists if x.first <= node < x.first + len(x.ptr) - 1]

    def _weigh(self, node: int) -> NDArray[np.int64]:
        weight = np.zeros(self.loads.shape[1], np.int64)
        weight[0] = 1
        if self.balance.edges:
            for x in self._lists_of(node):
                weight[1] += x.is_weight * (x.ptr[node - x.first + 1] - x.ptr[node - x.first])
        for classes, column in self._classes():
            if classes.of_nodes[node] != 255:
                weight[column + classes.of_nodes[node]] = 1
        return weight

    def _best(self, weight: NDArray[np.int64], count: dict[int, int]) -> int:
        fill = (self.loads / self.room).max(1)
        has_room = ((self.loads + weight <= self.room) | (weight == 0)).all(1)
        best = int(fill.argmin())

        def score(part: int) -> float:
            found = count.get(part, 0)
            return found - self.alpha * math.sqrt(fill[part]) if self.is_fennel else found * (1.0 - fill[part])

        most, is_possible, emptiest = score(best), bool(has_room[best]), best
        for part in count:
            if part != emptiest and has_room[part] and (not is_possible or score(part) > most):
                best, most, is_possible = part, score(part), True
        return best


def _all_lists(whole: WholeGraph) -> list[_Lists]:
    starts, found = whole.starts, list[_Lists]()
    for (src_type, _, dst_type), lists in whole.in_edges.items():
        found.append(_Lists(lists.ptr.numpy(), lists.other.numpy(), starts[dst_type], starts[src_type], True))
    for (src_type, _, dst_type), lists in (whole.out_edges or {}).items():
        found.append(_Lists(lists.ptr.numpy(), lists.other.numpy(), starts[src_type], starts[dst_type], False))
    return found


def _stride(num_blocks: int, seed: int) -> int:
    """A number without a common divisor: its multiples visit every block once, each far from the one before."""
    stride = max(1, int(num_blocks * GOLDEN)) + seed % max(1, num_blocks)
    while math.gcd(stride, num_blocks) > 1:
        stride += 1
    return stride


def _address(array: NDArray[Any]) -> int:
    assert array.flags.c_contiguous
    return int(array.ctypes.data)


@cache
def _compiled() -> list[Any] | None:
    """``vg_stream_vertices``; None where nothing compiles."""
    folder = Path(vgraph_kernels.__file__).parent
    text = (folder / "streaming.h").read_text().replace("#pragma once", "")
    export = 'extern "C" int64_t kernel0(int64_t* a) { return vg_stream_vertices(a); }'
    return build_kernels(f"{text}\n{export}\n", 1, level=FOR_ALL)
