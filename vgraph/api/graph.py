"""Graph: who is joined to whom, with features on nodes, edges and whole graphs, and what is computed on them.

Takes: a Topology and Frames. Gives: the user's graph. Runs once per topology. Every method here is one call of a
function of ``vgraph/graphs`` or ``vgraph/api/messages``, whose docstring is the method's manual.
Source: DGL section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import Tensor

from vgraph.api.messages import filter as selection
from vgraph.api.messages import multi_update, propagation, update_all
from vgraph.graphs import reorder, subgraph, to_networkx, transform
from vgraph.graphs.draw import neighbors, unjoined_pairs
from vgraph.graphs.graph_data import AnyGraph, GraphData, restored

if TYPE_CHECKING:
    import networkx as nx

Func: TypeAlias = Callable[..., Any]
Count: TypeAlias = int  # a graph has a method of the name int


class Graph(GraphData):
    """A directed graph with features; made by ``vgraph.graph``, ``vgraph.heterograph`` and others.

    ``ndata`` and ``edata`` map names to tensors with one row a node and one row an edge; ``gdata``
    has one row for every graph of a batch. ``srcdata`` and ``dstdata`` are ``ndata``, but in a
    block. Edges are numbered in the order in which they were given. Where there are several types of
    nodes or edges, features are dicts by type, and ``g.nodes["user"].data`` are those of one.
    ``topology`` holds the ids; it is replaced, never changed, when nodes or edges come and go.

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
        self, message_func: Func, reduce_func: Func, apply_node_func: Func | None = None, etype: Any = None
    ) -> None:
        """Sends messages along all edges, reduces them at their ends, sets what comes of it.

        Nodes without in-edges get zeros; ``apply_node_func`` runs on all nodes afterwards. The manual is at
        ``vgraph.api.messages.update_all``, as that of the methods below.

        Raises:
            FunctionError: a function gives no dict of tensors, one row an edge or a node.
        """
        update_all.update_all(self, message_func, reduce_func, apply_node_func, etype)

    def multi_update_all(
        self,
        etype_dict: Mapping[Any, tuple[Any, ...]],
        cross_reducer: str | multi_update.Merge,
        apply_node_func: Func | None = None,
    ) -> None:
        """``update_all`` along several edge types; what ends in one type of nodes is combined, name by name.

        ``cross_reducer``: "sum", "mean", "max", "min", "stack", or a function of the list of tensors. The manual is
        at ``vgraph.api.messages.multi_update``.
        """
        multi_update.multi_update_all(self, etype_dict, cross_reducer, apply_node_func)

    def apply_edges(self, func: Func, edges: Any = None, etype: Any = None) -> None:
        """Sets what ``func(edges)`` gives as features of all edges, or of those given."""
        update_all.apply_edges(self, func, edges, etype)

    def apply_nodes(self, func: Func, v: Any = None, ntype: str | None = None) -> None:
        """Sets what ``func(nodes)`` gives as features of all nodes, or of ``v``."""
        update_all.apply_nodes(self, func, v, ntype)

    def send_and_recv(
        self, edges: Any, message_func: Func, reduce_func: Func, apply_node_func: Func | None = None, etype: Any = None
    ) -> None:
        """As ``update_all``, with the messages of some edges; only nodes where they end change.

        An edge that is named twice, as one of several alike is by a pair of nodes, sends twice.
        """
        update_all.send_and_recv(self, edges, message_func, reduce_func, apply_node_func, etype)

    def pull(
        self, v: Any, message_func: Func, reduce_func: Func, apply_node_func: Func | None = None, etype: Any = None
    ) -> None:
        """As ``update_all``, with the in-edges of ``v``; only these nodes change."""
        update_all.pull(self, v, message_func, reduce_func, apply_node_func, etype)

    def push(
        self, u: Any, message_func: Func, reduce_func: Func, apply_node_func: Func | None = None, etype: Any = None
    ) -> None:
        """As ``update_all``, with the out-edges of ``u``; only nodes where they end change."""
        update_all.push(self, u, message_func, reduce_func, apply_node_func, etype)

    def send(self, edges: Any, message_func: Func, etype: Any = None) -> None:
        """Computes messages of edges and leaves them there until ``recv`` takes them.

        ``edges``: ids, a pair (u, v), a mask, or None for all. Messages sent again replace what lay there.
        """
        update_all.send(self, edges, message_func, etype)

    def recv(self, v: Any, reduce_func: Func, apply_node_func: Func | None = None, etype: Any = None) -> None:
        """Reduces the messages that lie on the in-edges of ``v`` (None: of all nodes) and removes them.

        Nodes without messages are left alone, but ``apply_node_func`` runs on all of ``v``.
        """
        update_all.recv(self, v, reduce_func, apply_node_func, etype)

    def prop_nodes(
        self,
        nodes_generator: Iterable[Any],
        message_func: Func,
        reduce_func: Func,
        apply_node_func: Func | None = None,
        etype: Any = None,
    ) -> None:
        """``pull`` for every group of nodes that the generator gives; see ``vgraph.prop_nodes``."""
        propagation.prop_nodes(self, nodes_generator, message_func, reduce_func, apply_node_func, etype)

    def prop_edges(
        self,
        edges_generator: Iterable[Any],
        message_func: Func,
        reduce_func: Func,
        apply_node_func: Func | None = None,
        etype: Any = None,
    ) -> None:
        """``send_and_recv`` for every group of edges that the generator gives; see ``vgraph.prop_edges``."""
        propagation.prop_edges(self, edges_generator, message_func, reduce_func, apply_node_func, etype)

    # ------------------------------------------------------------ ids by what functions say of them
    def filter_nodes(self, predicate: Callable[[Any], Tensor], nodes: Any = None, ntype: str | None = None) -> Tensor:
        """Ids of the nodes for which ``predicate(nodes)`` is true, (k,); see ``vgraph.filter_nodes``."""
        return selection.filter_nodes(self, predicate, nodes, ntype)

    def filter_edges(self, predicate: Callable[[Any], Tensor], edges: Any = None, etype: Any = None) -> Tensor:
        """Ids of the edges for which ``predicate(edges)`` is true, (k,); see ``vgraph.filter_edges``."""
        return selection.filter_edges(self, predicate, edges, etype)

    # ------------------------------------------------------------ parts of the graph
    def subgraph(
        self: AnyGraph, nodes: Any, *, relabel_nodes: bool = True, store_ids: bool = True, output_device: Any = None
    ) -> AnyGraph:
        """The nodes given, in that order, and the edges between them; see ``vgraph.node_subgraph``."""
        return subgraph.node_subgraph(
            self, nodes, relabel_nodes=relabel_nodes, store_ids=store_ids, output_device=output_device
        )

    node_subgraph = subgraph

    def edge_subgraph(
        self: AnyGraph, edges: Any, *, relabel_nodes: bool = True, store_ids: bool = True, output_device: Any = None
    ) -> AnyGraph:
        """The edges given, in that order, and the nodes at their ends; see ``vgraph.edge_subgraph``."""
        return subgraph.edge_subgraph(
            self, edges, relabel_nodes=relabel_nodes, store_ids=store_ids, output_device=output_device
        )

    def in_subgraph(
        self: AnyGraph, nodes: Any, *, relabel_nodes: bool = False, store_ids: bool = True, output_device: Any = None
    ) -> AnyGraph:
        """All nodes and the edges that end in those given; see ``vgraph.in_subgraph``."""
        return subgraph.in_subgraph(
            self, nodes, relabel_nodes=relabel_nodes, store_ids=store_ids, output_device=output_device
        )

    def out_subgraph(
        self: AnyGraph, nodes: Any, *, relabel_nodes: bool = False, store_ids: bool = True, output_device: Any = None
    ) -> AnyGraph:
        """All nodes and the edges that begin in those given; see ``vgraph.out_subgraph``."""
        return subgraph.out_subgraph(
            self, nodes, relabel_nodes=relabel_nodes, store_ids=store_ids, output_device=output_device
        )

    def khop_in_subgraph(
        self, nodes: Any, k: Count, *, relabel_nodes: bool = True, store_ids: bool = True, output_device: Any = None
    ) -> Any:
        """The nodes from which those given are reached in k steps; see ``vgraph.khop_in_subgraph``.

        With ``relabel_nodes`` a pair: the graph, and the new ids of the nodes given.
        """
        return subgraph.khop_in_subgraph(
            self, nodes, k, relabel_nodes=relabel_nodes, store_ids=store_ids, output_device=output_device
        )

    def khop_out_subgraph(
        self, nodes: Any, k: Count, *, relabel_nodes: bool = True, store_ids: bool = True, output_device: Any = None
    ) -> Any:
        """The nodes that are reached from those given in k steps; see ``vgraph.khop_out_subgraph``.

        With ``relabel_nodes`` a pair: the graph, and the new ids of the nodes given.
        """
        return subgraph.khop_out_subgraph(
            self, nodes, k, relabel_nodes=relabel_nodes, store_ids=store_ids, output_device=output_device
        )

    def node_type_subgraph(self: AnyGraph, ntypes: Iterable[str], output_device: Any = None) -> AnyGraph:
        """All nodes of some types and the edges between them; see ``vgraph.node_type_subgraph``."""
        return subgraph.node_type_subgraph(self, ntypes, output_device)

    def edge_type_subgraph(self: AnyGraph, etypes: Iterable[Any], output_device: Any = None) -> AnyGraph:
        """All edges of some types and the nodes of the types at their ends; see ``vgraph.edge_type_subgraph``."""
        return subgraph.edge_type_subgraph(self, etypes, output_device)

    # ------------------------------------------------------------ the same nodes with other edges
    def reverse(
        self: AnyGraph,
        copy_ndata: bool = True,
        copy_edata: bool = False,
        *,
        share_ndata: bool | None = None,
        share_edata: bool | None = None,
    ) -> AnyGraph:
        """The graph with every edge turned round; edges keep their ids. See ``vgraph.reverse``."""
        return transform.reverse(self, copy_ndata, copy_edata, share_ndata=share_ndata, share_edata=share_edata)

    def add_self_loop(self: AnyGraph, edge_feat_names: Any = None, fill_data: Any = 1.0, etype: Any = None) -> AnyGraph:
        """A graph with one more edge v -> v for every node, after all others; see ``vgraph.add_self_loop``."""
        return transform.add_self_loop(self, edge_feat_names, fill_data, etype)

    def remove_self_loop(self: AnyGraph, etype: Any = None) -> AnyGraph:
        """A graph without the edges v -> v; see ``vgraph.remove_self_loop``."""
        return transform.remove_self_loop(self, etype)

    def to_simple(
        self,
        return_counts: str | None = "count",
        writeback_mapping: bool = False,
        copy_ndata: bool = True,
        copy_edata: bool = False,
        aggregator: str = "arbitrary",
    ) -> Any:
        """A graph with one edge where there were several alike; see ``vgraph.to_simple``.

        With ``writeback_mapping`` a pair: the graph, and the new edge of every old one.
        """
        return transform.to_simple(self, return_counts, writeback_mapping, copy_ndata, copy_edata, aggregator)

    def to_bidirected(self: AnyGraph, copy_ndata: bool = False, readonly: bool | None = None) -> AnyGraph:
        """A graph with every edge in both directions once, sorted; see ``vgraph.to_bidirected``."""
        return transform.to_bidirected(self, copy_ndata, readonly)

    def line_graph(self: AnyGraph, backtracking: bool = True, shared: bool = False) -> AnyGraph:
        """The graph whose nodes are the edges; see ``vgraph.line_graph``."""
        return transform.line_graph(self, backtracking, shared)

    def reorder_graph(
        self: AnyGraph,
        node_permute_algo: str | None = None,
        edge_permute_algo: str = "src",
        store_ids: bool = True,
        permute_config: Mapping[str, Any] | None = None,
    ) -> AnyGraph:
        """The graph with nodes and edges numbered anew; see ``vgraph.reorder_graph``."""
        return reorder.reorder_graph(self, node_permute_algo, edge_permute_algo, store_ids, permute_config)

    def to_networkx(
        self, node_attrs: Sequence[str] | None = None, edge_attrs: Sequence[str] | None = None
    ) -> nx.MultiDiGraph[Count]:
        """A networkx.MultiDiGraph; every edge has its number as attribute ``id``. See ``vgraph.to_networkx``."""
        return to_networkx.to_networkx(self, node_attrs, edge_attrs)

    # ------------------------------------------------------------ what is drawn at random
    def sample_neighbors(
        self: AnyGraph,
        nodes: Any,
        fanout: Any,
        edge_dir: str = "in",
        prob: str | None = None,
        replace: bool = False,
        copy_ndata: bool = True,
        copy_edata: bool = True,
        exclude_edges: Any = None,
        output_device: Any = None,
    ) -> AnyGraph:
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

    def select_topk(
        self: AnyGraph,
        k: Count,
        weight: str,
        nodes: Any = None,
        edge_dir: str = "in",
        ascending: bool = False,
        copy_ndata: bool = True,
        copy_edata: bool = True,
        output_device: Any = None,
    ) -> AnyGraph:
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

    def global_uniform_negative_sampling(
        self,
        num_samples: Count,
        exclude_self_loops: bool = True,
        replace: bool = False,
        etype: Any = None,
        redundancy: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Up to ``num_samples`` pairs (sources, destinations) that no edge of the type joins.

        See ``vgraph.sampling.global_uniform_negative_sampling``.
        """
        return unjoined_pairs.global_uniform_negative_sampling(
            self, num_samples, exclude_self_loops, replace, etype, redundancy
        )


def _restore(is_block: bool, topologies: Any, frames: Any, sizes: Any) -> Graph:  # pyright: ignore[reportUnusedFunction]
    """What pickles name that were made before GraphData had its own class."""
    return restored(Graph, is_block, topologies, frames, sizes)
