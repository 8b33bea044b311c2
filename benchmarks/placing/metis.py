"""METIS: k-way partitioning and recursive bisection of the op graph, with and without memory as a second constraint.

Takes: OpGraph, Cluster. Gives: a device an op; tempo: once a benchmark. Baselines only: an edge cut is no makespan.
Source: METIS (Karypis and Kumar 1998) in pymetis, as the thesis compares with it. pymetis hands on one weight a
vertex; for two the same function of the library that it ships is called.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgraph.errors import PlacementError
from vgraph.partition.placement.devices import Cluster
from vgraph.partition.placement.op_graph import Ints, OpGraph

_LARGEST = 2**20  # weights are integers, and METIS adds them up
_OK = 1


def missing_metis() -> str:
    """Why METIS cannot be used here; "" if it can."""
    return "" if importlib.util.find_spec("pymetis") else "pymetis is not installed (pip install 'vgraph[bench]')"


def place_metis(graph: OpGraph, cluster: Cluster, *, recursive: bool = False, with_memory: bool = False) -> Ints:
    """Parts of equal seconds (and bytes) with the least bytes between them.

    Raises:
        PlacementError: pymetis is not installed, or refuses.
    """
    if reason := missing_metis():
        raise PlacementError(reason, cure="leave this baseline out, or install it")
    count = cluster.num_devices
    if count == 1 or graph.num_ops <= count:
        return np.arange(graph.num_ops, dtype=np.int64) % count
    pointers, others, weights = symmetric_edges(graph)
    seconds = scaled(graph.mean_costs)
    if not with_memory:
        pymetis: Any = importlib.import_module("pymetis")
        adjacency = pymetis.CSRAdjacency(adj_starts=pointers, adjacent=others)
        found = pymetis.part_graph(count, adjacency, vweights=seconds, eweights=weights, recursive=recursive)
        return np.array(found.vertex_part, dtype=np.int64)
    both = np.stack([seconds, scaled(graph.op_bytes + graph.resident)], 1).ravel()
    return _part_graph(count, pointers, others, both, weights, recursive)


def symmetric_edges(graph: OpGraph) -> tuple[Ints, Ints, Ints]:
    """The graph without directions, in compressed rows; bytes of several edges between two ops are added."""
    source, target, size = graph.op_edges
    pairs = np.concatenate([source * graph.num_ops + target, target * graph.num_ops + source])
    pairs, which = np.unique(pairs, return_inverse=True)
    rows, columns = np.divmod(pairs, max(graph.num_ops, 1))
    total = np.bincount(which, np.concatenate([size, size]), len(pairs))
    return np.searchsorted(rows, np.arange(graph.num_ops + 1)).astype(np.int64), columns, 1 + scaled(total)


def scaled(weights: NDArray[Any]) -> Ints:
    """Whole numbers from 0, as METIS and Zoltan want them."""
    most = float(np.max(weights, initial=0.0))
    return np.rint(weights * (_LARGEST / most if most else 0.0)).astype(np.int64)


def _part_graph(count: int, pointers: Ints, others: Ints, weights: Ints, edges: Ints, recursive: bool) -> Ints:
    """METIS_PartGraphKway or METIS_PartGraphRecursive with two constraints."""
    internal: Any = importlib.import_module("pymetis._internal")
    library = ctypes.CDLL(internal.__file__)
    name = "METIS_PartGraphRecursive" if recursive else "METIS_PartGraphKway"
    function = getattr(library, name, None)
    if function is None:
        raise PlacementError(f"this build of pymetis does not show {name}", cure="leave this baseline out")
    part, number = np.zeros(len(pointers) - 1, dtype=np.int64), ctypes.c_int64
    given = [number(len(part)), number(2), number(count), number(0)]
    vertices, constraints, parts, cut = (ctypes.byref(value) for value in given)
    address = [array.ctypes.data_as(ctypes.c_void_p) for array in (pointers, others, weights, edges, part)]
    starts, adjacent, loads, sizes, result = address
    status = function(vertices, constraints, starts, adjacent, loads, None, sizes, parts, None, None, None, cut, result)
    if status != _OK:
        raise PlacementError(f"METIS ended with {status} on {len(part)} operators", cure="leave this baseline out")
    return part
