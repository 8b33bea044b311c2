"""``dgl.transforms``: dense diffusion of an adjacency matrix, made sparse again, and features spread along edges.

Takes: graphs. Gives: graphs. Runs once per graph. Source: Gasteiger et al. 2019, Frasca et al. 2020 (SIGN).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

import vgraph
import vgraph.function as fn
from vgraph.compat.transforms import BaseTransform, GCNNorm
from vgraph.errors import FunctionError


class _Diffusion(BaseTransform, ABC):
    """A graph of the entries of a dense matrix that are not below ``eps``, or the ``avg_degree`` largest a node."""

    def __init__(self, eweight_name: str, eps: float | None, avg_degree: int) -> None:
        self.eweight_name, self.eps, self.avg_degree = eweight_name, eps, avg_degree

    @abstractmethod
    def spread(self, adjacency: Tensor) -> Tensor:
        """The dense matrix, (destinations, sources), of one like it."""

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        count, name = g.num_nodes(), self.eweight_name
        adjacency = torch.zeros(count, count, device=g.device)
        src, dst = (end.long() for end in g.edges())
        adjacency[dst, src] = g.edata[name] if name in g.edata else torch.ones(g.num_edges(), device=g.device)
        dense = self.spread(adjacency)
        dst, src = (dense >= self._least(dense)).nonzero().t()
        made = vgraph.graph((src.to(g.idtype), dst.to(g.idtype)), num_nodes=count)
        made.ndata.update(g.ndata)
        made.edata[name] = dense[dst, src]
        return made

    def _least(self, dense: Tensor) -> float:
        if self.eps is not None:
            return self.eps
        count = len(dense)
        if self.avg_degree > count:
            return float("-inf")
        return float(dense.flatten().sort(descending=True).values[self.avg_degree * count - 1])


class PPR(_Diffusion):
    """Personalised PageRank with the chance ``alpha`` to go back."""

    def __init__(
        self, alpha: float = 0.15, eweight_name: str = "w", eps: float | None = None, avg_degree: int = 5
    ) -> None:
        super().__init__(eweight_name, eps, avg_degree)
        self.alpha = alpha

    def spread(self, adjacency: Tensor) -> Tensor:
        identity = torch.eye(len(adjacency), device=adjacency.device)
        return self.alpha * torch.linalg.inv(identity - (1 - self.alpha) * adjacency)


class HeatKernel(_Diffusion):
    """The heat kernel at time ``t``."""

    def __init__(self, t: float = 2.0, eweight_name: str = "w", eps: float | None = None, avg_degree: int = 5) -> None:
        super().__init__(eweight_name, eps, avg_degree)
        self.t = t

    def spread(self, adjacency: Tensor) -> Tensor:
        return torch.linalg.matrix_exp(self.t * (adjacency - torch.eye(len(adjacency), device=adjacency.device)))


class GDC(_Diffusion):
    """Powers of the adjacency matrix, weighted by ``coefs``."""

    def __init__(
        self, coefs: Sequence[float], eweight_name: str = "w", eps: float | None = None, avg_degree: int = 5
    ) -> None:
        super().__init__(eweight_name, eps, avg_degree)
        self.coefs = coefs

    def spread(self, adjacency: Tensor) -> Tensor:
        power = torch.eye(len(adjacency), device=adjacency.device)
        whole = self.coefs[0] * power
        for factor in self.coefs[1:]:
            power = power @ adjacency
            whole = whole + factor * power
        return whole


class SIGNDiffusion(BaseTransform):
    """Features ``out_feat_name_1`` ... ``_k`` of the graph itself: ``in_feat_name`` spread 1, 2, ... ``k`` times.

    ``diffuse_op``: "raw" sums, "rw" averages, "gcn" weighs by degrees, "ppr" also goes back by ``alpha``.
    """

    def __init__(
        self,
        k: int,
        in_feat_name: str = "feat",
        out_feat_name: str = "out_feat",
        eweight_name: str | None = None,
        diffuse_op: str = "raw",
        alpha: float = 0.2,
    ) -> None:
        if diffuse_op not in ("raw", "rw", "gcn", "ppr"):
            raise FunctionError(f"diffuse_op is {diffuse_op!r}", cure='pass "raw", "rw", "gcn" or "ppr"')
        self.k, self.names, self.eweight_name = k, (in_feat_name, out_feat_name), eweight_name
        self.diffuse_op, self.alpha = diffuse_op, alpha

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        rows = first = g.ndata[self.names[0]]
        made: list[Tensor] = []
        over = g.local_var()  # which other threads do not see
        over.edata["w"] = self._weight(g)
        for _ in range(self.k):
            over.ndata["h"] = rows
            over.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "h"))
            rows = over.ndata["h"]
            rows = (1 - self.alpha) * rows + self.alpha * first if self.diffuse_op == "ppr" else rows
            made.append(rows)
        g.ndata.update({f"{self.names[1]}_{i + 1}": rows for i, rows in enumerate(made)})
        return g

    def _weight(self, g: vgraph.Graph) -> Tensor:
        if self.diffuse_op in ("gcn", "ppr"):
            name = self.eweight_name or "w"
            plain = g.local_var()
            if self.eweight_name is None:
                plain.edata.pop("w", None)
            return GCNNorm(name)(plain).edata[name]
        name = self.eweight_name
        weight = g.edata[name] if name is not None and name in g.edata else torch.ones(g.num_edges(), device=g.device)
        if self.diffuse_op == "raw":
            return weight
        dst = g.edges()[1].long()
        return weight / weight.new_zeros(g.num_nodes(), *weight.shape[1:]).index_add(0, dst, weight)[dst]
