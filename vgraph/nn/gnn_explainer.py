"""GNNExplainer: which edges and columns of features a model's answer hangs on, as masks that are trained.

Takes: a trained model, a graph and its features. Gives: numbers from 0 to 1. Runs once per answer.
Source: Ying, Bourgeois, You, Zitnik and Leskovec 2019, section 4; names of DGL's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import sqrt

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

import vgraph
from vgraph.arguments import COUNT, FROM_ZERO, NUMBER, checked
from vgraph.nn.inputs import check_feat, check_feats, check_graph, check_name

ByType = Mapping[str, Tensor]
EdgeType = tuple[str, str, str]
Items = Collection[Tensor]
Row = int | Tensor
TINY = 1e-15  # keeps logarithms finite


class _MaskTrainer(nn.Module):
    """What both explainers share: how masks are drawn, what they cost, how they are trained."""

    @checked(num_hops=COUNT, lr=FROM_ZERO, num_epochs=COUNT, alpha1=NUMBER, alpha2=NUMBER, beta1=NUMBER, beta2=NUMBER)
    def __init__(
        self,
        model: nn.Module,
        num_hops: int,
        lr: float = 0.01,
        num_epochs: int = 100,
        *,
        alpha1: float = 0.005,
        alpha2: float = 1.0,
        beta1: float = 1.0,
        beta2: float = 0.1,
        log: bool = True,
    ) -> None:
        super().__init__()
        self.model, self.num_hops, self.lr, self.num_epochs = model, num_hops, lr, num_epochs
        self.alpha1, self.alpha2, self.beta1, self.beta2, self.log = alpha1, alpha2, beta1, beta2, log

    def _train(self, of_feats: Items, of_edges: Items, loss: Callable[[], Tensor], what: str) -> None:
        """Trains the masks for the least of ``loss`` and of what they cost themselves."""
        optimizer = torch.optim.Adam([*of_feats, *of_edges], lr=self.lr)
        for _ in tqdm(range(self.num_epochs), desc=what, leave=False, disable=None if self.log else True):
            optimizer.zero_grad()
            whole = loss() + self._cost(of_feats, of_edges)
            whole.backward()
            optimizer.step()

    def _cost(self, of_feats: Items, of_edges: Items) -> Tensor:
        """Masks are to be small, and every number of them near 0 or 1."""
        total = torch.zeros(())
        for mask in of_edges:
            if mask.numel():
                total = total.to(mask) + self.alpha1 * mask.sigmoid().sum() + self.alpha2 * _entropy(mask.sigmoid())
        for mask in of_feats:
            total = total.to(mask) + self.beta1 * mask.sigmoid().mean() + self.beta2 * _entropy(mask.sigmoid())
        return total

    def _ready(self, graph: vgraph.Graph) -> None:
        self.model = self.model.to(graph.device).eval()


def _entropy(p: Tensor) -> Tensor:
    return (-p * torch.log(p + TINY) - (1 - p) * torch.log(1 - p + TINY)).mean()


def _feat_mask(feat: Tensor) -> Tensor:
    return nn.Parameter(torch.randn(1, feat.shape[1], device=feat.device) * 0.1)


def _edge_mask(graph: vgraph.Graph, etype: tuple[str, str, str]) -> Tensor:
    ends = graph.num_nodes(etype[0]) + graph.num_nodes(etype[2])
    std = nn.init.calculate_gain("relu") * sqrt(2.0 / ends if ends else 1.0)
    return nn.Parameter(torch.randn(graph.num_edges(etype), device=graph.device) * std)


def _unlikelihood(logits: Tensor, row: Row, label: Tensor) -> Tensor:
    """Minus the log of the probability of the label, of one row."""
    return -logits.log_softmax(-1)[row, label].sum()


class GNNExplainer(_MaskTrainer):
    """Masks over edges and over columns of features that keep what a model says, as small as they can be.

    The model is called as ``model(graph=g, feat=x, eweight=w, **kwargs)``, and without ``eweight`` for its own answer.

    Args:
        model: the trained model, which gives logits; ``eweight`` (edges,) multiplies its messages.
        num_hops: how far its answer for a node sees.
        lr: the learning rate of the masks.
        num_epochs: how many steps.
        alpha1: what the sum of an edge mask costs.
        alpha2: what the entropy of an edge mask costs.
        beta1: what the mean of a feature mask costs.
        beta2: what the entropy of a feature mask costs.
        log: show a progress bar on a terminal.

    Source: Ying et al. 2019, section 4; DGL 1.1, ``dgl.nn.GNNExplainer``.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import GNNExplainer
        >>> class Model(torch.nn.Module):
        ...     def forward(self, graph, feat, eweight=1.0):
        ...         (src, dst), size = graph.edges(), (graph.num_nodes(), graph.num_nodes())
        ...         adj = torch.zeros(size).index_put((dst, src), torch.ones(len(src)) * eweight)
        ...         return adj @ feat
        >>> g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
        >>> explainer = GNNExplainer(Model(), num_hops=1, num_epochs=2, log=False)
        >>> center, sg, feat_mask, edge_mask = explainer.explain_node(1, g, torch.ones(3, 5))
        >>> feat_mask.shape, edge_mask.shape
        (torch.Size([5]), torch.Size([1]))
    """

    def explain_node(
        self, node_id: int | Tensor, graph: vgraph.Graph, feat: Tensor, **kwargs: object
    ) -> tuple[Tensor, vgraph.Graph, Tensor, Tensor]:
        """What the answer for a node hangs on.

        Args:
            node_id: the node.
            graph: a graph with one type of nodes and edges.
            feat: (nodes, width).
            **kwargs: what else the model takes; tensors with one row a node or an edge are taken for the subgraph.

        Returns:
            The node's id in the subgraph around it, that subgraph, the mask of features (width,), and that of the
            subgraph's edges (edges,).

        Raises:
            FeatureError: ``feat`` has not one row for every node.
            FunctionError: ``graph`` is no graph.
        """
        check_graph(self, graph)
        check_feat(graph, feat)
        sg, center = vgraph.khop_in_subgraph(graph, node_id, self.num_hops)
        nodes, edges = sg.ndata[vgraph.NID].long(), sg.edata[vgraph.EID].long()
        taken = {graph.num_edges(): edges, graph.num_nodes(): nodes}
        more = {name: _taken(thing, taken) for name, thing in kwargs.items()}
        return center, sg, *self._explain(sg, feat[nodes], center, f"explain node {node_id}", more)

    def explain_graph(self, graph: vgraph.Graph, feat: Tensor, **kwargs: object) -> tuple[Tensor, Tensor]:
        """What the answer for a whole graph hangs on.

        Args:
            graph: a graph with one type of nodes and edges.
            feat: (nodes, width).
            **kwargs: what else the model takes.

        Returns:
            The mask of features (width,), and that of edges (edges,).

        Raises:
            FeatureError: ``feat`` has not one row for every node.
            FunctionError: ``graph`` is no graph.
        """
        check_graph(self, graph)
        check_feat(graph, feat)
        return self._explain(graph, feat, 0, "explain graph", kwargs)

    def _explain(
        self, graph: vgraph.Graph, feat: Tensor, row: Row, what: str, more: Mapping[str, object]
    ) -> tuple[Tensor, Tensor]:
        self._ready(graph)
        with torch.no_grad():
            label = self.model(graph=graph, feat=feat, **more).argmax(-1)[row]
        of_feat, of_edges = _feat_mask(feat), _edge_mask(graph, graph.canonical_etypes[0])

        def loss() -> Tensor:
            seen = feat * of_feat.sigmoid()
            return _unlikelihood(self.model(graph=graph, feat=seen, eweight=of_edges.sigmoid(), **more), row, label)

        self._train([of_feat], [of_edges], loss, what)
        return of_feat.detach().sigmoid().squeeze(), of_edges.detach().sigmoid()


def _taken(thing: object, by_count: Mapping[int, Tensor]) -> object:
    """The rows of a subgraph, where the thing has one row for each of so many."""
    if not isinstance(thing, Tensor) or not thing.dim() or thing.shape[0] not in by_count:
        return thing
    return thing[by_count[thing.shape[0]]]


class HeteroGNNExplainer(_MaskTrainer):
    """``GNNExplainer`` for graphs of several types: a mask for every type of node and of edge.

    The model is called as ``model(graph=g, feat=rows, eweight=weights, **kwargs)`` with dicts by type of node and by
    (source type, edge type, destination type).

    Args:
        model: the trained model, which gives logits: a dict by type of node to explain nodes, a tensor for graphs.
        num_hops: how far its answer for a node sees.
        lr: the learning rate of the masks.
        num_epochs: how many steps.
        alpha1: what the sum of an edge mask costs.
        alpha2: what the entropy of an edge mask costs.
        beta1: what the mean of a feature mask costs.
        beta2: what the entropy of a feature mask costs.
        log: show a progress bar on a terminal.

    Source: Ying et al. 2019, section 4; DGL 1.1, ``dgl.nn.HeteroGNNExplainer``.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import HeteroGNNExplainer
        >>> class Model(torch.nn.Module):
        ...     def forward(self, graph, feat, eweight=None):
        ...         weight = torch.ones(2) if eweight is None else eweight["user", "likes", "film"]
        ...         return weight.unsqueeze(0) @ feat["user"]
        >>> g = vgraph.heterograph({("user", "likes", "film"): ([0, 1], [0, 0])})
        >>> explainer = HeteroGNNExplainer(Model(), num_hops=1, num_epochs=2, log=False)
        >>> feat_mask, edge_mask = explainer.explain_graph(g, {"user": torch.ones(2, 3)})
        >>> feat_mask["user"].shape, edge_mask["user", "likes", "film"].shape
        (torch.Size([3]), torch.Size([2]))
    """

    def explain_node(
        self, ntype: str, node_id: int | Tensor, graph: vgraph.Graph, feat: ByType, **kwargs: object
    ) -> tuple[Tensor, vgraph.Graph, dict[str, Tensor], dict[EdgeType, Tensor]]:
        """What the answer for a node hangs on.

        Args:
            ntype: the type of the node.
            node_id: the node.
            graph: a graph.
            feat: rows by type of node, (nodes, width) each.
            **kwargs: what else the model takes.

        Returns:
            The node's id in the subgraph around it, that subgraph, the masks of features by type of node, (width,)
            each, and those of the subgraph's edges by canonical type, (edges,) each.

        Raises:
            FeatureError: ``feat`` has not one row for every node of a type.
            FunctionError: ``graph`` is no graph.
            NameLookupError: there is no such type of nodes.
        """
        check_graph(self, graph)
        check_name(ntype, graph.ntypes, "node type")
        check_feats(graph, feat)
        sg, centers = vgraph.khop_in_subgraph(graph, {ntype: node_id}, self.num_hops)
        center = centers[ntype]
        rows = {name: x[sg.nodes[name].data[vgraph.NID].long()] for name, x in feat.items()}

        def answer(**given: object) -> Tensor:
            return self.model(graph=sg, **given, **kwargs)[ntype]

        return center, sg, *self._explain(sg, rows, center, f"explain node {node_id} of type {ntype}", answer)

    def explain_graph(
        self, graph: vgraph.Graph, feat: ByType, **kwargs: object
    ) -> tuple[dict[str, Tensor], dict[EdgeType, Tensor]]:
        """What the answer for a whole graph hangs on.

        Args:
            graph: a graph.
            feat: rows by type of node, (nodes, width) each.
            **kwargs: what else the model takes.

        Returns:
            The masks of features by type of node, (width,) each, and those of edges by canonical type, (edges,) each.

        Raises:
            FeatureError: ``feat`` has not one row for every node of a type.
            FunctionError: ``graph`` is no graph.
            NameLookupError: there is no such type of nodes.
        """
        check_graph(self, graph)
        check_feats(graph, feat)

        def answer(**given: object) -> Tensor:
            return self.model(graph=graph, **given, **kwargs)

        return self._explain(graph, feat, 0, "explain graph", answer)

    def _explain(
        self, graph: vgraph.Graph, feat: ByType, row: Row, what: str, answer: Callable[..., Tensor]
    ) -> tuple[dict[str, Tensor], dict[EdgeType, Tensor]]:
        self._ready(graph)
        with torch.no_grad():
            label = answer(feat=feat).argmax(-1)[row]
        of_feats = {name: _feat_mask(rows) for name, rows in feat.items()}
        of_edges = {etype: _edge_mask(graph, etype) for etype in graph.canonical_etypes}

        def loss() -> Tensor:
            seen = {name: rows * of_feats[name].sigmoid() for name, rows in feat.items()}
            return _unlikelihood(
                answer(feat=seen, eweight={etype: mask.sigmoid() for etype, mask in of_edges.items()}), row, label
            )

        self._train(of_feats.values(), of_edges.values(), loss, what)
        found = {name: mask.detach().sigmoid().squeeze() for name, mask in of_feats.items()}
        return found, {etype: mask.detach().sigmoid() for etype, mask in of_edges.items()}
