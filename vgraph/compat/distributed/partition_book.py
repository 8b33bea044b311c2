"""Which process has which nodes and edges, in DGL's words.

Takes: bounds of new ids. Gives: owners of ids, ids of owners. Runs at every call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

import vgraph.distributed as vd
from vgraph.errors import GraphError, NameLookupError
from vgraph.graphs.data import EdgeType
from vgraph.graphs.frame import as_ids
from vgraph.graphs.types import EType
from vgraph.runtime.distributed.ranks import current_ranks


@dataclass(frozen=True, eq=False)
class PartitionPolicy:
    """The rows of one type of nodes or edges: ``bounds`` say where the new ids of each process begin."""

    kind: str  # "node" or "edge"
    type_name: str | EdgeType
    bounds: Tensor

    @property
    def own(self) -> tuple[int, int]:
        """The first new id of this process, and the first that it has no more."""
        first, last = self.bounds[vd.rank() : vd.rank() + 2].tolist()
        return first, last

    @property
    def part_id(self) -> int:
        """This process."""
        return current_ranks().rank

    def get_size(self) -> int:
        """How many rows all processes have."""
        return int(self.bounds[-1])

    def get_part_size(self) -> int:
        """How many rows this process has."""
        first, last = self.own
        return last - first


class GraphPartitionBook:
    """Bounds of new ids by type, and what follows from them; a partition is what one process has."""

    def __init__(self, partid: int, nodes: Mapping[str, Tensor], edges: Mapping[EdgeType, Tensor]) -> None:
        self.partid, self._nodes, self._edges = partid, dict(nodes), dict(edges)

    # ------------------------------------------------------------ types
    @property
    def ntypes(self) -> list[str]:
        """Types of nodes."""
        return list(self._nodes)

    @property
    def etypes(self) -> list[str]:
        """Names of the types of edges."""
        return [name for _, name, _ in self._edges]

    @property
    def canonical_etypes(self) -> list[EdgeType]:
        """Types of edges."""
        return list(self._edges)

    @property
    def is_homogeneous(self) -> bool:
        """Whether there is one type of nodes and one of edges."""
        return len(self._nodes) == len(self._edges) == 1

    def node_bounds(self, ntype: str | None = "_N") -> Tensor:
        """Where the new ids of each partition begin."""
        if ntype in (None, "_N") and len(self._nodes) == 1:
            return next(iter(self._nodes.values()))
        if ntype not in self._nodes:
            raise _no_type("nodes", ntype, self._nodes)
        return self._nodes[ntype]

    def edge_type(self, etype: EType = "_E") -> EdgeType:
        """The whole name of a type of edges."""
        found = [key for key in self._edges if etype in (key, key[1])]
        if len(self._edges) == 1 and (found or etype in (None, "_E", ("_N", "_E", "_N"))):
            return next(iter(self._edges))
        if len(found) != 1:
            raise _no_type("edges", etype, self._edges)
        return found[0]

    def edge_bounds(self, etype: EType = "_E") -> Tensor:
        """Where the new ids of each partition's edges begin."""
        return self._edges[self.edge_type(etype)]

    # ------------------------------------------------------------ partitions
    def num_partitions(self) -> int:
        """How many partitions there are."""
        return len(next(iter(self._nodes.values()))) - 1

    def metadata(self) -> list[dict[str, int]]:
        """The number of nodes and edges of every partition."""
        nodes, edges = (sum(b.diff() for b in found.values()) for found in (self._nodes, self._edges))
        pairs = zip(torch.as_tensor(nodes).tolist(), torch.as_tensor(edges).tolist(), strict=True)
        return [{"machine_id": i, "num_nodes": n, "num_edges": e} for i, (n, e) in enumerate(pairs)]

    def nid2partid(self, nids: object, ntype: str = "_N") -> Tensor:
        """The partition of each node."""
        return _owners(self.node_bounds(ntype), nids)

    def eid2partid(self, eids: object, etype: EType = "_E") -> Tensor:
        """The partition of each edge."""
        return _owners(self.edge_bounds(etype), eids)

    def partid2nids(self, partid: int, ntype: str = "_N") -> Tensor:
        """The nodes of a partition."""
        return torch.arange(*self.node_bounds(ntype)[partid : partid + 2].tolist())

    def partid2eids(self, partid: int, etype: EType = "_E") -> Tensor:
        """The edges of a partition."""
        return torch.arange(*self.edge_bounds(etype)[partid : partid + 2].tolist())

    def nid2localnid(self, nids: object, partid: int, ntype: str = "_N") -> Tensor:
        """The places of a partition's nodes within it."""
        return _places(self.node_bounds(ntype), nids, partid, "nodes")

    def eid2localeid(self, eids: object, partid: int, etype: EType = "_E") -> Tensor:
        """The places of a partition's edges within it."""
        return _places(self.edge_bounds(etype), eids, partid, "edges")


def _no_type(what: str, asked: object, there: Iterable[object]) -> NameLookupError:
    known = ", ".join(map(repr, there))
    return NameLookupError(f"no type of {what} is {asked!r}; there is: {known}", cure="name one of them")


def _owners(bounds: Tensor, ids: object) -> Tensor:
    return torch.searchsorted(bounds[1:].contiguous(), as_ids(ids, "ids"), right=True)


def _places(bounds: Tensor, ids: object, partid: int, what: str) -> Tensor:
    first, last = bounds[partid : partid + 2].tolist()
    found = as_ids(ids, "ids").long()
    if found.numel() and not first <= int(found.min()) <= int(found.max()) < last:
        fact = f"partition {partid} has {what} {first} to {last - 1}, and not all that are asked for"
        raise GraphError(fact, cure="ask for ids of which nid2partid or eid2partid gives that partition")
    return found - first
