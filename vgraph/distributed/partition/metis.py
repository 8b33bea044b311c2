"""METIS: parts of equal weight with few edges between them, of a graph that fits into memory.

Takes: adjacency lists, what parts have equal shares of. Gives: a part for every node. Runs once per graph.
Source: Karypis and Kumar 1998 (k-way partitioning); 1999 (several constraints). pymetis hands on one weight a node;
for several the same function of the library that it ships is called.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from vgraph.distributed.partition.constraints import Balance, weights_of
from vgraph.distributed.partition.whole_graph import WholeGraph
from vgraph.errors import GraphError, VGraphError

NUM_OPTIONS, OK, VOLUME = 40, 1, 1  # of metis.h
BYTES_A_NODE, BYTES_AN_EDGE = 256, 208  # measured peaks of symmetrising and METIS together, rounded up


@dataclass(frozen=True)
class Objective:
    """How METIS divides, by halves or at once, and what is to be small: cut edges, or the rows that parts exchange."""

    is_recursive: bool = False
    is_volume: bool = False

    @property
    def function(self) -> str:
        """The name of METIS's function."""
        return "METIS_PartGraphRecursive" if self.is_recursive else "METIS_PartGraphKway"


def metis_parts(
    whole: WholeGraph,
    num_parts: int,
    balance: Balance,
    seed: int,
    memory: int | None = None,
    objective: Objective = Objective(),
) -> NDArray[np.int32]:
    """The part of every node, (nodes,), nodes of all types numbered one after the other.

    Raises:
        GraphError: the graph will not fit into ``memory`` bytes (by default, what this machine has free).
        VGraphError: pymetis is not installed, or METIS gives up.
    """
    if importlib.util.find_spec("pymetis") is None:
        cure = "pip install 'vgraph[metis]', or take method=\"hash\""
        raise VGraphError("METIS needs pymetis, which is not installed", cure=cure)
    _refuse_what_cannot_fit(whole, memory)
    count = whole.total_nodes
    if num_parts == 1 or count <= num_parts:
        return np.arange(count, dtype=np.int32) % num_parts
    ptr, others, multiplicity = _symmetric(whole)
    if not len(others):  # any equal shares are best; METIS is not asked about graphs without edges
        return np.arange(count, dtype=np.int32) * num_parts // count
    return _part_graph(num_parts, (ptr, others, multiplicity), weights_of(whole, balance), seed, objective)


def _refuse_what_cannot_fit(whole: WholeGraph, memory: int | None) -> None:
    needed = BYTES_A_NODE * whole.total_nodes + BYTES_AN_EDGE * whole.total_edges
    free = free_memory() if memory is None else memory
    if free is not None and needed > free:
        estimate = f"about {needed / 2**30:.1f} GiB for {whole.total_edges} edges"
        fact = f"METIS would take {estimate}; {free / 2**30:.1f} are free"
        raise GraphError(fact, cure='take method="ldg" or "fennel", which pass over the edges')


def free_memory() -> int | None:
    """Bytes that this machine can still give; None: it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")), None)


def _symmetric(whole: WholeGraph) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The graph without types, directions and loops in compressed rows, and how often each edge is there."""
    count, starts = whole.total_nodes, whole.starts
    both: Any = sparse.csr_array((count, count), dtype=np.int32)
    for (src_type, _, dst_type), lists in whole.in_edges.items():
        columns = lists.other.numpy().astype(np.int64) + starts[src_type]
        rows = np.repeat(np.arange(len(lists.ptr) - 1), np.diff(lists.ptr.numpy())) + starts[dst_type]
        keep = rows != columns
        ones = np.ones(int(keep.sum()), np.int32)
        one: Any = sparse.coo_array((ones, (rows[keep], columns[keep])), shape=(count, count)).tocsr()
        both = both + one
    both = both + both.T.tocsr()
    return both.indptr.astype(np.int64), both.indices.astype(np.int64), both.data.astype(np.int64)


def _part_graph(
    num_parts: int,
    lists: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    weights: NDArray[np.int64],
    seed: int,
    objective: Objective,
) -> NDArray[np.int32]:
    """METIS's function with one constraint or several; ``lists``: pointers, other ends, how many edges."""
    ptr, others, multiplicity = lists
    internal: Any = importlib.import_module("pymetis._internal")
    function: Any = getattr(ctypes.CDLL(internal.__file__), objective.function, None)
    if function is None:
        raise VGraphError(f"this build of pymetis hides {objective.function}", cure='take method="ldg"')
    options = np.full(NUM_OPTIONS, -1, np.int64)
    options[int(internal.options_indices.SEED)] = seed % 2**31
    if objective.is_volume:
        options[int(internal.options_indices.OBJTYPE)] = VOLUME
    part, number = np.zeros(len(ptr) - 1, np.int64), ctypes.c_int64
    sizes = [ctypes.byref(number(n)) for n in (len(part), weights.shape[1], num_parts, 0)]
    arrays = [array.ctypes.data_as(ctypes.c_void_p) for array in (ptr, others, weights, multiplicity, options, part)]
    vertices, constraints, parts, cut = sizes
    starts, adjacent, loads, times, chosen, result = arrays
    status = function(
        *(vertices, constraints, starts, adjacent, loads, None, times),
        *(parts, None, None, chosen, cut, result),
    )
    if status != OK:
        raise VGraphError(f"METIS ended with {status} on {len(part)} nodes", cure='take method="ldg"')
    return part.astype(np.int32)
