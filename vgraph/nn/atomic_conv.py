"""AtomicConv: atoms' neighbours by kind and by radial filters of their distance, with DGL's names.

Takes: a graph of atoms, their numbers, distances. Gives: one row an atom. Runs at every call.
Source: Gomes, Ramsundar, Feinberg and Pande 2017, section 2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

import vgraph
from vgraph.nn.inputs import check_graph, is_without_edges


class RadialPooling(nn.Module):
    """Gaussians of a distance that fade to 0 at a cutoff: one number a filter."""

    def __init__(self, interaction_cutoffs: Tensor, rbf_kernel_means: Tensor, rbf_kernel_scaling: Tensor) -> None:
        super().__init__()
        self.interaction_cutoffs = nn.Parameter(interaction_cutoffs.reshape(-1, 1, 1))
        self.rbf_kernel_means = nn.Parameter(rbf_kernel_means.reshape(-1, 1, 1))
        self.rbf_kernel_scaling = nn.Parameter(rbf_kernel_scaling.reshape(-1, 1, 1))

    def forward(self, distances: Tensor) -> Tensor:
        """(edges, 1) distances to (edges, filters)."""
        cutoffs, means, scaling = (p.flatten() for p in self.parameters())
        fading = 0.5 * (torch.cos(math.pi * distances / cutoffs) + 1)
        bells = torch.exp(-scaling * (distances - means) ** 2)
        return torch.where(distances <= cutoffs, bells * fading, torch.zeros_like(fading))


class AtomicConv(nn.Module):
    """Sums of radial filters over an atom's neighbours, apart for each kind of neighbour.

    Args:
        interaction_cutoffs: (filters,), the distances beyond which nothing is seen; they are learned, as are the
            other two.
        rbf_kernel_means: (filters,), the middles of the Gaussians.
        rbf_kernel_scaling: (filters,), how narrow they are.
        features_to_use: (kinds,), the atomic numbers that count as kinds; None: the feature itself is summed.

    Source: Gomes et al. 2017, section 2 (radial pooling).

    Example:
        >>> import torch, vgraph
        >>> from vgraph.nn import AtomicConv
        >>> layer = AtomicConv(torch.ones(2) * 3, torch.ones(2), torch.ones(2), torch.tensor([6.0, 8.0]))
        >>> g = vgraph.graph(([0, 1], [1, 0]))
        >>> layer(g, torch.tensor([[6.0], [8.0]]), torch.ones(2, 1)).shape
        torch.Size([2, 4])
    """

    features_to_use: nn.Parameter | None

    def __init__(
        self,
        interaction_cutoffs: Tensor,
        rbf_kernel_means: Tensor,
        rbf_kernel_scaling: Tensor,
        features_to_use: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.radial_pooling = RadialPooling(interaction_cutoffs, rbf_kernel_means, rbf_kernel_scaling)
        self.num_channels = 1 if features_to_use is None else len(features_to_use)
        kinds = None if features_to_use is None else nn.Parameter(features_to_use, requires_grad=False)
        self.register_parameter("features_to_use", kinds)

    def forward(self, graph: vgraph.Graph, feat: Tensor, distances: Tensor) -> Tensor:
        """The sums, kind by kind.

        Args:
            graph: a graph with one type of nodes and edges.
            feat: (vertices, 1), atomic numbers.
            distances: (edges, 1), between the ends of every edge.

        Returns:
            (vertices, kinds * filters).

        Raises:
            FunctionError: it is called without a graph.
        """
        check_graph(self, graph)
        if self.features_to_use is not None:
            feat = torch.eq(feat, self.features_to_use).to(feat.dtype)
        graph = graph.local_var()  # which other threads do not see
        graph.ndata["h"], graph.edata["d"] = feat, distances.to(feat.dtype)
        if is_without_edges(graph):
            filters = self.radial_pooling.rbf_kernel_means.numel()
            return feat.new_zeros(len(feat), feat.shape[1] * filters)
        graph.update_all(self._message, lambda nodes: {"h": nodes.mailbox["m"].sum(1)})
        return graph.ndata["h"].flatten(1)

    def _message(self, edges: vgraph.EdgeBatch) -> dict[str, Tensor]:
        return {"m": edges.src["h"].unsqueeze(2) * self.radial_pooling(edges.data["d"]).unsqueeze(1)}
