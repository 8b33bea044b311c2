"""GraphData: a graph's topologies, types and features; what every function of graphs takes and gives.

Takes: Topologies and Frames by type. Gives: a graph without methods that compute on its features. What users hold is
``vgraph.Graph``, which adds them; whatever makes a graph of another makes one of the same class.
Runs once per topology. Source: DGL section 3; its words (ndata, edata, srcdata) are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from vgraph.arguments import FUNCTION, NAME, checked
from vgraph.errors import GraphError, NameLookupError
from vgraph.graphs.data import NODE, UNTYPED
from vgraph.graphs.describe import table, text_by_type
from vgraph.graphs.edge_formats import check_device, check_idtype
from vgraph.graphs.flatten import flattened
from vgraph.graphs.frame import Frame, Initializer, Scheme
from vgraph.graphs.mutation import Mutation
from vgraph.graphs.stored_parts import check_parts
from vgraph.graphs.types import EdgeType, EType, name_of
from vgraph.graphs.views import FeatureView, LocalScope, is_full, split_node_key, typed
from vgraph.ir.topology import Topology

Count: TypeAlias = int  # the class below has a method of the name int
CPU = torch.device("cpu")
StoredEdges = tuple[EdgeType, Tensor, Tensor, Count, Count, tuple[Count, ...] | None]
Key = TypeVar("Key", str, EdgeType)
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
            ids = torch.empty(0, dtype=torch.int64, device="cpu")
            topology = Topology(ids, ids, 0, 0)
        _check_topology(topology)
        device, graph_sizes = topology.device, topology.graph_sizes
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
        """A graph of parts that fit; a block, if ``dst`` is given.

        Args:
            topologies: the edges by type (type of sources, name, type of destinations), all on one device.
            src: the features by type of the nodes where edges begin; of all nodes, unless ``dst`` is given.
            dst: the features by type of the nodes where edges end, for a block.
            edges: the features of edges by type; a type that it leaves out has none.
            gdata: the features of the graphs of a batch; None: there are none.
            sizes: the number of nodes of each graph of a batch by type; None: it is no batch.

        Returns:
            A graph of the class that it is called on. Nothing is checked or copied.

        Example:
            >>> import vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> vgraph.Graph.of_types({("_N", "_E", "_N"): g.topology}, g.src_frames).num_edges()
            2
        """
        made = cls.__new__(cls)
        device = next(iter(topologies.values())).device
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
        """The features of the nodes: a Frame, or dicts by type where there are several types.

        Raises:
            GraphError: the graph is a block; it has ``srcdata`` and ``dstdata``.

        Example:
            >>> import torch, vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.ndata["h"] = torch.ones(3, 4)
            >>> g.ndata
            {'h': float32 (3, 4)}
        """
        return typed(self._src, self._node_type) if self._src is self._dst else self.node_frame()

    @property
    def srcdata(self) -> Any:
        """The features of the nodes where edges begin: a Frame, or dicts by type where there are several types.

        Example:
            >>> import torch, vgraph
            >>> block = vgraph.to_block(vgraph.graph(([0, 1], [2, 2])), [2])
            >>> block.srcdata["h"] = torch.ones(3, 4)
            >>> block.srcdata["h"].shape
            torch.Size([3, 4])
        """
        return typed(self._src if len(self._src) == 1 else {t: self._src[t] for t in self.srctypes}, self._node_type)

    @property
    def dstdata(self) -> Any:
        """The features of the nodes where edges end: a Frame, or dicts by type where there are several types.

        Example:
            >>> import torch, vgraph
            >>> block = vgraph.to_block(vgraph.graph(([0, 1], [2, 2])), [2])
            >>> block.dstdata["h"] = torch.ones(1, 4)
            >>> block.dstdata["h"].shape
            torch.Size([1, 4])
        """
        return typed(self._dst if len(self._dst) == 1 else {t: self._dst[t] for t in self.dsttypes}, self._node_type)

    @property
    def edata(self) -> Any:
        """The features of the edges: a Frame, or dicts by type where there are several types.

        Example:
            >>> import torch, vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.edata["w"] = torch.tensor([0.5, 2.0])
            >>> g.edata["w"]
            tensor([0.5000, 2.0000])
        """
        return typed(self._edges, self._edge_type)

    @property
    def gdata(self) -> Frame:
        """The features of the graphs of a batch: a Frame of ``batch_size`` rows.

        Example:
            >>> import torch, vgraph
            >>> g = vgraph.batch([vgraph.graph(([0, 1], [2, 2]))] * 2)
            >>> g.gdata["y"] = torch.tensor([0, 1])
            >>> g.gdata["y"]
            tensor([0, 1])
        """
        return self._gdata

    def local_scope(self) -> LocalScope:
        """A context at whose end features and edges are again what they were at its beginning.

        Returns:
            What a ``with`` statement takes. It gives no name of its own: the graph itself is used within.

        Example:
            >>> import torch, vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> with g.local_scope():
            ...     g.ndata["h"] = torch.ones(3, 4)
            >>> "h" in g.ndata
            False
        """
        return LocalScope(self.__dict__, self._frames)

    def local_var(self: AnyGraph) -> AnyGraph:
        """A graph with the same edges and features; what is set in one is not in the other. ``clone`` is the same.

        Returns:
            A graph of the same class. Tensors are shared, not copied.

        Example:
            >>> import torch, vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.local_var().ndata["h"] = torch.ones(3, 4)
            >>> "h" in g.ndata
            False
        """
        return self._with_own_frames()

    clone = __copy__ = local_var

    def _frames_by(
        self, change: Callable[[Frame], Frame]
    ) -> tuple[dict[str, Frame], dict[str, Frame] | None, dict[EdgeType, Frame], Frame]:
        """Frames of sources, destinations, edges and graphs, each as ``change`` makes it."""
        src, dst = ({t: change(f) for t, f in side.items()} for side in (self._src, self._dst))
        edges = {t: change(f) for t, f in self._edges.items()}
        return src, dst if self.is_block else None, edges, change(self._gdata)

    @property
    def nodes(self) -> FeatureView:
        """The nodes of the graph: called, their ids; in brackets, some of them with their features.

        ``g.nodes("user")`` gives all ids of a type; ``g.nodes[ids].data["h"]`` and ``g.nodes["user"].data`` are
        features.

        Example:
            >>> import torch, vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.ndata["h"] = torch.tensor([1.0, 2.0, 3.0])
            >>> g.nodes(), g.nodes[[0, 2]].data["h"]
            (tensor([0, 1, 2]), tensor([1., 3.]))
        """
        return FeatureView(
            self.node_frame, lambda ntype=None: self._arange(self.node_frame(ntype).num_rows), split_node_key
        )

    @property
    def srcnodes(self) -> FeatureView:
        """The nodes where edges begin, as ``nodes`` has all of them.

        Example:
            >>> import vgraph
            >>> vgraph.to_block(vgraph.graph(([0, 1], [2, 2])), [2]).srcnodes()
            tensor([0, 1, 2])
        """
        return self._side(self._src, self.srctypes)

    @property
    def dstnodes(self) -> FeatureView:
        """The nodes where edges end, as ``nodes`` has all of them.

        Example:
            >>> import vgraph
            >>> vgraph.to_block(vgraph.graph(([0, 1], [2, 2])), [2]).dstnodes()
            tensor([0])
        """
        return self._side(self._dst, self.dsttypes)

    def _side(self, frames: Mapping[str, Frame], types: Sequence[str]) -> FeatureView:
        def find(ntype: str | None = None) -> Frame:
            name = types[0] if ntype is None and len(types) == 1 else ntype
            return frames[self._node_type(name, frames)]

        return FeatureView(find, lambda ntype=None: self._arange(find(ntype).num_rows), split_node_key)

    @property
    def edges(self) -> FeatureView:
        """The edges of the graph: called, as ``all_edges``; in brackets, some of them with their features.

        ``g.edges[ids].data["w"]`` and ``g.edges["likes"].data`` are features. A pair (u, v) of ids in brackets means
        the edges ``u[i] -> v[i]``, the first of several.

        Example:
            >>> import torch, vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.edata["w"] = torch.tensor([0.5, 2.0])
            >>> g.edges(), g.edges[1, 2].data["w"]
            ((tensor([0, 1]), tensor([2, 2])), tensor([2.]))
        """
        return FeatureView(lambda etype: self._edges[self._edge_type(etype)], self.all_edges, self._split_edge_key)

    def _split_edge_key(self, key: object) -> tuple[object, object]:
        if isinstance(key, tuple) and len(key) == 2:
            return self.edge_ids(*key), None
        is_type = isinstance(key, str) or (isinstance(key, tuple) and isinstance(key[0], str))
        return (None, key) if is_type else (None if is_full(key) else key, None)

    @checked(initializer=FUNCTION, field=NAME.or_none())
    def set_n_initializer(self, initializer: Initializer, field: str | None = None, ntype: str | None = None) -> None:
        """Sets what gives the features of nodes that are added, and of rows that are set in part.

        Args:
            initializer: a function of (shape, dtype, device, slice of the new ids) that gives a tensor of that shape.
            field: the feature that it is for; None: all that have none of their own.
            ntype: the type of nodes, or None where there is one.

        Raises:
            ArgumentError: this is no function, or no name.
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.

        Example:
            >>> import torch, vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.ndata["h"] = torch.zeros(3)
            >>> g.set_n_initializer(lambda shape, dtype, device, ids: torch.ones(shape, dtype=dtype))
            >>> g.add_nodes(1)
            >>> g.ndata["h"]
            tensor([0., 0., 0., 1.])
        """
        frame = self.node_frame(ntype)
        frame.initializers = {**(frame.initializers or {}), field: initializer}

    @checked(initializer=FUNCTION, field=NAME.or_none())
    def set_e_initializer(self, initializer: Initializer, field: str | None = None, etype: EType = None) -> None:
        """Sets what gives the features of edges that are added, and of rows that are set in part.

        Args:
            initializer: a function of (shape, dtype, device, slice of the new ids) that gives a tensor of that shape.
            field: the feature that it is for; None: all that have none of their own.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Raises:
            ArgumentError: this is no function, or no name.
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.

        Example:
            >>> import torch, vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.edata["w"] = torch.zeros(2)
            >>> g.set_e_initializer(lambda shape, dtype, device, ids: torch.ones(shape, dtype=dtype))
            >>> g.add_edges(0, 1)
            >>> g.edata["w"]
            tensor([0., 0., 1.])
        """
        frame = self._edges[self._edge_type(etype)]
        frame.initializers = {**(frame.initializers or {}), field: initializer}

    def node_attr_schemes(self, ntype: str | None = None) -> dict[str, Scheme]:
        """The row shape and the dtype of every feature of the nodes.

        Args:
            ntype: the type of nodes, or None where there is one.

        Returns:
            A dict of feature names; each entry has ``shape`` (without the rows) and ``dtype``.

        Raises:
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.

        Example:
            >>> import torch, vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.ndata["h"] = torch.ones(3, 4)
            >>> g.node_attr_schemes()["h"].shape
            (4,)
        """
        return self.node_frame(ntype).schemes()

    def edge_attr_schemes(self, etype: EType = None) -> dict[str, Scheme]:
        """The row shape and the dtype of every feature of the edges.

        Args:
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            A dict of feature names; each entry has ``shape`` (without the rows) and ``dtype``.

        Raises:
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.

        Example:
            >>> import torch, vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.edata["w"] = torch.ones(2)
            >>> g.edge_attr_schemes()["w"].dtype
            torch.float32
        """
        return self._edges[self._edge_type(etype)].schemes()

    # ------------------------------------------------------------ the same graph elsewhere
    def __getitem__(self: AnyGraph, key: str | tuple[str | slice, ...]) -> AnyGraph:
        """One edge type as a graph that shares the features: by name, or by a triple that may hold ":".

        Where that means several types, their edges become one type, whose name joins theirs by "+".
        """
        found = self._matching(key)
        if len(found) > 1:
            return type(self).of_types(*flattened(self, found))
        (etype,) = found
        frames = (self._src, self._dst)
        src, dst = ({etype[i]: frames[j][etype[i]]} for i, j in ((0, 0), (2, 1)))
        sides = (src, dst) if self.is_block else ({**src, **dst}, None)
        for frame in (*src.values(), *dst.values(), self._edges[etype]):
            frame.is_shared = True
        return type(self).of_types({etype: self._topologies[etype]}, *sides, {etype: self._edges[etype]}, None)

    def _matching(self, key: Any) -> list[EdgeType]:
        if isinstance(key, tuple) and len(key) == 3:
            wanted = [None if is_full(part) or part == ":" else part for part in key]
            fits = [t for t in self._topologies if all(w in (None, p) for w, p in zip(wanted, t, strict=True))]
            if fits:
                return fits
            if None in wanted:
                asked = ", ".join(":" if part is None else repr(part) for part in wanted)
                fact = f"({asked}) means 0 of the edge types {list(self._topologies)}"
                raise NameLookupError(fact, cure="name one of them")
        return [self._edge_type(key)]

    @checked()
    def to(
        self: AnyGraph, device: torch.device | str | Count, *, non_blocking: bool = False, copy: bool = False
    ) -> AnyGraph:
        """The graph with ids and features on another device; the graph itself, if it is there already.

        Args:
            device: where to, as torch takes it; a number is that CUDA device.
            non_blocking: let copies from pinned memory run beside other work, as ``torch.Tensor.to`` does.
            copy: ignored, as what lies elsewhere is copied, and a graph is never written to.

        Returns:
            A graph of the same class.

        Raises:
            DeviceError: there is no such device on this machine.
            ArgumentError: a flag is neither True nor False.

        Example:
            >>> import vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.to("cpu") is g
            True
        """
        check_device(device)
        return self._stored(device, bool(non_blocking))

    def cpu(self: AnyGraph) -> AnyGraph:
        """The graph with ids and features on the CPU; the graph itself, if it is there already.

        Returns:
            A graph of the same class.

        Example:
            >>> import vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.cpu() is g
            True
        """
        return self._stored(CPU)

    def cuda(self: AnyGraph) -> AnyGraph:
        """The graph with ids and features on the current CUDA device.

        Returns:
            A graph of the same class; the graph itself, if it is there already.

        Raises:
            DeviceError: there is no such device on this machine.

        Example:
            >>> import torch, vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.cuda().device.type if torch.cuda.is_available() else "cuda"
            'cuda'
        """
        return self.to("cuda")

    def int(self: AnyGraph) -> AnyGraph:
        """The graph with int32 ids; the graph itself, if it has them already.

        Returns:
            A graph of the same class, with the same features.

        Raises:
            GraphError: it has 2**31 nodes or edges, or more.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).int().idtype
            torch.int32
        """
        check_idtype(torch.int32, self.num_nodes(), self.num_edges())
        return self._stored(torch.int32)

    def long(self: AnyGraph) -> AnyGraph:
        """The graph with int64 ids; the graph itself, if it has them already.

        Returns:
            A graph of the same class, with the same features.

        Example:
            >>> import vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.long() is g
            True
        """
        return self._stored(torch.int64)

    def astype(self: AnyGraph, idtype: torch.dtype) -> AnyGraph:
        """The graph with ids of a dtype: ``int()`` or ``long()``.

        Args:
            idtype: ``torch.int32`` or ``torch.int64``.

        Returns:
            A graph of the same class, with the same features.

        Raises:
            DTypeError: ``idtype`` is another dtype.
            GraphError: there are too many nodes or edges for int32.

        Example:
            >>> import torch, vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).astype(torch.int32).idtype
            torch.int32
        """
        check_idtype(idtype, self.num_nodes(), self.num_edges())
        return self._stored(idtype)

    def _stored(
        self: AnyGraph, place: torch.device | str | torch.dtype | Count, non_blocking: bool = False
    ) -> AnyGraph:
        """The same graph with ids of another dtype, or with everything on another device."""
        if place == self.idtype:
            return self
        moved = {
            e: (t.src.to(place, non_blocking=non_blocking), t.dst.to(place, non_blocking=non_blocking))
            for e, t in self._topologies.items()
        }
        if all(moved[e][0] is t.src and moved[e][1] is t.dst for e, t in self._topologies.items()):
            return self
        # the parts stay as they are: their levels do not depend on how ids are stored
        topologies = {e: t.stored(*moved[e]) for e, t in self._topologies.items()}
        device = next(iter(topologies.values())).device

        def move(frame: Frame) -> Frame:
            return frame.to(device, non_blocking=non_blocking)

        return type(self).of_types(topologies, *self._frames_by(move), self._sizes)

    def __reduce__(self) -> tuple[object, ...]:
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
            edges = {t: u.num_edges for t, u in self._topologies.items()}
            return text_by_type(self._src, self._dst if self.is_block else None, edges)
        parts = [f"num_nodes={self.num_nodes()}", f"num_edges={self.num_edges()}"]
        parts += [f"batch_size={self.batch_size}"] if self._sizes else []
        parts += [f"ndata={self.ndata}", f"edata={self.edata}"]
        parts += [f"gdata={self._gdata}"] if self._gdata else []
        parts += [] if self.device.type == "cpu" else [f"device={str(self.device)!r}"]
        return f"Graph({', '.join(parts)})"

    def _repr_html_(self) -> str:
        kinds = {"nodes": self._src} if not self.is_block else {"senders": self._src, "receivers": self._dst}
        graphs = {"graphs": {"": self._gdata}} if self._gdata else {}
        sizes = f", a batch of {self.batch_size}" if self._sizes else ""
        title = f"{'Block' if self.is_block else 'Graph'}{sizes}, on {self.device}"
        return table(title, {**kinds, "edges": self._edges, **graphs})


def _check_topology(topology: object) -> None:
    if not isinstance(topology, Topology):
        fact = f"a Graph is made from a Topology, not from a {type(topology).__name__}"
        raise GraphError(fact, cure="call vgraph.graph((src, dst))")


def _own(tensor: Tensor) -> Tensor:
    """The tensor without the rest of the storage that it is a view of, which pickle would write."""
    is_view = tensor.layout == torch.strided and tensor.untyped_storage().nbytes() > tensor.nbytes
    return tensor.clone() if is_view else tensor


def restored(
    kind: type[AnyGraph],
    is_block: bool,
    topologies: Sequence[StoredEdges],
    frames: Sequence[Sequence[tuple[Any, int, Mapping[str, Tensor]]]],
    sizes: Mapping[str, tuple[int, ...]] | None,
) -> AnyGraph:
    """A graph from what ``__reduce__`` gave of it, or what a file says that it gave."""
    check_parts(is_block, topologies, frames, sizes)
    made = {e: Topology(src, dst, m, n, graph_sizes) for e, src, dst, m, n, graph_sizes in topologies}
    device = next(iter(made.values())).device
    src, dst, edges, graphs = (
        {k: Frame(n, device, kind, columns, name_of(k) if len(group) > 1 else "") for k, n, columns in group}
        for group, kind in zip(frames, ("node", "node", "edge", "graph"), strict=True)
    )
    return kind.of_types(made, src, dst if is_block else None, edges, graphs[""], sizes)
