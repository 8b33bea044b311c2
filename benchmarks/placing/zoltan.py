"""Zoltan: its multilevel graph and hypergraph partitioning of the op graph, where Debian's package is installed.

Takes: OpGraph, Cluster. Gives: a device an op; tempo: once a benchmark. Baselines only.
Source: Zoltan's PHG (Devine et al. 2006), as the thesis compares with it. Zoltan needs MPI, which a process cannot
leave again: it runs in one of its own (zoltan_process.py).
"""

from __future__ import annotations

import ctypes.util
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from vgraph.errors import PlacementError
from vgraph.partition.placement.devices import Cluster
from vgraph.partition.placement.op_graph import Ints, OpGraph

from .metis import scaled, symmetric_edges

PROCESS = Path(__file__).with_name("zoltan_process.py")
SECONDS = 300


def library_name() -> str | None:
    """Debian calls it trilinos_zoltan, others zoltan."""
    return ctypes.util.find_library("trilinos_zoltan") or ctypes.util.find_library("zoltan")


def missing_zoltan() -> str:
    """Why Zoltan cannot be used here; "" if it can."""
    if not library_name():
        return "Zoltan is not installed (Debian: apt install libtrilinos-zoltan-13.2)"
    return "" if ctypes.util.find_library("mpi") else "Zoltan is installed, but no MPI library is"


def place_zoltan(graph: OpGraph, cluster: Cluster, *, hypergraph: bool = False) -> Ints:
    """Parts of equal seconds with the least bytes between them; a hypergraph counts a tensor once a part.

    Raises:
        PlacementError: Zoltan is not installed, or fails.
    """
    if reason := missing_zoltan():
        raise PlacementError(reason, cure="leave this baseline out, or install it")
    pointers, others, weights = _hyperedges(graph) if hypergraph else symmetric_edges(graph)
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "graph.npz"), Path(folder, "parts.npy")
        np.savez(
            given, pointers=pointers, others=others, weights=weights, loads=scaled(graph.mean_costs),
            parts=cluster.num_devices, hypergraph=hypergraph,
            libraries=[library_name() or "", ctypes.util.find_library("mpi") or ""],
        )  # fmt: skip
        command = [sys.executable, str(PROCESS), str(given), str(made)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        if done.returncode or not made.exists():
            last = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"status {done.returncode}"]
            raise PlacementError(f"Zoltan failed: {last[0]}", cure="leave this baseline out")
        return np.load(made).astype(np.int64)


def _hyperedges(graph: OpGraph) -> tuple[Ints, Ints, Ints]:
    """One hyperedge a tensor that somebody reads: its maker and all readers."""
    tensors = np.concatenate([graph.edge_tensor, np.unique(graph.edge_tensor)])
    ops = np.concatenate([graph.edge_op, graph.tensor_op[np.unique(graph.edge_tensor)]])
    order = np.argsort(tensors, kind="stable")
    numbers, counts = np.unique(tensors, return_counts=True)
    pointers = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return pointers, ops[order], 1 + scaled(graph.tensor_bytes[numbers])
