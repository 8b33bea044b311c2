"""Zoltan's own process: reads a graph, calls the library through ctypes, writes the parts.

Takes: an .npz of zoltan.py. Gives: an .npy of parts; tempo: once a benchmark. Run as a script; imports no vgraph.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_void_p
from typing import Any

import numpy as np

OK, COMPRESSED_EDGE = 0, 1


class Query:
    """The functions through which Zoltan asks for the graph; kept, so that they live as long as it asks."""

    def __init__(self, zoltan: Any, handle: Any, graph: Mapping[str, Any]) -> None:
        name = c_char_p()
        zoltan.Zoltan_get_global_id_type(byref(name))
        self.id = ctypes.c_ulong if b"long" in (name.value or b"") else ctypes.c_uint
        self.zoltan, self.handle, self.graph, self.kept = zoltan, handle, graph, list[Any]()
        self.count = len(graph["loads"])

    def register(self) -> None:
        ids, ints, floats = POINTER(self.id), POINTER(c_int), POINTER(c_float)
        self._set("Num_Obj", self.num_objects, c_int, ints)
        self._set("Obj_List", self.objects, None, c_int, c_int, ids, ids, c_int, floats, ints)
        if self.graph["hypergraph"]:
            self._set("HG_Size_CS", self.hyper_sizes, None, ints, ints, ints, ints)
            self._set("HG_CS", self.hyperedges, None, c_int, c_int, c_int, c_int, ids, ints, ids, ints)
            self._set("HG_Size_Edge_Wts", self.num_hyper_weights, None, ints, ints)
            self._set("HG_Edge_Wts", self.hyper_weights, None, c_int, c_int, c_int, c_int, ids, ids, floats, ints)
        else:
            self._set("Num_Edges_Multi", self.num_edges, None, c_int, c_int, c_int, ids, ids, ints, ints)
            self._set(
                "Edge_List_Multi", self.edges, None,
                c_int, c_int, c_int, ids, ids, ints, ids, ints, c_int, floats, ints,
            )  # fmt: skip

    def _set(self, name: str, function: Any, result: Any, *types: Any) -> None:
        callback = ctypes.CFUNCTYPE(result, c_void_p, *types)(lambda data, *given: function(*given))
        self.kept.append(callback)
        assert getattr(self.zoltan, f"Zoltan_Set_{name}_Fn")(self.handle, callback, None) == OK

    def _fill(self, place: Any, values: Any) -> None:
        for i, value in enumerate(np.asarray(values).tolist()):
            place[i] = value

    # ------------------------------------------------------------ vertices
    def num_objects(self, error: Any) -> int:
        error[0] = OK
        return self.count

    def objects(self, _: int, __: int, ids: Any, local: Any, dims: int, loads: Any, error: Any) -> None:
        self._fill(ids, range(self.count))
        if dims:
            self._fill(loads, self.graph["loads"])
        error[0] = OK

    # ------------------------------------------------------------ edges
    def num_edges(self, _: int, __: int, count: int, ids: Any, local: Any, sizes: Any, error: Any) -> None:
        degree = np.diff(self.graph["pointers"])
        self._fill(sizes, [degree[ids[i]] for i in range(count)])
        error[0] = OK

    def edges(
        self, _: int, __: int, count: int, ids: Any, local: Any, sizes: Any,
        neighbours: Any, owners: Any, dims: int, weights: Any, error: Any,
    ) -> None:  # fmt: skip
        pointers = self.graph["pointers"]
        rows = [slice(pointers[ids[i]], pointers[ids[i] + 1]) for i in range(count)]
        self._fill(neighbours, np.concatenate([self.graph["others"][row] for row in rows]))
        self._fill(owners, np.zeros(sum(row.stop - row.start for row in rows), dtype=int))
        if dims:
            self._fill(weights, np.concatenate([self.graph["weights"][row] for row in rows]))
        error[0] = OK

    # ------------------------------------------------------------ hyperedges
    def hyper_sizes(self, lists: Any, pins: Any, form: Any, error: Any) -> None:
        lists[0], pins[0], form[0] = len(self.graph["weights"]), len(self.graph["others"]), COMPRESSED_EDGE
        error[0] = OK

    def hyperedges(
        self, _: int, count: int, pins: int, form: int, ids: Any, pointers: Any, members: Any, error: Any
    ) -> None:
        self._fill(ids, range(count))
        self._fill(pointers, self.graph["pointers"][:count])
        self._fill(members, self.graph["others"])
        error[0] = OK

    def num_hyper_weights(self, count: Any, error: Any) -> None:
        count[0], error[0] = len(self.graph["weights"]), OK

    def hyper_weights(
        self, _: int, __: int, count: int, dims: int, ids: Any, local: Any, weights: Any, error: Any
    ) -> None:
        self._fill(ids, range(count))
        self._fill(weights, self.graph["weights"])
        error[0] = OK


def partition(graph: Mapping[str, Any]) -> Any:
    """Zoltan's parts of every vertex."""
    zoltan_name, mpi_name = graph["libraries"].tolist()
    os.environ.setdefault("OMPI_MCA_ess_singleton_isolated", "1")  # no daemon for one process
    mpi = ctypes.CDLL(mpi_name, mode=ctypes.RTLD_GLOBAL)
    zoltan = ctypes.CDLL(zoltan_name, mode=ctypes.RTLD_GLOBAL)
    assert mpi.MPI_Init(None, None) == OK, "MPI_Init"
    version = c_float()
    assert zoltan.Zoltan_Initialize(0, None, byref(version)) == OK, "Zoltan_Initialize"
    zoltan.Zoltan_Create.restype = c_void_p
    handle = c_void_p(zoltan.Zoltan_Create(_world(mpi)))
    method = "HYPERGRAPH" if graph["hypergraph"] else "GRAPH"
    settings = {
        "LB_METHOD": method, f"{method}_PACKAGE": "PHG", "LB_APPROACH": "PARTITION", "DEBUG_LEVEL": "0",
        "NUM_GLOBAL_PARTS": str(int(graph["parts"])), "OBJ_WEIGHT_DIM": "1", "EDGE_WEIGHT_DIM": "1",
        "NUM_LID_ENTRIES": "1", "RETURN_LISTS": "PARTS", "IMBALANCE_TOL": "1.1", "SEED": "1",
        "PHG_EDGE_SIZE_THRESHOLD": "1.0",
    }  # fmt: skip
    for key, value in settings.items():
        assert zoltan.Zoltan_Set_Param(handle, key.encode(), value.encode()) == OK, key
    query = Query(zoltan, handle, graph)
    query.register()
    parts = _balance(zoltan, handle, query)
    mpi.MPI_Finalize()
    return parts


def _world(mpi: Any) -> Any:
    """MPI_COMM_WORLD: the address of a symbol in Open MPI, a number in MPICH."""
    try:
        return c_void_p(ctypes.addressof(c_int.in_dll(mpi, "ompi_mpi_comm_world")))
    except ValueError:
        return c_int(0x44000000)


def _balance(zoltan: Any, handle: Any, query: Query) -> Any:
    numbers = [c_int() for _ in range(5)]
    changes, global_entries, local_entries, num_import, num_export = map(byref, numbers)
    imported, exported = [c_void_p() for _ in range(4)], [c_void_p() for _ in range(4)]
    status = zoltan.Zoltan_LB_Partition(
        handle, changes, global_entries, local_entries,
        num_import, *map(byref, imported), num_export, *map(byref, exported),
    )  # fmt: skip
    assert status == OK, f"Zoltan_LB_Partition gave {status}"
    parts = np.zeros(query.count, dtype=np.int64)
    ids = ctypes.cast(exported[0], POINTER(query.id))
    to_part = ctypes.cast(exported[3], POINTER(c_int))
    for i in range(numbers[4].value):
        parts[ids[i]] = to_part[i]
    return parts


def main() -> None:
    """``zoltan_process.py graph.npz parts.npy``."""
    with np.load(sys.argv[1]) as data:
        graph = {key: data[key] for key in data.files}
    np.save(sys.argv[2], partition(graph))


if __name__ == "__main__":
    main()
