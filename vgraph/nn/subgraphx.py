"""SubgraphX: the connected part of a graph that counts most for a model's answer, found by a search over prunings.

Takes: a trained model, a graph, its features and a class. Gives: ids of nodes. Runs once per answer.
Source: Yuan, Yu, Wang, Li and Ji 2021, section 4; names of DGL's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array, csgraph
from torch import Tensor, nn
from tqdm.auto import tqdm

import vgraph
from vgraph.arguments import COUNT, NUMBER, POSITIVE, checked
from vgraph.errors import ArgumentError, GraphError
from vgraph.nn.inputs import check_feat, check_feats, check_graph

Ids = NDArray[np.int64]
Value = Callable[[Ids], Tensor]  # the probability of the class when only these nodes have their features


@dataclass(eq=False)
class _Part:
    """Nodes that are left, and what the search knows of them."""

    nodes: Ids
    reward: float = 0.0
    visits: int = 0
    total: float = 0.0
    children: list[_Part] = field(default_factory=list["_Part"])


class _TreeSearch(nn.Module):
    """What both explainers share: a Monte Carlo tree search whose nodes are connected parts of a graph.

    Nodes of several types are numbered through, type by type.
    """

    @checked(
        num_hops=COUNT,
        coef=NUMBER,
        num_child=POSITIVE,
        num_rollouts=POSITIVE,
        node_min=POSITIVE,
        shapley_steps=POSITIVE,
    )
    def __init__(
        self,
        model: nn.Module,
        num_hops: int,
        coef: float = 10.0,
        high2low: bool = True,
        num_child: int = 12,
        num_rollouts: int = 20,
        node_min: int = 3,
        shapley_steps: int = 100,
        log: bool = False,
    ) -> None:
        super().__init__()
        self.model, self.num_hops, self.coef, self.high2low = model, num_hops, coef, high2low
        self.num_child, self.num_rollouts, self.node_min = num_child, num_rollouts, node_min
        self.shapley_steps, self.log = shapley_steps, log

    def _best(self, graph: vgraph.Graph, value: Value) -> Ids:
        """The part of at most ``node_min`` nodes that counts most, of those that the search met."""
        count = graph.num_nodes()
        if not 0 < self.node_min < count:
            fact = f"node_min is {self.node_min} for a graph of {count} nodes"
            raise GraphError(fact, cure="leave at least 1 node, and fewer than there are")
        self.model.eval()
        search = _Search(self, _ends(graph), count, value)
        for _ in tqdm(range(self.num_rollouts), desc="explain graph", leave=False, disable=None if self.log else True):
            search.roll_out(search.root)
        small = [part for part in search.parts.values() if len(part.nodes) <= self.node_min]
        return max(small, key=lambda part: part.reward).nodes


def _ends(graph: vgraph.Graph) -> tuple[Ids, Ids]:
    """Both ends of all edges, of all types."""
    first = _first_ids(graph)
    ends = [(graph.edges(etype=t), first[t[0]], first[t[2]]) for t in graph.canonical_etypes]
    src = torch.cat([src.long() + of_src for (src, _), of_src, _ in ends])
    dst = torch.cat([dst.long() + of_dst for (_, dst), _, of_dst in ends])
    return src.cpu().numpy(), dst.cpu().numpy()


def _first_ids(graph: vgraph.Graph) -> dict[str, int]:
    counts = [graph.num_nodes(name) for name in graph.ntypes]
    return dict(zip(graph.ntypes, np.cumsum([0, *counts[:-1]]).tolist(), strict=True))


class _Search:
    """One search: the parts that were met, and how they are valued."""

    def __init__(self, rules: _TreeSearch, ends: tuple[Ids, Ids], count: int, value: Value) -> None:
        self.rules, self.value, self.count, (self.src, self.dst) = rules, value, count, ends
        self.root = _Part(np.arange(count))
        self.parts = {self.root.nodes.tobytes(): self.root}

    def roll_out(self, part: _Part) -> float:
        """Goes down to a small part by the most promising children, and tells all on the way what it was worth."""
        if len(part.nodes) <= self.rules.node_min:
            return part.reward
        part.children = part.children or self._pruned(part)
        root = sqrt(sum(child.visits for child in part.children))

        def promise(child: _Part) -> float:
            explored = self.rules.coef * child.reward * root / (1 + child.visits)
            return child.total / max(child.visits, 1) + explored

        chosen = max(part.children, key=promise)
        reward = self.roll_out(chosen)
        chosen.visits, chosen.total = chosen.visits + 1, chosen.total + reward
        return reward

    def _pruned(self, part: _Part) -> list[_Part]:
        """The largest connected part that is left without a node, for some nodes."""
        degrees = torch.from_numpy(np.bincount(np.concatenate(self._inside(part.nodes)), minlength=self.count))
        of_part = degrees[torch.from_numpy(part.nodes)]
        chosen = of_part.topk(min(len(part.nodes), self.rules.num_child), largest=self.rules.high2low).indices
        found: dict[bytes, _Part] = {}
        for place in chosen.tolist():
            nodes = self._largest(np.delete(part.nodes, place))
            key = nodes.tobytes()
            found[key] = self.parts.setdefault(key, _Part(nodes))
        for child in found.values():
            child.reward = child.reward or self._shapley(child.nodes)
        return list(found.values())

    def _inside(self, nodes: Ids) -> tuple[Ids, Ids]:
        """The edges between some nodes."""
        both = np.isin(self.src, nodes) & np.isin(self.dst, nodes)
        return self.src[both], self.dst[both]

    def _largest(self, nodes: Ids) -> Ids:
        ends = tuple(np.searchsorted(nodes, side) for side in self._inside(nodes))
        joined = coo_array((np.ones(len(ends[0])), ends), (len(nodes), len(nodes)))
        labels = csgraph.connected_components(joined, directed=True, connection="weak")[1]
        return nodes[labels == np.bincount(labels).argmax()]

    def _shapley(self, nodes: Ids) -> float:
        """What the part adds to the answer, averaged over random sets of other nodes near it."""
        near = nodes
        for _ in range(self.rules.num_hops - 1):
            around = [self.src[np.isin(self.dst, near)], self.dst[np.isin(self.src, near)]]
            near = np.union1d(near, np.concatenate(around))
        far = np.setdiff1d(np.arange(self.count), near)
        others = np.append(np.setdiff1d(near, nodes), self.count)  # what comes before the last one is chosen
        gains: list[Tensor] = []
        for _ in range(self.rules.shapley_steps):
            drawn = np.random.permutation(others)
            without = np.concatenate([far, drawn[: int(np.argmax(drawn == self.count))]])
            gains.append(self.value(np.concatenate([without, nodes])) - self.value(without))
        return float(torch.cat(gains).mean())


def _kept(rows: Tensor, ids: Tensor) -> Tensor:
    """Zeros in place of all other rows."""
    mask = rows.new_zeros(len(rows), *(1,) * (rows.dim() - 1))
    mask[ids] = 1
    return rows * mask


def _probability(logits: Tensor, target_class: int) -> Tensor:
    if target_class >= logits.shape[-1]:
        fact = f"target_class={target_class} for a model that gives logits of shape {tuple(logits.shape)}"
        raise ArgumentError(fact, cure="give one of its classes, which are counted from 0")
    return logits.softmax(-1)[:, target_class]


class SubgraphX(_TreeSearch):
    """The connected nodes of a graph that count most for a class, by Shapley values and a tree search.

    The model is called as ``model(graph, feat, **kwargs)``, with zeros for the features of some nodes.

    Args:
        model: the trained model, which gives logits (1, classes).
        num_hops: how many layers of messages it has.
        coef: how much the search tries what it has tried little.
        high2low: take away nodes of high degree first; False: of low degree.
        num_child: how many nodes are tried to be taken away from a part.
        num_rollouts: how many times the search goes down.
        node_min: how many nodes are left at most.
        shapley_steps: how many random sets of other nodes a part is valued by.
        log: show a progress bar on a terminal.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        GraphError: there are no more than ``node_min`` nodes.

    Source: Yuan et al. 2021, algorithms 1 and 2.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import SubgraphX
        >>> class Model(torch.nn.Module):
        ...     def forward(self, graph, feat):
        ...         return feat.sum(0, keepdim=True)
        >>> g = vgraph.graph(([0, 1, 2, 3], [1, 2, 3, 4]))
        >>> feat = torch.tensor([[0.0, 0], [0, 0], [3, 0], [3, 0], [0, 3]])
        >>> explainer = SubgraphX(Model(), num_hops=1, node_min=2, shapley_steps=5)
        >>> explainer.explain_graph(g, feat, target_class=0)
        tensor([2, 3])
    """

    @checked(target_class=COUNT)
    def explain_graph(self, graph: vgraph.Graph, feat: Tensor, target_class: int, **kwargs: object) -> Tensor:
        """The nodes that count most.

        Args:
            graph: a graph with one type of nodes and edges.
            feat: (nodes, width).
            target_class: the class whose probability counts.
            **kwargs: what else the model takes.

        Returns:
            int64 ids, at most ``node_min``, in order.

        Raises:
            ArgumentError: ``target_class`` is none of the classes that the model tells of.
            FeatureError: ``feat`` has not one row for every node.
            FunctionError: ``graph`` is no graph.
            GraphError: there are no more than ``node_min`` nodes.
        """
        check_graph(self, graph)
        check_feat(graph, feat)

        def value(nodes: Ids) -> Tensor:
            seen = _kept(feat, torch.from_numpy(nodes).to(feat.device))
            with torch.no_grad():
                return _probability(self.model(graph, seen, **kwargs), target_class)

        return torch.from_numpy(self._best(graph, value)).to(graph.device)


class HeteroSubgraphX(_TreeSearch):
    """``SubgraphX`` for graphs of several types.

    The model is called as ``model(graph, feat, **kwargs)``, with features by type of node.

    Args:
        model: the trained model, which gives logits (1, classes).
        num_hops: how many layers of messages it has.
        coef: how much the search tries what it has tried little.
        high2low: take away nodes of high degree first; False: of low degree.
        num_child: how many nodes are tried to be taken away from a part.
        num_rollouts: how many times the search goes down.
        node_min: how many nodes are left at most, of all types.
        shapley_steps: how many random sets of other nodes a part is valued by.
        log: show a progress bar on a terminal.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        GraphError: there are no more than ``node_min`` nodes.

    Source: Yuan et al. 2021, algorithms 1 and 2.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import HeteroSubgraphX
        >>> class Model(torch.nn.Module):
        ...     def forward(self, graph, feat):
        ...         return torch.cat([feat["user"], feat["film"]]).sum(0, keepdim=True)
        >>> g = vgraph.heterograph({("user", "likes", "film"): ([0, 1, 2], [0, 0, 1])})
        >>> feat = {"user": torch.tensor([[0.0, 0], [3, 0], [0, 0]]), "film": torch.tensor([[3.0, 0], [0, 3]])}
        >>> explainer = HeteroSubgraphX(Model(), num_hops=1, node_min=2, shapley_steps=5)
        >>> explainer.explain_graph(g, feat, target_class=0)
        {'film': tensor([0]), 'user': tensor([1])}
    """

    @checked(target_class=COUNT)
    def explain_graph(
        self, graph: vgraph.Graph, feat: Mapping[str, Tensor], target_class: int, **kwargs: object
    ) -> dict[str, Tensor]:
        """The nodes that count most.

        Args:
            graph: a graph.
            feat: rows by type of node, (nodes, width) each.
            target_class: the class whose probability counts.
            **kwargs: what else the model takes.

        Returns:
            int64 ids by type, of types that have any, at most ``node_min`` in all.

        Raises:
            ArgumentError: ``target_class`` is none of the classes that the model tells of.
            FeatureError: ``feat`` has not one row for every node of a type.
            FunctionError: ``graph`` is no graph.
            GraphError: there are no more than ``node_min`` nodes.
            NameLookupError: there is no such type of nodes.
        """
        check_graph(self, graph)
        check_feats(graph, feat)

        def value(nodes: Ids) -> Tensor:
            ids = _by_type(graph, nodes)
            seen = {name: _kept(rows, ids[name].to(rows.device)) for name, rows in feat.items()}
            with torch.no_grad():
                return _probability(self.model(graph, seen, **kwargs), target_class)

        found = _by_type(graph, self._best(graph, value))
        return {name: ids.to(graph.device) for name, ids in found.items() if len(ids)}


def _by_type(graph: vgraph.Graph, nodes: Ids) -> dict[str, Tensor]:
    """Ids within their types."""
    ids = torch.from_numpy(nodes)
    return {
        name: ids[(ids >= first) & (ids < first + graph.num_nodes(name))] - first
        for name, first in _first_ids(graph).items()
    }
