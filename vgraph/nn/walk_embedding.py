"""DeepWalk and MetaPath2Vec: rows of nodes that are near where random walks meet, with DGL's names.

Takes: a graph, walks. Gives: a loss. Runs at every call.
Source: Perozzi, Al-Rfou and Skiena 2014; Dong, Chawla and Swami 2017; Mikolov et al. 2013.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vgraph
from vgraph.arguments import COUNT, FROM_ZERO, POSITIVE, checked
from vgraph.errors import FunctionError, GraphError
from vgraph.nn.inputs import check_graph


class _WalkEmbedding(nn.Module):
    """Two tables: of nodes, and of nodes as what stands around others."""

    @checked()
    def __init__(self, num_nodes: int, emb_dim: int, sparse: bool) -> None:
        super().__init__()
        self.emb_dim = emb_dim
        self.node_embed = nn.Embedding(num_nodes, emb_dim, sparse=sparse)
        self.context_embed = nn.Embedding(num_nodes, emb_dim, sparse=sparse)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws rows of nodes uniformly below 1 over their width, and sets those of contexts to zeros."""
        nn.init.uniform_(self.node_embed.weight, -1 / self.emb_dim, 1 / self.emb_dim)
        nn.init.zeros_(self.context_embed.weight)


def _places(length: int, window: int) -> tuple[Tensor, Tensor]:
    """All pairs of places in a walk that are no farther apart than the window."""
    near = torch.ones(length, length).tril(window).triu(-window).fill_diagonal_(0)
    dst, src = near.nonzero().unbind(1)
    return src, dst


def _chances(counts: Tensor) -> Tensor:
    """How often nodes are drawn that are no neighbours."""
    power = counts.float().pow(0.75)
    return power / power.sum()


class DeepWalk(_WalkEmbedding):
    """Rows of nodes by skip-grams over random walks.

    ``sample`` gives walks from some nodes, as a ``collate_fn`` of a loader, and ``forward`` their loss.

    Args:
        g: a graph with one type of nodes and edges, on the CPU.
        emb_dim: the width of a row.
        walk_length: how many nodes a walk has.
        window_size: how far apart two nodes of a walk are that are to be near.
        neg_weight: what pairs that are to be far cost.
        negative_size: how many of them there are for each pair that is to be near.
        fast_neg: draw them from the batch; False: from all nodes, by degree.
        sparse: let gradients of the tables be sparse, for ``torch.optim.SparseAdam``.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FunctionError: walks are shorter than the window, or ``g`` is no graph.
        GraphError: a walk ended at a node without out-edges.

    Source: Perozzi et al. 2014, section 4; Mikolov et al. 2013, section 2.2.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import DeepWalk
        >>> g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
        >>> model = DeepWalk(g, emb_dim=4, walk_length=5, window_size=2)
        >>> walks = model.sample(torch.tensor([0, 2]))
        >>> walks.shape, model(walks).shape
        (torch.Size([2, 5]), torch.Size([]))
    """

    idx_list_src: Tensor
    idx_list_dst: Tensor

    @checked(emb_dim=POSITIVE, walk_length=POSITIVE, window_size=POSITIVE, neg_weight=FROM_ZERO, negative_size=COUNT)
    def __init__(
        self,
        g: vgraph.Graph,
        emb_dim: int = 128,
        walk_length: int = 40,
        window_size: int = 5,
        neg_weight: float = 1,
        negative_size: int = 5,
        fast_neg: bool = True,
        sparse: bool = True,
    ) -> None:
        check_graph(self, g)
        if walk_length < window_size + 1:
            fact = f"walks of {walk_length} nodes for a window of {window_size}"
            raise FunctionError(fact, cure="make walk_length at least window_size + 1")
        super().__init__(g.num_nodes(), emb_dim, sparse)
        self.g, self.walk_length, self.window_size = g, walk_length, window_size
        self.neg_weight, self.negative_size, self.fast_neg = neg_weight, negative_size, fast_neg
        if not fast_neg:
            self.neg_prob = _chances(g.out_degrees())
        for name, places in zip(("idx_list_src", "idx_list_dst"), _places(walk_length, window_size), strict=True):
            self.register_buffer(name, places, persistent=False)

    def sample(self, indices: Tensor | Sequence[int]) -> Tensor:
        """Walks from some nodes.

        Args:
            indices: ids (walks,).

        Returns:
            Ids (walks, walk_length).
        """
        return vgraph.sampling.random_walk(self.g, torch.as_tensor(indices), length=self.walk_length - 1)[0]

    def forward(self, batch_walk: Tensor) -> Tensor:
        """How badly the rows tell nodes of a window from others.

        Args:
            batch_walk: ids (walks, walk_length).

        Returns:
            The loss, ().

        Raises:
            GraphError: a walk ended at a node without out-edges.
        """
        batch_walk = batch_walk.long()
        if bool((batch_walk < 0).any()):
            raise GraphError("a walk ended at a node without out-edges", cure="give every node one, or a self-loop")
        src, dst = batch_walk[:, self.idx_list_src].flatten(), batch_walk[:, self.idx_list_dst].flatten()
        near = _score(self.node_embed(src), self.context_embed(dst))
        others = self._others(batch_walk, len(dst) * self.negative_size)
        far = _score(self.node_embed(dst.repeat_interleave(self.negative_size)), self.context_embed(others))
        return -F.logsigmoid(near).mean() - F.logsigmoid(-far).mean() * self.negative_size * self.neg_weight

    def _others(self, batch_walk: Tensor, count: int) -> Tensor:
        """Nodes that are to be far: in the batch all are met equally often."""
        if not self.fast_neg:
            return torch.multinomial(self.neg_prob, count, replacement=True).to(batch_walk.device)
        rounds = -(-count // batch_walk.numel())
        places = torch.randperm(rounds * batch_walk.numel(), device=batch_walk.device)[:count]
        return batch_walk.flatten()[places % batch_walk.numel()]


def _score(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum(1).clamp(-6, 6)


class MetaPath2Vec(_WalkEmbedding):
    """Rows of nodes of several types by skip-grams over walks along a path of edge types.

    ``sample`` gives pairs from walks, as a ``collate_fn`` of a loader over nodes of the path's first type, and
    ``forward`` their loss. Nodes are numbered through, type by type: ``local_to_global_nid`` has the numbers.

    Args:
        g: a graph on the CPU.
        metapath: edge types, of which each begins where the one before ends.
        window_size: how far apart two nodes of a walk are that are to be near.
        emb_dim: the width of a row.
        negative_size: how many pairs that are to be far there are for each that is to be near.
        sparse: let gradients of the tables be sparse, for ``torch.optim.SparseAdam``.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FunctionError: walks are shorter than the window, or ``g`` is no graph.

    Source: Dong et al. 2017, section 3.2; DGL 1.1, ``dgl.nn.MetaPath2Vec``.

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import MetaPath2Vec
        >>> g = vgraph.heterograph({("a", "ab", "b"): ([0, 1], [1, 0]), ("b", "ba", "a"): ([0, 1], [0, 1])})
        >>> model = MetaPath2Vec(g, ["ab", "ba"], window_size=1, emb_dim=4)
        >>> u, v, others = model.sample(torch.tensor([0, 1]))
        >>> u.shape, others.shape, model(u, v, others).shape
        (torch.Size([8]), torch.Size([8, 5]), torch.Size([]))
    """

    @checked(window_size=POSITIVE, emb_dim=POSITIVE, negative_size=COUNT)
    def __init__(
        self,
        g: vgraph.Graph,
        metapath: Sequence[str],
        window_size: int,
        emb_dim: int = 128,
        negative_size: int = 5,
        sparse: bool = True,
    ) -> None:
        check_graph(self, g)
        if len(metapath) + 1 < window_size:
            fact = f"walks of {len(metapath) + 1} nodes for a window of {window_size}"
            raise FunctionError(fact, cure="give a longer metapath, or a smaller window")
        super().__init__(g.num_nodes(), emb_dim, sparse)
        self.hg, self.metapath, self.window_size, self.negative_size = g, list(metapath), window_size, negative_size
        ends = [g.to_canonical_etype(etype) for etype in metapath]
        self.node_metapath = [ends[0][0], *(end[2] for end in ends)]
        counts = [g.num_nodes(name) for name in g.ntypes]
        ids = torch.arange(g.num_nodes(), device="cpu").split(counts)
        self.local_to_global_nid = dict(zip(g.ntypes, ids, strict=True))
        walks = self._walks(torch.arange(g.num_nodes(self.node_metapath[0]), device="cpu"))
        self.neg_prob = _chances(torch.bincount(walks[walks >= 0], minlength=g.num_nodes()))

    def _walks(self, nodes: Tensor) -> Tensor:
        """Walks from nodes of the first type, numbered through; -1 from where one ended."""
        found = vgraph.sampling.random_walk(self.hg, nodes.to(self.hg.idtype), metapath=self.metapath)[0].long()
        first = torch.tensor([int(self.local_to_global_nid[name][0]) for name in self.node_metapath], device="cpu")
        return torch.where(found < 0, found, found + first)

    def sample(self, indices: Tensor | Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs of nodes that are near each other on walks from some nodes, and nodes that are to be far.

        Args:
            indices: ids (walks,) of the path's first type.

        Returns:
            Numbers of nodes (pairs,), of those around them (pairs,), and of others (pairs, negative_size).
        """
        walks = self._walks(torch.as_tensor(indices))
        places, around = _places(walks.shape[1], self.window_size)
        u, v = walks[:, places].flatten(), walks[:, around].flatten()
        is_pair = (u >= 0) & (v >= 0)
        u, v = u[is_pair], v[is_pair]
        drawn = torch.multinomial(self.neg_prob, max(1, len(u) * self.negative_size), replacement=True)
        return u, v, drawn[: len(u) * self.negative_size].view(len(u), self.negative_size)

    def forward(self, pos_u: Tensor, pos_v: Tensor, neg_v: Tensor) -> Tensor:
        """How badly the rows tell nodes of a window from others.

        Args:
            pos_u: numbers of nodes (pairs,).
            pos_v: numbers of nodes around them (pairs,).
            neg_v: numbers of other nodes (pairs, negative_size).

        Returns:
            The loss, ().
        """
        rows = self.node_embed(pos_u)
        near = (rows * self.context_embed(pos_v)).sum(1).clamp(-10, 10)
        far = torch.einsum("pd,pnd->pn", rows, self.context_embed(neg_v)).clamp(-10, 10)
        return -(F.logsigmoid(near) + F.logsigmoid(-far).sum(1)).mean()
