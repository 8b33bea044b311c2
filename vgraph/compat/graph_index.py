"""What DGL's graphs keep for themselves, and programs read nevertheless: ``g._graph``, ``g._etype2canonical``.

Takes: graphs. Gives: their structure without names, types by number. Runs at every call.
Source: DGL 1.1, ``dgl.heterograph_index``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

import vgraph
from vgraph.compat.shared import shared_memory
from vgraph.errors import DeviceError
from vgraph.graphs.types import EdgeType


class Metagraph:
    """Types of nodes, by number, joined by types of edges."""

    def __init__(self, graph: vgraph.Graph) -> None:
        self._graph = graph

    def number_of_nodes(self) -> int:
        """How many types of nodes."""
        return len(self._graph.ntypes)

    def number_of_edges(self) -> int:
        """How many types of edges."""
        return len(self._graph.canonical_etypes)

    def find_edge(self, eid: int) -> tuple[int, int]:
        """The types of nodes that a type of edges joins."""
        src, _, dst = self._graph.canonical_etypes[eid]
        return self._graph.ntypes.index(src), self._graph.ntypes.index(dst)


class HeteroGraphIndex:
    """The structure of a graph; types of nodes and edges have numbers, in their order in ``ntypes`` and ``etypes``."""

    def __init__(self, graph: vgraph.Graph) -> None:
        self.graph = graph

    @property
    def metagraph(self) -> Metagraph:
        """The types as a graph."""
        return Metagraph(self.graph)

    def is_metagraph_unibipartite(self) -> bool:
        """Whether no type of nodes is at both ends of edges."""
        return self.graph.is_unibipartite

    def number_of_nodes(self, ntype: int = 0) -> int:
        """How many nodes of a type."""
        return self.graph.num_nodes(self.graph.ntypes[ntype])

    def number_of_edges(self, etype: int = 0) -> int:
        """How many edges of a type."""
        return self.graph.num_edges(self._etype(etype))

    num_nodes, num_edges = number_of_nodes, number_of_edges

    def edges(self, etype: int = 0, order: str = "eid") -> tuple[Tensor, Tensor, Tensor]:
        """Sources, destinations and ids of the edges of a type."""
        return self.graph.all_edges("all", order, self._etype(etype))

    def reverse(self) -> HeteroGraphIndex:
        """The same with edges turned round, in the formats that are there, turned round."""
        ends = {etype: self.graph.relation(etype)[0].reversed for etype in self.graph.canonical_etypes}
        nodes = {ntype: frame.rows_alone(frame.num_rows) for ntype, frame in self.graph.src_frames.items()}
        turned = HeteroGraphIndex(vgraph.Graph.of_types({(d, e, s): t for (s, e, d), t in ends.items()}, nodes))
        for name, other in (("csr", "csc"), ("csc", "csr")):
            if name in self.graph.formats()["created"]:
                turned._make(other)
        return turned

    def formats(self, formats: str | Sequence[str] | None = None) -> HeteroGraphIndex | Mapping[str, list[str]]:
        """What formats there are; or the same, with the first of those that are given, if none of them is there."""
        there = self.graph.formats()
        if formats is None:
            return there
        wanted = [formats] if isinstance(formats, str) else list(formats)
        if not set(wanted) & set(there["created"]):
            self._make(wanted[0])
        return HeteroGraphIndex(self.graph.formats(formats))

    def _make(self, name: str) -> None:
        for etype in self.graph.canonical_etypes:
            self.graph.adj_tensors(name, etype)

    def adjacency_matrix_scipy(self, etype: int, transpose: bool, fmt: str) -> object:
        """The edges of a type as a matrix of SciPy whose entries are ids of edges; columns are destinations."""
        matrix = self.graph.adj_external(transpose, scipy_fmt="coo", etype=self._etype(etype))
        matrix.data = torch.arange(self.number_of_edges(etype)).numpy()
        return matrix.asformat(fmt)

    def add_nodes(self, num: int) -> None:
        """Adds nodes."""
        self.graph.add_nodes(num)

    def add_edges(self, u: Tensor, v: Tensor) -> None:
        """Adds edges."""
        self.graph.add_edges(u, v)

    def _etype(self, number: int) -> EdgeType:
        return self.graph.canonical_etypes[number]


GraphIndex = HeteroGraphIndex


def create_graph_index(graph_data: object, readonly: bool | None = None) -> HeteroGraphIndex:
    """The structure of a graph of one type, of edges as ``vgraph.graph`` reads them; None: there are none."""
    return HeteroGraphIndex(vgraph.Graph() if graph_data is None else vgraph.graph(graph_data))


def graph_of(g: vgraph.Graph | HeteroGraphIndex) -> vgraph.Graph:
    """The graph, or the one whose structure it is."""
    return g.graph if isinstance(g, HeteroGraphIndex) else g


def canonical_by_name(g: vgraph.Graph) -> dict[str, EdgeType | tuple[()]]:
    """The triple that the name of each type of edges means; nothing for a name of several."""
    return {name: key if g.etypes.count(name) == 1 else () for key in g.canonical_etypes for name in key[1:2]}


def is_pinned(g: vgraph.Graph) -> bool:
    """Whether all ids lie in memory that a GPU reads."""
    return all(end.is_pinned() for t in g.canonical_etypes for end in (g.relation(t)[0].src, g.relation(t)[0].dst))


def pin_memory_(g: vgraph.Graph) -> vgraph.Graph:
    """Moves ids and features of a graph on the CPU to memory that a GPU reads.

    Raises:
        DeviceError: there is no GPU.
    """
    if not torch.cuda.is_available():
        cure = "leave pin_memory_ out: there is nothing that would read the memory"
        raise DeviceError("the graph is to be pinned, and there is no GPU here", cure=cure)
    return _placed(g, Tensor.pin_memory)


def unpin_memory_(g: vgraph.Graph) -> vgraph.Graph:
    """Moves ids and features that are pinned to ordinary memory."""
    return _placed(g, Tensor.clone) if is_pinned(g) else g


def _placed(g: vgraph.Graph, move: Callable[[Tensor], Tensor]) -> vgraph.Graph:
    """The graph itself, its tensors in other memory."""
    ends = {t: g.relation(t)[0] for t in g.canonical_etypes}
    made = {t: one.stored(move(one.src), move(one.dst)) for t, one in ends.items()}
    for frame in (*g.src_frames.values(), *g.dst_frames.values(), *g.edge_frames.values()):
        frame.columns = {name: move(rows) for name, rows in frame.items()}
    edges = {t: g.edge_frames[t] for t in made}
    whole = type(g).of_types(made, g.src_frames, g.dst_frames if g.is_block else None, edges, g.gdata, g.sizes)
    vars(g).update(vars(whole))
    return g


INTERNALS = {"_graph": HeteroGraphIndex, "_etype2canonical": canonical_by_name}
METHODS = {
    "is_pinned": is_pinned,
    "pin_memory_": pin_memory_,
    "unpin_memory_": unpin_memory_,
    "shared_memory": shared_memory,
}


def keep_internals() -> None:
    """Graphs of this process have DGL's own attributes, too."""
    for name, read in INTERNALS.items():
        setattr(vgraph.Graph, name, property(read))
    for name, method in METHODS.items():
        setattr(vgraph.Graph, name, method)
