"""GraphData: a graph's topologies, types and features; what every function of graphs takes and gives.

Takes: Topologies and Frames by type. Gives: a graph without methods that compute on its features. What users hold is
``vgraph.Graph``, which adds them; whatever makes a graph of another makes one of the same class.
Runs once per topology. Source: DGL section 3; its words (ndata, edata, srcdata) are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from vgraph.errors import GraphError, NameLookupError
from vgraph.graphs.data import NODE, UNTYPED, EdgeType
from vgraph.graphs.edge_formats import check_device, check_idtype
from vgraph.graphs.frame import Frame, Initializer
from vgraph.graphs.mutation import Mutation
from vgraph.graphs.views import FeatureView, LocalScope, TypedData
from vgraph.ir.topology import Topology

Count: TypeAlias = int  # the class below has a method of the name int
CPU = torch.device("cpu")
AnyGraph = TypeVar("AnyGraph", bound="GraphData")  # what a function is given decides of which class its result is


class GraphData(Mutation):
    """A directed graph with features by type of nodes and edges; ``vgraph.Graph`` says what they are."""

    def __init__(
        self,
        topology: Topology | None = None,
        ndata: Frame | None = None,
        edata: Frame | None = None,
        gdata: Frame | None = None,
    ) -> None:
        if topology is None:
            ids = torch.empty(0, dtype=torch.int64)
            topology = Topology(ids, ids, 0, 0)
        if not isinstance(topology, Topology):  # pyright: ignore[reportUnnecessaryIsInstance]
            fact = f"a Graph is made from a Topology, not from a {type(topology).__name__}"
            raise GraphError(fact, cure="call vgraph.graph((src, dst))")
        device, graph_sizes = topology.src.device, topology.graph_sizes
        nodes = {NODE: Frame(topology.num_dst, device, "node") if ndata is None else ndata}
        edges = {UNTYPED: Frame(topology.num_edges, device, "edge") if edata is None else edata}
        graphs = Frame(len(graph_sizes or (1,)), device, "graph") if gdata is None else gdata
        sizes = None if graph_sizes is None else {NODE: graph_sizes}
        super().__init__({UNTYPED: topology}, nodes, nodes, edges, graphs, sizes)

    @classmethod
    def of_types(
        cls: type[AnyGraph],
        topologies: Mapping[EdgeType, Topology],
        src: dict[str, Frame],
        dst: dict[str, Frame] | None = None,
        edges: Mapping[EdgeType, Frame] | None = None,
        gdata: Frame | None = None,
        sizes: Mapping[str, tuple[Count, ...]] | None = None,
    ) -> AnyGraph:
        """A graph of parts that fit; a block, if ``dst`` is given."""
        made = cls.__new__(cls)
        device = next(iter(topologies.values())).src.device
        known: Mapping[EdgeType, Frame] = edges or {}
        is_typed = len(topologies) > 1
        every = {
            t: known[t] if t in known else Frame(u.num_edges, device, "edge", type_name=t[1] if is_typed else "")
            for t, u in topologies.items()
        }
        num_graphs = 1 if sizes is None else len(next(iter(sizes.values())))
        graphs = Frame(num_graphs, device, "graph") if gdata is None else gdata
        Mutation.__init__(made, topologies, src, src if dst is None else dst, every, graphs, sizes)
        return made

    # ------------------------------------------------------------ features
    @property
    def ndata(self) -> Any:
        """Features of the nodes: a Frame, or by type where there are several."""
        return self._typed(self._src, self.node_frame) if self._src is self._dst else self.node_frame()

    @property
    def srcdata(self) -> Any:
        """Features of the nodes where edges begin."""
        if len(self._src) == 1:
            return next(iter(self._src.values()))
        return self._typed({t: self._src[t] for t in self.srctypes}, self.node_frame)

    @property
    def dstdata(self) -> Any:
        """Features of the nodes where edges end."""
        if len(self._dst) == 1:
            return next(iter(self._dst.values()))
        return self._typed({t: self._dst[t] for t in self.dsttypes}, self.node_frame)

    @property
    def edata(self) -> Any:
        """Features of the edges: a Frame, or by type where there are several."""
        return self._typed(self._edges, self._edge_type)

    def _typed(self, frames: Mapping[Any, Frame], find_type: Any) -> Any:
        if len(frames) == 1:
            return next(iter(frames.values()))
        return TypedData(frames, self._node_type if find_type == self.node_frame else find_type)

    @property
    def gdata(self) -> Frame:
        """Features of the graphs of a batch."""
        return self._gdata

    def local_scope(self) -> LocalScope:
        """A context at whose end features and edges are again what they were at its beginning."""
        return LocalScope(self.__dict__, self._frames)

    def local_var(self: AnyGraph) -> AnyGraph:
        """A graph with the same edges and features; what is set in one is not in the other."""
        return self._with(
            {t: f.copy() for t, f in self._src.items()},
            {t: f.copy() for t, f in self._dst.items()},
            {t: f.copy() for t, f in self._edges.items()},
            self._gdata.copy(),
        )

    clone = __copy__ = local_var

    def _with(
        self: AnyGraph, src: dict[str, Frame], dst: dict[str, Frame], edges: Mapping[EdgeType, Frame], gdata: Frame
    ) -> AnyGraph:
        """The same edges with other frames."""
        sides = (src, dst if self.is_block else None)
        return type(self).of_types(self._topologies, *sides, edges, gdata, self._sizes)

    @property
    def nodes(self) -> FeatureView:
        """``g.nodes("user")``: all ids; ``g.nodes[ids].data["h"]``, ``g.nodes["user"].data``: features."""
        return FeatureView(
            self.node_frame, lambda ntype=None: self._arange(self.node_frame(ntype).num_rows), _split_node_key
        )

    @property
    def srcnodes(self) -> FeatureView:
        """As ``nodes``, of the side where edges begin."""
        return self._side(self._src)

    @property
    def dstnodes(self) -> FeatureView:
        """As ``nodes``, of the side where edges end."""
        return self._side(self._dst)

    def _side(self, frames: Mapping[str, Frame]) -> FeatureView:
        def find(ntype: str | None = None) -> Frame:
            return frames[self._node_type(ntype, frames)]

        return FeatureView(find, lambda ntype=None: self._arange(find(ntype).num_rows), _split_node_key)

    @property
    def edges(self) -> FeatureView:
        """``g.edges()``: as ``all_edges``; ``g.edges[ids].data["w"]``, ``g.edges["likes"].data``: features."""
        return FeatureView(lambda etype: self._edges[self._edge_type(etype)], self.all_edges, self._split_edge_key)

    def _split_edge_key(self, key: Any) -> tuple[Any, Any]:
        if isinstance(key, tuple) and len(key) == 2:
            return self.edge_ids(*key), None
        is_type = isinstance(key, str) or (isinstance(key, tuple) and isinstance(key[0], str))
        return (None, key) if is_type else (None if _is_full(key) else key, None)

    def set_n_initializer(self, initializer: Initializer, field: str | None = None, ntype: str | None = None) -> None:
        """What gives the features of new nodes: called with (shape, dtype, device, slice of new ids)."""
        frame = self.node_frame(ntype)
        frame.initializers = {**(frame.initializers or {}), field: initializer}

    def set_e_initializer(self, initializer: Initializer, field: str | None = None, etype: Any = None) -> None:
        """What gives the features of new edges; see ``set_n_initializer``."""
        frame = self._edges[self._edge_type(etype)]
        frame.initializers = {**(frame.initializers or {}), field: initializer}

    def node_attr_schemes(self, ntype: str | None = None) -> dict[str, Any]:
        """Row shape and dtype of every feature of the nodes."""
        return self.node_frame(ntype).schemes()

    def edge_attr_schemes(self, etype: Any = None) -> dict[str, Any]:
        """Row shape and dtype of every feature of the edges."""
        return self._edges[self._edge_type(etype)].schemes()

    # ------------------------------------------------------------ the same graph elsewhere
    def __getitem__(self: AnyGraph, key: Any) -> AnyGraph:
        """One edge type as a graph that shares the features: by name, or by a triple that may hold ":"."""
        etype = self._matching(key)
        frames = (self._src, self._dst)
        src, dst = ({etype[i]: frames[j][etype[i]]} for i, j in ((0, 0), (2, 1)))
        sides = (src, dst) if self.is_block else ({**src, **dst}, None)
        return type(self).of_types({etype: self._topologies[etype]}, *sides, {etype: self._edges[etype]}, None)

    def _matching(self, key: Any) -> EdgeType:
        if isinstance(key, tuple) and len(key) == 3:
            wanted = [None if _is_full(part) or part == ":" else part for part in key]
            fits = [t for t in self._topologies if all(w in (None, p) for w, p in zip(wanted, t, strict=True))]
            if len(fits) == 1:
                return fits[0]
            if None in wanted:
                asked = ", ".join(":" if part is None else repr(part) for part in wanted)
                fact = f"({asked}) means {len(fits)} of the edge types {list(self._topologies)}"
                raise NameLookupError(fact, cure="name one of them")
        return self._edge_type(key)

    def to(
        self: AnyGraph, device: torch.device | str | Count, *, non_blocking: bool = False, copy: bool = False
    ) -> AnyGraph:
        """The graph with ids and features on ``device``; itself, where it is there. DeviceError: there is none."""
        check_device(device)
        return self._stored(device, non_blocking)

    def cpu(self: AnyGraph) -> AnyGraph:
        """The graph on the CPU."""
        return self._stored(CPU)

    def cuda(self: AnyGraph) -> AnyGraph:
        """The graph on the current CUDA device. DeviceError: there is none."""
        return self.to("cuda")

    def int(self: AnyGraph) -> AnyGraph:
        """The graph with int32 ids; itself, where they are. GraphError: there are too many."""
        check_idtype(torch.int32, self.num_nodes(), self.num_edges())
        return self._stored(torch.int32)

    def long(self: AnyGraph) -> AnyGraph:
        """The graph with int64 ids; itself, where they are."""
        return self._stored(torch.int64)

    def astype(self: AnyGraph, idtype: torch.dtype) -> AnyGraph:
        """``int()`` or ``long()``, by dtype."""
        check_idtype(idtype, self.num_nodes(), self.num_edges())
        return self._stored(idtype)

    def _stored(self: AnyGraph, place: Any, non_blocking: bool = False) -> AnyGraph:
        """The same graph with ids of another dtype, or with everything on another device."""
        moved = {
            e: (t.src.to(place, non_blocking=non_blocking), t.dst.to(place, non_blocking=non_blocking))
            for e, t in self._topologies.items()
        }
        if all(moved[e][0] is t.src and moved[e][1] is t.dst for e, t in self._topologies.items()):
            return self
        # the parts stay as they are: their levels do not depend on how ids are stored
        topologies = {e: t.stored(*moved[e]) for e, t in self._topologies.items()}
        device = next(iter(topologies.values())).src.device
        src, dst, edges = (
            {t: f.to(device, non_blocking=non_blocking) for t, f in frames.items()}
            for frames in (self._src, self._dst, self._edges)
        )
        gdata = self._gdata.to(device, non_blocking=non_blocking)
        return type(self).of_types(topologies, src, dst if self.is_block else None, edges, gdata, self._sizes)  # type: ignore[arg-type]

    def __reduce__(self) -> Any:
        topologies = [
            (e, _own(t.src), _own(t.dst), t.num_src, t.num_dst, t.graph_sizes) for e, t in self._topologies.items()
        ]
        frames = [
            [(k, f.num_rows, {n: _own(c) for n, c in f.items()}) for k, f in frames.items()]
            for frames in (self._src, self._dst, self._edges, {"": self._gdata})
        ]
        return restored, (type(self), self.is_block, topologies, frames, self._sizes)

    def __repr__(self) -> str:
        if not self.is_homogeneous:
            return self._describe()
        parts = [f"num_nodes={self.num_nodes()}", f"num_edges={self.num_edges()}"]
        parts += [f"batch_size={self.batch_size}"] if self._sizes else []
        parts += [f"ndata={self.ndata}", f"edata={self.edata}"]
        parts += [f"gdata={self._gdata}"] if self._gdata else []
        parts += [] if self.device.type == "cpu" else [f"device={str(self.device)!r}"]
        return f"Graph({', '.join(parts)})"

    def _describe(self) -> str:
        edges: Any = {t: u.num_edges for t, u in self._topologies.items()}
        if self.is_block:
            src, dst = ({t: f.num_rows for t, f in side.items()} for side in (self._src, self._dst))
            return f"Block(num_src_nodes={src}, num_dst_nodes={dst}, num_edges={edges})"
        return f"Graph(num_nodes={ {t: f.num_rows for t, f in self._src.items()} }, num_edges={edges})"


def _is_full(key: Any) -> bool:
    return isinstance(key, slice) and key == slice(None)


def _split_node_key(key: Any) -> tuple[Any, Any]:
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], str):
        return key[0], key[1]
    return (None, key) if isinstance(key, str) else (None if _is_full(key) else key, None)


def _own(tensor: Tensor) -> Tensor:
    """The tensor without the rest of the storage that it is a view of, which pickle would write."""
    is_view = tensor.layout == torch.strided and tensor.untyped_storage().nbytes() > tensor.nbytes
    return tensor.clone() if is_view else tensor


def restored(kind: type[AnyGraph], is_block: bool, topologies: Any, frames: Any, sizes: Any) -> AnyGraph:
    """A graph from what ``__reduce__`` gave of it."""
    made = {etype: Topology(*rest) for etype, *rest in topologies}
    device = next(iter(made.values())).src.device
    kinds = ("node", "node", "edge", "graph")
    src, dst, edges, graphs = (
        {k: Frame(n, device, kind, columns) for k, n, columns in group}
        for group, kind in zip(frames, kinds, strict=True)
    )
    return kind.of_types(made, src, dst if is_block else None, edges, graphs[""], sizes)
