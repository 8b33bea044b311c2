"""PartitionedGraph: a graph divided into parts on disk, of which what is asked for is mapped.

Takes: a folder of ``partition_graph``. Gives: tensors over its files. Runs once per process.

A graph is stored with new ids: part p of P has the nodes of type t from ``bounds(t)[p]`` to ``bounds(t)[p + 1] - 1``,
and all edges that end there. All tensors are on the CPU and mapped: their pages are shared by all processes of a
machine that read them, and what a program writes to them stays in that program.

    stored = PartitionedGraph.open("papers.vg")      # sizes and bounds are compared; checksums by ``check_graph``
    stored.num_parts, stored.digest, stored.manifest # digest: equal on two machines if the partitions are
    stored.ntypes, stored.canonical_etypes           # of a graph without types ["_N"] and [("_N", "_E", "_N")]
    stored.num_nodes(t), stored.num_edges(e), stored.bounds(t), stored.edge_bounds(e)    # int64, (P + 1,)
    stored.node_schemes(t), stored.edge_schemes(e)   # {name: Scheme(shape of a row, dtype)}
    stored.new_ids(t)                                # (num_nodes(t),): original id -> new id
    stored.halo_rows(t)                              # (P, P) int64: rows of part j that part i reads, on the edges
    stored.rows(t, name, new_ids)                    # rows of a feature, wherever they are (of parts on this machine)
    part = stored.part(p)
    part.orig(t)                                     # (own nodes,): new id -> original id
    part.ptr(e)                                      # (own destinations + 1,) int64, from 0: in-edges of each
    part.src(e), part.eid(e)                         # (own edges,): new ids of sources, original ids of edges
    part.outdeg(e)                                   # (own sources,): out-degrees in the whole graph
    part.node_data(t, name), part.edge_data(e, name) # features of own nodes; of own edges, in the order of ``src``
    part.out_ptr(e), part.out_dst(e), part.out_eid(e)  # out-edges of own sources, of a graph stored with both=True

``stored.packing.pack_parts(stored.manifest, num_ranks, shares)`` tells which parts each rank takes: rank r those from
``bounds[r]`` to ``bounds[r + 1] - 1``, at least one, weighted by nodes, edges and training nodes.

Edges of one destination keep the order that they had (``eid`` ascends). Edge k of part p has the new id
``edge_bounds(e)[p] + k``. Ids are int32 where the largest fits, else int64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from vgraph.arguments import COUNT
from vgraph.distributed.stored.file_names import (
    edge_feature_file,
    edge_file,
    halo_file,
    new_ids_file,
    node_feature_file,
    orig_ids_file,
    part_folder,
)
from vgraph.distributed.stored.manifest import CURE, Manifest, read_manifest
from vgraph.errors import DataError, GraphError, NameLookupError
from vgraph.files import map_array, unreadable
from vgraph.graphs.data import EdgeType
from vgraph.graphs.frame import Scheme


def ids_dtype(count: int) -> torch.dtype:
    """What ids below ``count``, or counts up to it, are stored in."""
    return torch.int32 if count < 2**31 else torch.int64


class PartitionedGraph:
    """A graph on disk, as ``partition_graph`` wrote it; made by ``PartitionedGraph.open``.

    Parts that another machine has need not be here.

    Source: DGL 1.1, ``dgl.distributed.load_partition`` (a partition on disk).

    Example:
        >>> import tempfile, vgraph, vgraph.distributed as vd
        >>> folder = tempfile.mkdtemp()
        >>> _ = vd.partition_graph(vgraph.graph(([0, 1], [2, 2])), folder, num_parts=1)
        >>> stored = vd.PartitionedGraph.open(folder)
        >>> stored.num_parts, stored.num_nodes("_N"), stored.part(0).num_edges(("_N", "_E", "_N"))
        (1, 3, 2)
    """

    def __init__(self, path: Path, manifest: Manifest, digest: str) -> None:
        self.path, self.manifest, self.digest = path, manifest, digest
        self._parts: dict[int, StoredPart] = {}

    @classmethod
    def open(cls, path: str | Path) -> PartitionedGraph:
        """Reads the manifest; arrays are mapped, and compared with it, when they are asked for.

        Args:
            path: the folder.

        Returns:
            A PartitionedGraph.

        Raises:
            DataError: there is no partitioned graph, or its manifest is damaged.
        """
        return cls(Path(path), *read_manifest(Path(path)))

    @property
    def num_parts(self) -> int:
        """The number of parts."""
        return self.manifest.num_parts

    @property
    def ntypes(self) -> list[str]:
        """The names of the node types, sorted."""
        return list(self.manifest.nodes)

    @property
    def canonical_etypes(self) -> list[EdgeType]:
        """The edge types as triples (type of sources, name, type of destinations), sorted."""
        return list(self.manifest.edges)

    def num_nodes(self, ntype: str) -> int:
        """The number of nodes of a type, in all parts.

        Args:
            ntype: the type of nodes.

        Returns:
            A number from 0 up.

        Raises:
            KeyError: there is no such type.
        """
        return self.manifest.nodes[ntype].bounds[-1]

    def num_edges(self, etype: EdgeType) -> int:
        """The number of edges of a type, in all parts.

        Args:
            etype: the type of edges, a triple (type of sources, name, type of destinations).

        Returns:
            A number from 0 up.

        Raises:
            KeyError: there is no such type.
        """
        return self.manifest.edges[etype].bounds[-1]

    @cached_property
    def _bounds(self) -> dict[str, Tensor]:
        return {t: torch.tensor(found.bounds, dtype=torch.int64) for t, found in self.manifest.nodes.items()}

    def bounds(self, ntype: str) -> Tensor:
        """The first new id of every part, and the number of nodes.

        Args:
            ntype: the type of nodes.

        Returns:
            (num_parts + 1,) int64.

        Raises:
            KeyError: there is no such type.
        """
        return self._bounds[ntype]

    def edge_bounds(self, etype: EdgeType) -> Tensor:
        """The first new edge id of every part, and the number of edges.

        Args:
            etype: the type of edges, a triple (type of sources, name, type of destinations).

        Returns:
            (num_parts + 1,) int64.

        Raises:
            KeyError: there is no such type.
        """
        return torch.tensor(self.manifest.edges[etype].bounds, dtype=torch.int64)

    def node_schemes(self, ntype: str) -> Mapping[str, Scheme]:
        """The row shape and the dtype of every feature of a type of nodes.

        Args:
            ntype: the type of nodes.

        Returns:
            A mapping from names; each entry has ``shape`` (without the rows) and ``dtype``.

        Raises:
            KeyError: there is no such type.
        """
        return self.manifest.nodes[ntype].features

    def edge_schemes(self, etype: EdgeType) -> Mapping[str, Scheme]:
        """The row shape and the dtype of every feature of a type of edges.

        Args:
            etype: the type of edges, a triple (type of sources, name, type of destinations).

        Returns:
            A mapping from names; each entry has ``shape`` (without the rows) and ``dtype``.

        Raises:
            KeyError: there is no such type.
        """
        return self.manifest.edges[etype].features

    def new_ids(self, ntype: str) -> Tensor:
        """The new id of every original id.

        Args:
            ntype: the type of nodes.

        Returns:
            (num_nodes,), mapped from the file.

        Raises:
            DataError: the file is missing or damaged, or not on this machine.
        """
        count = self.num_nodes(ntype)
        return self.mapped_ids(new_ids_file(ntype), count, count)

    def halo_rows(self, ntype: str) -> Tensor:
        """How many rows of every part every other part reads.

        Args:
            ntype: the type of nodes.

        Returns:
            (num_parts, num_parts) int64: part i (rows) reads so many of part j (columns).

        Raises:
            DataError: the file is missing or damaged, or not on this machine.
        """
        return self.mapped(halo_file(ntype), (self.num_parts, self.num_parts), torch.int64)

    def part(self, part: int) -> StoredPart:
        """One of the parts, whose files are opened when they are asked for.

        Args:
            part: its number, from 0 up.

        Returns:
            A StoredPart, the same for every call.

        Raises:
            GraphError: there is no such part.
        """
        if not COUNT.accepts(part) or part >= self.num_parts:
            fact = f"there is no part {part!r} of {self.num_parts}"
            raise GraphError(fact, cure=f"parts are 0 to {self.num_parts - 1}")
        return self._parts.setdefault(part, StoredPart(self, part))

    def rows(self, ntype: str, name: str, new_ids: Tensor) -> Tensor:
        """Rows of a feature; all must be of parts on this machine.

        Args:
            ntype: the type of nodes.
            name: the feature's name.
            new_ids: (k,).

        Returns:
            (k, ...), in the order of ``new_ids``.

        Raises:
            GraphError: there is no such part.
            DataError: the file is missing or damaged, or not on this machine.
        """
        scheme, owners = self.node_schemes(ntype)[name], self.owners(ntype, new_ids)
        out = torch.empty((len(new_ids), *scheme.shape), dtype=scheme.dtype)
        for part in owners.unique().tolist():
            mine = (owners == part).nonzero().squeeze(1)
            local = new_ids.index_select(0, mine) - self.manifest.nodes[ntype].bounds[part]
            out.index_copy_(0, mine, self.part(part).node_data(ntype, name).index_select(0, local))
        return out

    def owners(self, ntype: str, new_ids: Tensor) -> Tensor:
        """The part of every node.

        Args:
            ntype: the type of nodes.
            new_ids: (k,).

        Returns:
            (k,) int64.

        Raises:
            KeyError: there is no such type.
        """
        return torch.searchsorted(self.bounds(ntype), new_ids.long(), right=True) - 1

    # ---------------------------------------------------------------- files
    def mapped(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The array of a file, compared with the manifest and with what it has to be.

        Args:
            name: the file's name in the folder.
            shape: what shape it has to have.
            dtype: what dtype it has to have.

        Returns:
            A tensor over a map of the file.

        Raises:
            DataError: the file is missing or damaged, or not on this machine.
        """
        path, record = self.path / name, self.manifest.files.get(name)
        if record is None:
            raise DataError(f"the manifest does not know {name}", line=str(path), cure=CURE)
        try:
            num_bytes = path.stat().st_size
        except OSError as error:
            raise unreadable(path, error) from error
        if num_bytes != record.num_bytes:
            raise DataError(
                f"it has {num_bytes} bytes, and was written with {record.num_bytes}", line=str(path), cure=CURE
            )
        found = map_array(path, CURE)
        if dtype == torch.bfloat16 and found.dtype == torch.int16:  # NumPy has no such numbers
            found = found.view(torch.bfloat16)
        if tuple(found.shape) != shape or found.dtype != dtype:
            fact = f"it holds {tuple(found.shape)} {found.dtype}; the manifest names {shape} {dtype}"
            raise DataError(fact, line=str(path), cure=CURE)
        return found

    def mapped_ids(self, name: str, count: int, limit: int) -> Tensor:
        """As ``mapped``, of ids below a limit: kernels trust them.

        Args:
            name: the file's name in the folder.
            count: how many ids it has to have.
            limit: all are below it.

        Returns:
            (count,) int32 or int64, over a map of the file.

        Raises:
            DataError: the file is missing or damaged, or not on this machine.
        """
        found = self.mapped(name, (count,), ids_dtype(limit))
        if count and not 0 <= int(found.min()) <= int(found.max()) < limit:
            raise DataError(f"it names ids outside 0 to {limit - 1}", line=str(self.path / name), cure=CURE)
        return found


class StoredPart:
    """The arrays of one part, each mapped and compared once; made by ``PartitionedGraph.part``.

    Source: none (in-edges as compressed sparse columns).

    Example:
        >>> import tempfile, vgraph, vgraph.distributed as vd
        >>> folder = tempfile.mkdtemp()
        >>> _ = vd.partition_graph(vgraph.graph(([0, 1], [2, 2])), folder, num_parts=1)
        >>> part = vd.PartitionedGraph.open(folder).part(0)
        >>> part.orig("_N").tolist(), part.eid(("_N", "_E", "_N")).tolist()
        ([0, 1, 2], [0, 1])
    """

    def __init__(self, stored: PartitionedGraph, part: int) -> None:
        self.stored, self.number = stored, part
        self._kept: dict[str, Tensor] = {}

    def num_nodes(self, ntype: str) -> int:
        """The number of own nodes of a type.

        Args:
            ntype: the type of nodes.

        Returns:
            A number from 0 up.

        Raises:
            KeyError: there is no such type.
        """
        return self._own(self.stored.manifest.nodes[ntype].bounds)

    def num_edges(self, etype: EdgeType) -> int:
        """The number of edges of a type that end in own nodes.

        Args:
            etype: the type of edges, a triple (type of sources, name, type of destinations).

        Returns:
            A number from 0 up.

        Raises:
            KeyError: there is no such type.
        """
        return self._own(self.stored.manifest.edges[etype].bounds)

    def orig(self, ntype: str) -> Tensor:
        """The original id of every own node.

        Args:
            ntype: the type of nodes.

        Returns:
            (own nodes,), ascending.

        Raises:
            DataError: the file is missing or damaged, or not on this machine.
        """
        return self._ids(orig_ids_file(ntype), self.num_nodes(ntype), self.stored.num_nodes(ntype))

    def ptr(self, etype: EdgeType) -> Tensor:
        """Where the in-edges of every own destination begin, and how many there are in all.

        Args:
            etype: the type of edges, a triple (type of sources, name, type of destinations).

        Returns:
            (own destinations + 1,) int64.

        Raises:
            DataError: the file is missing or damaged, or not on this machine.
        """
        return self._pointers(edge_file(etype, "ptr"), self.num_nodes(etype[2]), self.num_edges(etype))

    def src(self, etype: EdgeType) -> Tensor:
        """The new id of every own edge's source.

        Args:
            etype: the type of edges, a triple (type of sources, name, type of destinations).

        Returns:
            (own edges,), destination by destination.

        Raises:
            DataError: the file is missing or damaged, or not on this machine.
        """
        return self._ids(edge_file(etype, "src"), self.num_edges(etype), self.stored.num_nodes(etype[0]))

    def eid(self, etype: EdgeType) -> Tensor:
        """The original id of every own edge.

        Args:
            etype: the type of edges, a triple (type of sources, name, type of destinations).

        Returns:
            (own edges,), in the order of ``src``.

        Raises:
            DataError: the file is missing or damaged, or not on this machine.
        """
        return self._ids(edge_file(etype, "eid"), self.num_edges(etype), self.stored.num_edges(etype))

    def outdeg(self, etype: EdgeType) -> Tensor:
        """How many edges of this type begin at every own node of its source type, in the whole graph.

        Args:
            etype: the type of edges, a triple (type of sources, name, type of destinations).

        Returns:
            (own sources,).

        Raises:
            DataError: the file is missing or damaged, or not on this machine.
        """
        return self._ids(edge_file(etype, "outdeg"), self.num_nodes(etype[0]), self.stored.num_edges(etype) + 1)

    def out_ptr(self, etype: EdgeType) -> Tensor:
        """Where the out-edges of every own source begin, and how many there are in all.

        Args:
            etype: the type of edges, a triple (type of sources, name, type of destinations).

        Returns:
            (own sources + 1,) int64.

        Raises:
            GraphError: out-edges were not stored.
            DataError: the file is missing or damaged, or not on this machine.
        """
        return self._pointers(edge_file(etype, "out_ptr"), self.num_nodes(etype[0]), self.num_out_edges(etype))

    def out_dst(self, etype: EdgeType) -> Tensor:
        """The new id of every out-edge's destination.

        Args:
            etype: the type of edges, a triple (type of sources, name, type of destinations).

        Returns:
            (own out-edges,), source by source.

        Raises:
            GraphError: out-edges were not stored.
            DataError: the file is missing or damaged, or not on this machine.
        """
        count = self.num_out_edges(etype)
        return self._ids(edge_file(etype, "out_dst"), count, self.stored.num_nodes(etype[2]))

    def out_eid(self, etype: EdgeType) -> Tensor:
        """The original id of every out-edge.

        Args:
            etype: the type of edges, a triple (type of sources, name, type of destinations).

        Returns:
            (own out-edges,), in the order of ``out_dst``.

        Raises:
            GraphError: out-edges were not stored.
            DataError: the file is missing or damaged, or not on this machine.
        """
        return self._ids(edge_file(etype, "out_eid"), self.num_out_edges(etype), self.stored.num_edges(etype))

    def num_out_edges(self, etype: EdgeType) -> int:
        """The number of edges of a type that begin at own nodes.

        Args:
            etype: the type of edges, a triple (type of sources, name, type of destinations).

        Returns:
            A number from 0 up.

        Raises:
            GraphError: out-edges were not stored.
        """
        bounds = self.stored.manifest.edges[etype].out_bounds
        if not bounds:
            fact = f"{self.stored.path} holds no out-edges"
            raise GraphError(fact, cure="partition the graph with both=True (--both)")
        return self._own(bounds)

    def _own(self, bounds: Sequence[int]) -> int:
        """How many of what lies between the bounds of parts are this part's."""
        return bounds[self.number + 1] - bounds[self.number]

    def node_data(self, ntype: str, name: str) -> Tensor:
        """A feature of the own nodes.

        Args:
            ntype: the type of nodes.
            name: the feature's name.

        Returns:
            (own nodes, ...), over a map of the file.

        Raises:
            NameLookupError: there is no such feature.
            DataError: the file is missing or damaged, or not on this machine.
        """
        scheme = _scheme(self.stored.node_schemes(ntype), name, ntype)
        return self._keep(node_feature_file(ntype, name), (self.num_nodes(ntype), *scheme.shape), scheme.dtype)

    def edge_data(self, etype: EdgeType, name: str) -> Tensor:
        """A feature of the own edges.

        Args:
            etype: the type of edges, a triple (type of sources, name, type of destinations).
            name: the feature's name.

        Returns:
            (own edges, ...), in the order of ``src``, over a map of the file.

        Raises:
            NameLookupError: there is no such feature.
            DataError: the file is missing or damaged, or not on this machine.
        """
        scheme = _scheme(self.stored.edge_schemes(etype), name, etype[1])
        return self._keep(edge_feature_file(etype, name), (self.num_edges(etype), *scheme.shape), scheme.dtype)

    # ---------------------------------------------------------------- files
    def _keep(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        if name not in self._kept:
            self._kept[name] = self.stored.mapped(f"{part_folder(self.number)}/{name}", shape, dtype)
        return self._kept[name]

    def _ids(self, name: str, count: int, limit: int) -> Tensor:
        if name not in self._kept:
            self._kept[name] = self.stored.mapped_ids(f"{part_folder(self.number)}/{name}", count, limit)
        return self._kept[name]

    def _pointers(self, name: str, count: int, last: int) -> Tensor:
        """int64 (count + 1,) from 0 to ``last``, never falling: kernels trust them."""
        if name not in self._kept:
            file = f"{part_folder(self.number)}/{name}"
            found = self.stored.mapped(file, (count + 1,), torch.int64)
            if int(found[0]) or int(found[-1]) != last or bool((found[1:] < found[:-1]).any()):
                fact = f"its pointers do not rise from 0 to {last}"
                raise DataError(fact, line=str(self.stored.path / file), cure=CURE)
            self._kept[name] = found
        return self._kept[name]


def _scheme(schemes: Mapping[str, Scheme], name: str, kind: str) -> Scheme:
    if name not in schemes:
        there = ", ".join(map(repr, schemes)) or "none"
        fact = f"there is no feature {name!r} of {kind!r}; there is: {there}"
        raise NameLookupError(fact, cure="set it before the graph is partitioned")
    return schemes[name]
