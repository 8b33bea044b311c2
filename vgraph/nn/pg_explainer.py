"""PGExplainer: a network that says of any edge how much a model's answer hangs on it, with DGL's names.

Takes: a trained model, graphs and their features. Gives: numbers from 0 to 1. Runs once per answer.
Source: Luo et al. 2020, section 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vgraph
from vgraph.arguments import ABOVE_ZERO, COUNT, NUMBER, checked
from vgraph.errors import FunctionError
from vgraph.nn.inputs import check_feat, check_graph

Nodes = int | Sequence[int] | Tensor
TINY = 1e-6  # keeps logarithms finite


class PGExplainer(nn.Module):
    """A network from rows of an edge's ends to a mask over edges, which is trained over many graphs or nodes.

    The model is called as ``model(graph, feat, embed=True, **kwargs)`` for rows of nodes, and as
    ``model(graph, feat, edge_weight=w, **kwargs)`` for logits. Every edge must have its reverse.

    Args:
        model: the trained model.
        num_features: the width of its rows of nodes.
        num_hops: how far its answer for a node sees; None where graphs are explained.
        explain_graph: explain answers for graphs; False: for nodes.
        coff_budget: what the sum of the mask costs.
        coff_connect: what the entropy of the mask costs.
        sample_bias: how far random numbers stay from 0 and 1.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FunctionError: it was made for graphs and is asked for nodes, or the other way; num_hops is missing.

    Source: Luo et al. 2020, section 4; DGL 2.0, ``dgl.nn.PGExplainer``.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import PGExplainer
        >>> class Model(torch.nn.Module):
        ...     def forward(self, graph, feat, embed=False, edge_weight=None):
        ...         weight = torch.ones(graph.num_edges()) if edge_weight is None else edge_weight
        ...         src, dst = graph.edges()
        ...         sums = torch.zeros_like(feat).index_add(0, dst, feat[src] * weight[:, None])
        ...         return sums if embed else sums.sum(0, keepdim=True)
        >>> g, feat = vgraph.graph(([0, 1, 1, 2], [1, 0, 2, 1])), torch.rand(3, 4)
        >>> explainer = PGExplainer(Model(), num_features=4)
        >>> explainer.train_step(g, feat, temperature=5.0).backward()
        >>> probs, mask = explainer.explain_graph(g, feat)
        >>> probs.shape, mask.shape
        (torch.Size([1, 4]), torch.Size([4]))
    """

    @checked(num_features=COUNT, num_hops=COUNT.or_none(), coff_budget=NUMBER, coff_connect=NUMBER, sample_bias=NUMBER)
    def __init__(
        self,
        model: nn.Module,
        num_features: int,
        num_hops: int | None = None,
        explain_graph: bool = True,
        coff_budget: float = 0.01,
        coff_connect: float = 5e-4,
        sample_bias: float = 0.0,
    ) -> None:
        super().__init__()
        self.model, self.graph_explanation, self.num_hops = model, explain_graph, num_hops
        self.num_features = num_features * (2 if explain_graph else 3)
        self.coff_budget, self.coff_connect, self.sample_bias = coff_budget, coff_connect, sample_bias
        self.elayers = nn.Sequential(nn.Linear(self.num_features, 64), nn.ReLU(), nn.Linear(64, 1))

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """What is trained: the network, and nothing of the model.

        Args:
            recurse: ignored.

        Returns:
            The network's parameters.
        """
        return self.elayers.parameters()

    @checked(temperature=ABOVE_ZERO)
    def train_step(self, graph: vgraph.Graph, feat: Tensor, temperature: float, **kwargs: object) -> Tensor:
        """The loss of the mask of a graph.

        Args:
            graph: a graph, or a batch, with one type of nodes and edges.
            feat: (nodes, width).
            temperature: how soft the mask is.
            **kwargs: what else the model takes.

        Returns:
            The loss, ().

        Raises:
            ArgumentError: ``temperature`` is no number above 0.
            FeatureError: ``feat`` has not one row for every node.
            FunctionError: the explainer was made for nodes; ``graph`` is no graph.
        """
        self._check(graph, feat, for_graphs=True)
        with torch.no_grad():
            label = self.model(graph, feat, embed=False, **kwargs).argmax(-1)
        values, mask = self._mask(graph, self._of_ends(graph, feat, kwargs), temperature, training=True)
        return self._loss(self._probs(graph, feat, mask, kwargs), label, values, mask)

    @checked(temperature=ABOVE_ZERO)
    def explain_graph(
        self, graph: vgraph.Graph, feat: Tensor, temperature: float = 1.0, training: bool = False, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """What the answer for a graph hangs on.

        Args:
            graph: a graph, or a batch, with one type of nodes and edges.
            feat: (nodes, width).
            temperature: how soft the mask is in training.
            training: draw the mask at random, as it is in training.
            **kwargs: what else the model takes.

        Returns:
            The probabilities of classes under the mask (graphs, classes), and the mask (edges,).

        Raises:
            ArgumentError: ``temperature`` is no number above 0.
            FeatureError: ``feat`` has not one row for every node.
            FunctionError: the explainer was made for nodes; ``graph`` is no graph.
        """
        self._check(graph, feat, for_graphs=True)
        _, mask = self._mask(graph, self._of_ends(graph, feat, kwargs), temperature, training)
        return self._probs(graph, feat, mask, kwargs), mask

    @checked(temperature=ABOVE_ZERO)
    def train_step_node(
        self, nodes: Nodes, graph: vgraph.Graph, feat: Tensor, temperature: float, **kwargs: object
    ) -> Tensor:
        """The loss of the masks around some nodes.

        Args:
            nodes: a node, or ids (k,).
            graph: a graph with one type of nodes and edges.
            feat: (nodes, width).
            temperature: how soft the mask is.
            **kwargs: what else the model takes.

        Returns:
            The loss, ().

        Raises:
            ArgumentError: ``temperature`` is no number above 0.
            FeatureError: ``feat`` has not one row for every node.
            FunctionError: the explainer was made for graphs; num_hops is missing; ``graph`` is no graph.
        """
        around, rows, given, centers = self._around(nodes, graph, feat, kwargs)
        with torch.no_grad():
            label = self.model(around, given, embed=False, **kwargs).argmax(-1)
        values, mask = self._mask(around, rows, temperature, training=True)
        probs = self._probs(around, given, mask, kwargs)
        return self._loss(probs[centers], label[centers], values, mask)

    @checked(temperature=ABOVE_ZERO)
    def explain_node(
        self,
        nodes: Nodes,
        graph: vgraph.Graph,
        feat: Tensor,
        temperature: float = 1.0,
        training: bool = False,
        **kwargs: object,
    ) -> tuple[Tensor, Tensor, vgraph.Graph, Tensor]:
        """What the answers for some nodes hang on.

        Args:
            nodes: a node, or ids (k,).
            graph: a graph with one type of nodes and edges.
            feat: (nodes, width).
            temperature: how soft the mask is in training.
            training: draw the mask at random, as it is in training.
            **kwargs: what else the model takes.

        Returns:
            The probabilities of classes under the mask, the mask (edges,), the batch of subgraphs around the nodes
            that both are of, and the nodes' ids in it.

        Raises:
            ArgumentError: ``temperature`` is no number above 0.
            FeatureError: ``feat`` has not one row for every node.
            FunctionError: the explainer was made for graphs; num_hops is missing; ``graph`` is no graph.
        """
        around, rows, given, centers = self._around(nodes, graph, feat, kwargs)
        _, mask = self._mask(around, rows, temperature, training)
        return self._probs(around, given, mask, kwargs), mask, around, centers

    def _check(self, graph: vgraph.Graph, feat: Tensor, *, for_graphs: bool) -> None:
        if self.graph_explanation != for_graphs:
            kinds = ("graphs", "nodes") if self.graph_explanation else ("nodes", "graphs")
            fact = f"the explainer was made for {kinds[0]} and is asked for {kinds[1]}"
            raise FunctionError(fact, cure=f"make it with explain_graph={for_graphs}")
        check_graph(self, graph)
        check_feat(graph, feat)

    def _of_ends(self, graph: vgraph.Graph, feat: Tensor, more: dict[str, object]) -> Tensor:
        """The model's rows of both ends of every edge."""
        with torch.no_grad():
            rows: Tensor = self.model(graph, feat, embed=True, **more)
        src, dst = graph.edges()
        return torch.cat([rows[src.long()], rows[dst.long()]], -1)

    def _around(
        self, nodes: Nodes, graph: vgraph.Graph, feat: Tensor, more: dict[str, object]
    ) -> tuple[vgraph.Graph, Tensor, Tensor, Tensor]:
        """The subgraphs around nodes, what the network takes, features, and the nodes' ids."""
        self._check(graph, feat, for_graphs=False)
        if self.num_hops is None:
            raise FunctionError("nodes are explained without num_hops", cure="say how many layers the model has")
        graphs, rows, given, centers, first = list[vgraph.Graph](), list[Tensor](), list[Tensor](), list[Tensor](), 0
        for node in torch.as_tensor(nodes).reshape(-1).tolist():
            sg, center = vgraph.khop_in_subgraph(graph, node, self.num_hops)
            seen = feat[sg.ndata[vgraph.NID].long()]
            with torch.no_grad():
                own: Tensor = self.model(sg, seen, embed=True, **more)[center.long()]
            rows.append(torch.cat([self._of_ends(sg, seen, more), own.expand(sg.num_edges(), -1)], -1))
            graphs.append(sg)
            given.append(seen)
            centers.append(center.long() + first)
            first += sg.num_nodes()
        return vgraph.batch(graphs), torch.cat(rows), torch.cat(given), torch.cat(centers)

    def _mask(self, graph: vgraph.Graph, rows: Tensor, temperature: float, training: bool) -> tuple[Tensor, Tensor]:
        """A number an edge, and its mean with that of the reverse edge."""
        scores = self.elayers(rows).reshape(-1)
        if training:
            noise = self.sample_bias + (1 - 2 * self.sample_bias) * torch.rand_like(scores)
            scores = (noise.log() - (1 - noise).log() + scores) / temperature
        values = scores.sigmoid()
        src, dst = graph.edges()
        return values, (values + values[graph.edge_ids(dst, src).long()]) / 2

    def _probs(self, graph: vgraph.Graph, feat: Tensor, mask: Tensor, more: dict[str, object]) -> Tensor:
        return self.model(graph, feat, edge_weight=mask, **more).softmax(-1)

    def _loss(self, probs: Tensor, label: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """What the mask loses of the model's answer, and what it costs itself."""
        told = -(probs.gather(-1, label.unsqueeze(-1)) + TINY).log().mean()
        total = values.sum()
        size = self.coff_budget * (F.relu(total - self.coff_budget) if self.coff_budget > 0 else total)
        mask = mask * 0.98 + 0.01
        entropy = -(mask * mask.log() + (1 - mask) * (1 - mask).log()).mean()
        return told + size + self.coff_connect * entropy
