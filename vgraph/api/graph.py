"""Graph: who is joined to whom, with features on nodes, edges and whole graphs, and what is computed on them.

Takes: a Topology and Frames. Gives: the user's graph. Runs once per topology. Every method here is one call of a
function of ``vgraph/graphs`` or ``vgraph/api/messages``; where that is public, its docstring is the method's too.
Source: DGL section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import Tensor

from vgraph.api.manual import manual_of
from vgraph.api.messages import every_type, multi_update, propagation, update_all
from vgraph.api.messages import filter as selection
from vgraph.api.messages.batches import EdgeBatch, NodeBatch, OfEdges, OfNodes
from vgraph.api.sparse.adjacency import SparseAdjacency
from vgraph.graphs import reorder, to_networkx, transform
from vgraph.graphs import subgraph as parts
from vgraph.graphs.draw import neighbors, unjoined_pairs
from vgraph.graphs.graph_data import restored
from vgraph.graphs.types import Device, Edges, EdgeType, Ends, EType, Ids, Nodes

if TYPE_CHECKING:
    import networkx as nx
    from typing_extensions import Self

Count: TypeAlias = int  # a graph has a method of the name int


class Graph(SparseAdjacency):
    """A directed graph with features on nodes, edges and whole graphs.

    ``vgraph.graph``, ``vgraph.heterograph`` and others make it. ``ndata`` and ``edata`` map names to tensors with one
    row a node and one row an edge; ``gdata`` has one row for every graph of a batch. ``srcdata`` and ``dstdata`` are
    ``ndata``, but in a block. Edges are numbered in the order in which they were given. Where there are several types
    of nodes or edges, features are dicts by type, and ``g.nodes["user"].data`` are those of one. ``topology`` holds
    the ids; it is replaced, never changed, when nodes or edges come and go.

    Args:
        topology: the ids of all edges and the number of nodes; None: a graph without nodes and edges.
        ndata: the features of the nodes; None: there are none.
        edata: the features of the edges; None: there are none.
        gdata: the features of the graphs of a batch; None: there are none.

    Raises:
        GraphError: it is made from what is no topology; ids of two types are asked for without naming one.
        FeatureError: a feature that is set has another number of rows than there are, or is on another device.
        NameLookupError: a feature or a type that is not there.

    Source: Wang et al. 2019 (DGL), section 3; its words are those of DGL 1.1's ``dgl.DGLGraph``.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.ones(3, 4)
        >>> with g.local_scope():
        ...     g.ndata["h"] = torch.zeros(3, 1)
        >>> g.ndata["h"].shape
        torch.Size([3, 4])
    """

    # ------------------------------------------------------------ messages
    def update_all(
        self, message_func: OfEdges, reduce_func: OfNodes, apply_node_func: OfNodes | None = None, etype: EType = None
    ) -> None:
        """Sends messages along all edges, reduces them at their ends and sets the results as features.

        Nodes without in-edges get zeros. On a graph without edges, of which a warning tells, only ``apply_node_func``
        runs; where ``sum``, ``mean``, ``max`` or ``min`` of ``vgraph.function`` reduces, results are zeros then, too.

        Args:
            message_func: a function of a batch of edges that gives a dict of messages, (edges, ...) each.
            reduce_func: a function of a batch of nodes with mailboxes (nodes, in-edges, ...) that gives a dict of
                features, (nodes, ...) each.
            apply_node_func: a function of a batch of nodes that gives a dict of features; it sees what was reduced.
                None: none.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None: where
                there are several, a built-in sum, max or min of built-in messages runs along all.

        Raises:
            FunctionError: a function gives no dict of tensors with one row an edge or a node.
            GraphError: there are several such types, and none of them is named.
            NameLookupError: a function reads a feature that is not there, or there is no such type.

        Example:
            >>> import torch, vgraph, vgraph.function as fn
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.ndata["h"] = torch.ones(3)
            >>> g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
            >>> g.ndata["s"]
            tensor([0., 0., 2.])
        """
        every_type.update_all(self, message_func, reduce_func, apply_node_func, etype)

    def multi_update_all(
        self,
        etype_dict: Mapping[str, multi_update.Functions] | Mapping[EdgeType, multi_update.Functions],
        cross_reducer: str | multi_update.Merge,
        apply_node_func: OfNodes | None = None,
    ) -> None:
        """``update_all`` along several edge types; what ends in one type of nodes is combined, name by name.

        Args:
            etype_dict: for every edge type (message, reduce) or (message, reduce, apply), as ``update_all`` takes
                them.
            cross_reducer: "sum", "mean", "max", "min", "stack" (a new dim after the nodes), or a function of the list
                of tensors, (nodes, ...) each, in the order of ``etypes``.
            apply_node_func: a function of a batch of nodes, called for every type of nodes that was reached; None:
                none.

        Raises:
            FunctionError: there is no such reducer, or an edge type has no pair of functions.
            GraphError: there are several such types, and none of them is named.
            NameLookupError: a function reads a feature that is not there, or there is no such type.

        Example:
            >>> import torch, vgraph, vgraph.function as fn
            >>> g = vgraph.heterograph({("a", "x", "b"): ([0], [0]), ("a", "y", "b"): ([0], [0])})
            >>> g.nodes["a"].data["h"] = torch.ones(1)
            >>> way = (fn.copy_u("h", "m"), fn.sum("m", "h"))
            >>> g.multi_update_all({"x": way, "y": way}, "sum")
            >>> g.nodes["b"].data["h"]
            tensor([2.])
        """
        multi_update.multi_update_all(self, etype_dict, cross_reducer, apply_node_func)

    def apply_edges(self, func: OfEdges, edges: Ids | Ends | None = None, etype: EType = None) -> None:
        """Sets what a function of edges gives as features of all edges, or of those given.

        Args:
            func: a function of a batch of edges that gives a dict of features, (edges, ...) each.
            edges: the edges: ids (k,), a mask, a pair (u, v) of ends, or None for all. Each counts once; rows of
                others stay, or are zero where the feature is new.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None: where
                there are several, the function runs on all edges of each.

        Raises:
            FunctionError: the function gives no dict of tensors with one row an edge.
            GraphError: an id is out of range, or there are several types and none is named.
            NameLookupError: a function reads a feature that is not there, or there is no such type.

        Example:
            >>> import torch, vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.ndata["h"] = torch.tensor([1.0, 2.0, 5.0])
            >>> g.apply_edges(lambda edges: {"d": edges.dst["h"] - edges.src["h"]})
            >>> g.edata["d"]
            tensor([4., 3.])
        """
        every_type.apply_edges(self, func, edges, etype)

    def apply_nodes(self, func: OfNodes, v: Ids | None = None, ntype: str | None = None) -> None:
        """Sets what a function of nodes gives as features of all nodes, or of those given.

        Args:
            func: a function of a batch of nodes that gives a dict of features, (nodes, ...) each.
            v: the nodes: ids (k,), a mask, or None for all. Each counts once; rows of others stay, or are zero where
                the feature is new. In a block they are destinations.
            ntype: the type of nodes, or None where there is one.

        Raises:
            FunctionError: the function gives no dict of tensors with one row a node.
            GraphError: an id is out of range, or there are several types and none is named.
            NameLookupError: a function reads a feature that is not there, or there is no such type.

        Example:
            >>> import torch, vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.ndata["h"] = torch.tensor([1.0, 2.0, 5.0])
            >>> g.apply_nodes(lambda nodes: {"h": -nodes.data["h"]}, v=[0])
            >>> g.ndata["h"]
            tensor([-1.,  2.,  5.])
        """
        update_all.apply_nodes(self, func, v, ntype)

    def send_and_recv(
        self,
        edges: Ids | Ends,
        message_func: OfEdges,
        reduce_func: OfNodes,
        apply_node_func: OfNodes | None = None,
        etype: EType = None,
    ) -> None:
        """As ``update_all``, with the messages of some edges; only nodes where they end change.

        Args:
            edges: the edges: ids (k,), a mask, or a pair (u, v) of ends. An edge that is named twice, as one of
                several alike is by a pair of ends, sends twice.
            message_func: a function of a batch of edges that gives a dict of messages, (edges, ...) each.
            reduce_func: a function of a batch of nodes with mailboxes (nodes, in-edges, ...) that gives a dict of
                features, (nodes, ...) each.
            apply_node_func: a function of a batch of nodes that gives a dict of features; it sees what was reduced.
                None: none.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Raises:
            FunctionError: a function gives no dict of tensors with one row an edge or a node.
            GraphError: an id is out of range, or there are several types and none is named.
            NameLookupError: a function reads a feature that is not there, or there is no such type.

        Example:
            >>> import torch, vgraph, vgraph.function as fn
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.ndata["h"] = torch.ones(3)
            >>> g.send_and_recv([1], fn.copy_u("h", "m"), fn.sum("m", "s"))
            >>> g.ndata["s"]
            tensor([0., 0., 1.])
        """
        update_all.send_and_recv(self, edges, message_func, reduce_func, apply_node_func, etype)

    def pull(
        self,
        v: Ids,
        message_func: OfEdges,
        reduce_func: OfNodes,
        apply_node_func: OfNodes | None = None,
        etype: EType = None,
    ) -> None:
        """As ``update_all``, with the in-edges of some nodes; only these nodes change.

        Args:
            v: the nodes: an id, ids (k,) or a mask; each counts once. Those without in-edges get zeros; where none of
                them has any, a ``reduce_func`` of your own has nothing to reduce, and they keep their features.
            message_func: a function of a batch of edges that gives a dict of messages, (edges, ...) each.
            reduce_func: a function of a batch of nodes with mailboxes (nodes, in-edges, ...) that gives a dict of
                features, (nodes, ...) each.
            apply_node_func: a function of a batch of nodes that gives a dict of features; it sees what was reduced.
                None: none.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Raises:
            FunctionError: a function gives no dict of tensors with one row an edge or a node.
            GraphError: an id is out of range, or there are several types and none is named.
            NameLookupError: a function reads a feature that is not there, or there is no such type.

        Example:
            >>> import torch, vgraph, vgraph.function as fn
            >>> g = vgraph.graph(([0, 1], [1, 2]))
            >>> g.ndata["h"] = torch.tensor([1.0, 2.0, 5.0])
            >>> g.pull([1], fn.copy_u("h", "m"), fn.sum("m", "h"))
            >>> g.ndata["h"]
            tensor([1., 1., 5.])
        """
        update_all.pull(self, v, message_func, reduce_func, apply_node_func, etype)

    def push(
        self,
        u: Ids,
        message_func: OfEdges,
        reduce_func: OfNodes,
        apply_node_func: OfNodes | None = None,
        etype: EType = None,
    ) -> None:
        """As ``update_all``, with the out-edges of some nodes; only nodes where they end change.

        Args:
            u: the nodes: an id, ids (k,) or a mask; each counts once.
            message_func: a function of a batch of edges that gives a dict of messages, (edges, ...) each.
            reduce_func: a function of a batch of nodes with mailboxes (nodes, in-edges, ...) that gives a dict of
                features, (nodes, ...) each.
            apply_node_func: a function of a batch of nodes that gives a dict of features; it sees what was reduced.
                None: none.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Raises:
            FunctionError: a function gives no dict of tensors with one row an edge or a node.
            GraphError: an id is out of range, or there are several types and none is named.
            NameLookupError: a function reads a feature that is not there, or there is no such type.

        Example:
            >>> import torch, vgraph, vgraph.function as fn
            >>> g = vgraph.graph(([0, 1], [1, 2]))
            >>> g.ndata["h"] = torch.tensor([1.0, 2.0, 5.0])
            >>> g.push(1, fn.copy_u("h", "m"), fn.sum("m", "h"))
            >>> g.ndata["h"]
            tensor([1., 2., 2.])
        """
        update_all.push(self, u, message_func, reduce_func, apply_node_func, etype)

    def send(self, edges: Ids | Ends | None, message_func: OfEdges, etype: EType = None) -> None:
        """Computes messages of edges and leaves them there until ``recv`` takes them.

        Messages sent again replace what lay there. They stay with this object: copies, pickles and other devices do
        not get them.

        Args:
            edges: the edges: ids (k,), a mask, a pair (u, v) of ends, or None for all; each counts once.
            message_func: a function of a batch of edges that gives a dict of messages, (edges, ...) each.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Raises:
            FunctionError: the function gives no dict of tensors with one row an edge, or messages of other names or
                shapes lie on other edges.
            GraphError: an id is out of range, or there are several types and none is named.
            NameLookupError: a function reads a feature that is not there, or there is no such type.

        Example:
            >>> import torch, vgraph, vgraph.function as fn
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.ndata["h"] = torch.ones(3)
            >>> g.send(None, fn.copy_u("h", "m"))
            >>> g.recv([2], fn.sum("m", "h"))
            >>> g.ndata["h"]
            tensor([1., 1., 2.])
        """
        update_all.send(self, edges, message_func, etype)

    def recv(
        self, v: Ids | None, reduce_func: OfNodes, apply_node_func: OfNodes | None = None, etype: EType = None
    ) -> None:
        """Reduces the messages that lie on the in-edges of some nodes, and removes them.

        Args:
            v: the nodes: an id, ids (k,), a mask, or None for all; each counts once. Those without messages are left
                alone, but ``apply_node_func`` runs on all of ``v``.
            reduce_func: a function of a batch of nodes with mailboxes (nodes, in-edges, ...) that gives a dict of
                features, (nodes, ...) each.
            apply_node_func: a function of a batch of nodes that gives a dict of features; it sees what was reduced.
                None: none.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Raises:
            FunctionError: a function gives no dict of tensors with one row a node.
            GraphError: an id is out of range, or there are several types and none is named.
            NameLookupError: a function reads a feature that is not there, or there is no such type.

        Example:
            >>> import torch, vgraph, vgraph.function as fn
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.ndata["h"] = torch.ones(3)
            >>> g.send([0], fn.copy_u("h", "m"))
            >>> g.recv(None, fn.sum("m", "s"))
            >>> g.ndata["s"]
            tensor([0., 0., 1.])
        """
        update_all.recv(self, v, reduce_func, apply_node_func, etype)

    @manual_of(propagation.prop_nodes)
    def prop_nodes(
        self,
        nodes_generator: Iterable[Ids],
        message_func: OfEdges,
        reduce_func: OfNodes,
        apply_node_func: OfNodes | None = None,
        etype: EType = None,
    ) -> None:
        """``pull`` for every group of nodes that the generator gives; see ``vgraph.prop_nodes``."""
        propagation.prop_nodes(self, nodes_generator, message_func, reduce_func, apply_node_func, etype)

    @manual_of(propagation.prop_edges)
    def prop_edges(
        self,
        edges_generator: Iterable[Ids | Ends],
        message_func: OfEdges,
        reduce_func: OfNodes,
        apply_node_func: OfNodes | None = None,
        etype: EType = None,
    ) -> None:
        """``send_and_recv`` for every group of edges that the generator gives; see ``vgraph.prop_edges``."""
        propagation.prop_edges(self, edges_generator, message_func, reduce_func, apply_node_func, etype)

    # ------------------------------------------------------------ ids by what functions say of them
    @manual_of(selection.filter_nodes)
    def filter_nodes(
        self, predicate: Callable[[NodeBatch], Tensor], nodes: Ids | None = None, ntype: str | None = None
    ) -> Tensor:
        """Ids of the nodes for which ``predicate(nodes)`` is true, (k,); see ``vgraph.filter_nodes``."""
        return selection.filter_nodes(self, predicate, nodes, ntype)

    @manual_of(selection.filter_edges)
    def filter_edges(
        self, predicate: Callable[[EdgeBatch], Tensor], edges: Ids | Ends | None = None, etype: EType = None
    ) -> Tensor:
        """Ids of the edges for which ``predicate(edges)`` is true, (k,); see ``vgraph.filter_edges``."""
        return selection.filter_edges(self, predicate, edges, etype)

    # ------------------------------------------------------------ parts of the graph
    @manual_of(parts.node_subgraph)
    def subgraph(
        self, nodes: Nodes, *, relabel_nodes: bool = True, store_ids: bool = True, output_device: Device = None
    ) -> Self:
        """The nodes given, in that order, and the edges between them; see ``vgraph.node_subgraph``."""
        return parts.node_subgraph(
            self, nodes, relabel_nodes=relabel_nodes, store_ids=store_ids, output_device=output_device
        )

    node_subgraph = subgraph

    @manual_of(parts.edge_subgraph)
    def edge_subgraph(
        self, edges: Edges, *, relabel_nodes: bool = True, store_ids: bool = True, output_device: Device = None
    ) -> Self:
        """The edges given, in that order, and the nodes at their ends; see ``vgraph.edge_subgraph``."""
        return parts.edge_subgraph(
            self, edges, relabel_nodes=relabel_nodes, store_ids=store_ids, output_device=output_device
        )

    @manual_of(parts.in_subgraph)
    def in_subgraph(
        self, nodes: Nodes, *, relabel_nodes: bool = False, store_ids: bool = True, output_device: Device = None
    ) -> Self:
        """All nodes and the edges that end in those given; see ``vgraph.in_subgraph``."""
        return parts.in_subgraph(
            self, nodes, relabel_nodes=relabel_nodes, store_ids=store_ids, output_device=output_device
        )

    @manual_of(parts.out_subgraph)
    def out_subgraph(
        self, nodes: Nodes, *, relabel_nodes: bool = False, store_ids: bool = True, output_device: Device = None
    ) -> Self:
        """All nodes and the edges that begin in those given; see ``vgraph.out_subgraph``."""
        return parts.out_subgraph(
            self, nodes, relabel_nodes=relabel_nodes, store_ids=store_ids, output_device=output_device
        )

    @manual_of(parts.khop_in_subgraph)
    def khop_in_subgraph(
        self,
        nodes: Nodes,
        k: Count,
        *,
        relabel_nodes: bool = True,
        store_ids: bool = True,
        output_device: Device = None,
    ) -> Any:
        """The nodes from which those given are reached in k steps; see ``vgraph.khop_in_subgraph``."""
        return parts.khop_in_subgraph(
            self, nodes, k, relabel_nodes=relabel_nodes, store_ids=store_ids, output_device=output_device
        )

    @manual_of(parts.khop_out_subgraph)
    def khop_out_subgraph(
        self,
        nodes: Nodes,
        k: Count,
        *,
        relabel_nodes: bool = True,
        store_ids: bool = True,
        output_device: Device = None,
    ) -> Any:
        """The nodes that are reached from those given in k steps; see ``vgraph.khop_out_subgraph``."""
        return parts.khop_out_subgraph(
            self, nodes, k, relabel_nodes=relabel_nodes, store_ids=store_ids, output_device=output_device
        )

    @manual_of(parts.node_type_subgraph)
    def node_type_subgraph(self, ntypes: Iterable[str], output_device: Device = None) -> Self:
        """All nodes of some types and the edges between them; see ``vgraph.node_type_subgraph``."""
        return parts.node_type_subgraph(self, ntypes, output_device)

    @manual_of(parts.edge_type_subgraph)
    def edge_type_subgraph(self, etypes: Iterable[EType], output_device: Device = None) -> Self:
        """All edges of some types and the nodes of the types at their ends; see ``vgraph.edge_type_subgraph``."""
        return parts.edge_type_subgraph(self, etypes, output_device)

    # ------------------------------------------------------------ the same nodes with other edges
    @manual_of(transform.reverse)
    def reverse(
        self,
        copy_ndata: bool = True,
        copy_edata: bool = False,
        *,
        share_ndata: bool | None = None,
        share_edata: bool | None = None,
    ) -> Self:
        """The graph with every edge turned round; edges keep their ids. See ``vgraph.reverse``."""
        return transform.reverse(self, copy_ndata, copy_edata, share_ndata=share_ndata, share_edata=share_edata)

    @manual_of(transform.add_self_loop)
    def add_self_loop(
        self, edge_feat_names: Sequence[str] | None = None, fill_data: transform.Fill = 1.0, etype: EType = None
    ) -> Self:
        """A graph with one more edge v -> v for every node, after all others; see ``vgraph.add_self_loop``."""
        return transform.add_self_loop(self, edge_feat_names, fill_data, etype)

    @manual_of(transform.remove_self_loop)
    def remove_self_loop(self, etype: EType = None) -> Self:
        """A graph without the edges v -> v; see ``vgraph.remove_self_loop``."""
        return transform.remove_self_loop(self, etype)

    @manual_of(transform.to_simple)
    def to_simple(
        self,
        return_counts: str | None = "count",
        writeback_mapping: bool = False,
        copy_ndata: bool = True,
        copy_edata: bool = False,
        aggregator: str = "arbitrary",
    ) -> Any:
        """A graph with one edge where there were several alike; see ``vgraph.to_simple``."""
        return transform.to_simple(self, return_counts, writeback_mapping, copy_ndata, copy_edata, aggregator)

    @manual_of(transform.to_bidirected)
    def to_bidirected(self, copy_ndata: bool = False, readonly: bool | None = None) -> Self:
        """A graph with every edge in both directions once, sorted; see ``vgraph.to_bidirected``."""
        return transform.to_bidirected(self, copy_ndata, readonly)

    @manual_of(transform.line_graph)
    def line_graph(self, backtracking: bool = True, shared: bool = False) -> Self:
        """The graph whose nodes are the edges; see ``vgraph.line_graph``."""
        return transform.line_graph(self, backtracking, shared)

    @manual_of(reorder.reorder_graph)
    def reorder_graph(
        self,
        node_permute_algo: str | None = None,
        edge_permute_algo: str = "src",
        store_ids: bool = True,
        permute_config: Mapping[str, Ids] | None = None,
    ) -> Self:
        """The graph with nodes and edges numbered anew; see ``vgraph.reorder_graph``."""
        return reorder.reorder_graph(self, node_permute_algo, edge_permute_algo, store_ids, permute_config)

    @manual_of(to_networkx.to_networkx)
    def to_networkx(
        self, node_attrs: Sequence[str] | None = None, edge_attrs: Sequence[str] | None = None
    ) -> nx.MultiDiGraph[Count]:
        """A networkx.MultiDiGraph; every edge has its number as attribute ``id``. See ``vgraph.to_networkx``."""
        return to_networkx.to_networkx(self, node_attrs, edge_attrs)

    # ------------------------------------------------------------ what is drawn at random
    @manual_of(neighbors.sample_neighbors)
    def sample_neighbors(
        self,
        nodes: Nodes,
        fanout: neighbors.Fanout,
        edge_dir: str = "in",
        prob: str | None = None,
        replace: bool = False,
        copy_ndata: bool = True,
        copy_edata: bool = True,
        exclude_edges: Edges | None = None,
        output_device: Device = None,
    ) -> Self:
        """All nodes with up to ``fanout`` in-edges of each of ``nodes``; see ``vgraph.sampling.sample_neighbors``."""
        return neighbors.sample_neighbors(
            g=self,
            nodes=nodes,
            fanout=fanout,
            edge_dir=edge_dir,
            prob=prob,
            replace=replace,
            copy_ndata=copy_ndata,
            copy_edata=copy_edata,
            exclude_edges=exclude_edges,
            output_device=output_device,
        )

    @manual_of(neighbors.select_topk)
    def select_topk(
        self,
        k: Count,
        weight: str,
        nodes: Nodes | None = None,
        edge_dir: str = "in",
        ascending: bool = False,
        copy_ndata: bool = True,
        copy_edata: bool = True,
        output_device: Device = None,
    ) -> Self:
        """All nodes with the k heaviest in-edges of each of ``nodes``; see ``vgraph.sampling.select_topk``."""
        return neighbors.select_topk(
            g=self,
            k=k,
            weight=weight,
            nodes=nodes,
            edge_dir=edge_dir,
            ascending=ascending,
            copy_ndata=copy_ndata,
            copy_edata=copy_edata,
            output_device=output_device,
        )

    @manual_of(unjoined_pairs.global_uniform_negative_sampling)
    def global_uniform_negative_sampling(
        self,
        num_samples: Count,
        exclude_self_loops: bool = True,
        replace: bool = False,
        etype: EType = None,
        redundancy: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Pairs of nodes that no edge joins; see ``vgraph.sampling.global_uniform_negative_sampling``."""
        return unjoined_pairs.global_uniform_negative_sampling(
            self, num_samples, exclude_self_loops, replace, etype, redundancy
        )


_restore = partial(restored, Graph)  # what pickles name that were made before GraphData had its own class
