"""What a graph transformer adds for degrees, paths, distances and places: with DGL's names.

Takes: degrees, shortest paths, distances, positions. Gives: rows of vertices, biases of pairs. Runs at every call.
Source: Ying et al. 2021, section 3.1 (Graphormer); Shi et al. 2022 (three dimensions).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vgraph.arguments import COUNT, POSITIVE, checked
from vgraph.errors import FeatureError
from vgraph.nn.inputs import check_name, check_width


class DegreeEncoder(nn.Module):
    """A learned row for every degree.

    Args:
        max_degree: the largest degree that has a row of its own; degree 0 has zeros.
        embedding_dim: the width of a row.
        direction: "in" or "out": of one kind of degrees; "both": the sum of a row for either.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        NameLookupError: an unknown direction.
        FeatureError: degrees have other dims.

    Source: Ying et al. 2021, equation 5.

    Example:
        >>> import torch
        >>> from vgraph.nn import DegreeEncoder
        >>> DegreeEncoder(5, 8)(torch.ones(2, 3, 4, dtype=torch.int64)).shape
        torch.Size([3, 4, 8])
    """

    @checked(max_degree=COUNT, embedding_dim=COUNT)
    def __init__(self, max_degree: int, embedding_dim: int, direction: str = "both") -> None:
        super().__init__()
        self.direction = check_name(direction, ("in", "out", "both"), "direction")
        self.max_degree = max_degree
        sizes = max_degree + 1, embedding_dim
        if direction == "both":
            self.encoder1, self.encoder2 = nn.Embedding(*sizes, padding_idx=0), nn.Embedding(*sizes, padding_idx=0)
        else:
            self.encoder = nn.Embedding(*sizes, padding_idx=0)

    def forward(self, degrees: Tensor) -> Tensor:
        """The rows of degrees.

        Args:
            degrees: (graphs, vertices), graphs filled up with 0 to one size; for "both" (2, graphs, vertices): in- and
                out-degrees.

        Returns:
            (graphs, vertices, embedding_dim).

        Raises:
            FeatureError: degrees have other dims.
        """
        wanted = 3 if self.direction == "both" else 2
        if degrees.dim() != wanted or (wanted == 3 and len(degrees) != 2):
            shape = "(2, graphs, vertices)" if wanted == 3 else "(graphs, vertices)"
            raise FeatureError(f"degrees have shape {tuple(degrees.shape)}", cure=f"give {shape}")
        degrees = degrees.clamp(0, self.max_degree)
        if self.direction == "both":
            return self.encoder1(degrees[0]) + self.encoder2(degrees[1])
        return self.encoder(degrees)


class PathEncoder(nn.Module):
    """A bias of every pair of vertices: the edges on a shortest path, each times a vector of its place, averaged.

    Args:
        max_len: the longest path that is looked at.
        feat_dim: the width of an edge's row.
        num_heads: how many biases a pair has.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.

    Source: Ying et al. 2021, equation 7.

    Example:
        >>> import torch
        >>> from vgraph.nn import PathEncoder
        >>> dist, paths = torch.ones(1, 3, 3), torch.ones(1, 3, 3, 2, 4)
        >>> PathEncoder(2, 4, num_heads=5)(dist, paths).shape
        torch.Size([1, 3, 3, 5])
    """

    @checked(max_len=POSITIVE, feat_dim=COUNT, num_heads=POSITIVE)
    def __init__(self, max_len: int, feat_dim: int, num_heads: int = 1) -> None:
        super().__init__()
        self.max_len, self.feat_dim, self.num_heads = max_len, feat_dim, num_heads
        self.embedding_table = nn.Embedding(max_len * num_heads, feat_dim)

    def forward(self, dist: Tensor, path_data: Tensor) -> Tensor:
        """The biases.

        Args:
            dist: the number of edges of each shortest path, (graphs, vertices, vertices); -1 where there is none.
            path_data: the rows of its edges, (graphs, vertices, vertices, max_len, feat_dim), filled up with zeros.

        Returns:
            (graphs, vertices, vertices, num_heads).

        Raises:
            ShapeError: rows are of another width than the layer's.
        """
        check_width(self, path_data, self.feat_dim, "edges' rows")
        vectors = self.embedding_table.weight.view(self.max_len, self.num_heads, self.feat_dim)
        lengths = dist.clamp(1, self.max_len).unsqueeze(-1)
        return torch.einsum("bxyld,lhd->bxyh", path_data, vectors) / lengths


class SpatialEncoder(nn.Module):
    """A learned bias of every pair of vertices by how far they are apart.

    Args:
        max_dist: the largest distance that has a bias of its own; -1, no path, has zeros.
        num_heads: how many biases a pair has.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.

    Source: Ying et al. 2021, equation 6.

    Example:
        >>> import torch
        >>> from vgraph.nn import SpatialEncoder
        >>> SpatialEncoder(3, num_heads=2)(torch.tensor([[[0, 9], [-1, 0]]])).shape
        torch.Size([1, 2, 2, 2])
    """

    @checked(max_dist=COUNT, num_heads=POSITIVE)
    def __init__(self, max_dist: int, num_heads: int = 1) -> None:
        super().__init__()
        self.max_dist, self.num_heads = max_dist, num_heads
        self.embedding_table = nn.Embedding(max_dist + 2, num_heads, padding_idx=0)

    def forward(self, dist: Tensor) -> Tensor:
        """The biases.

        Args:
            dist: int64 (graphs, vertices, vertices), steps from one to the other; -1 where there is no path.

        Returns:
            (graphs, vertices, vertices, num_heads).
        """
        return self.embedding_table(dist.clamp(-1, self.max_dist) + 1)


class SpatialEncoder3d(nn.Module):
    """A bias of every pair of points: Gaussians of their distance, scaled and moved by types, through two layers.

    Args:
        num_kernels: how many Gaussians.
        num_heads: how many biases a pair has.
        max_node_type: how many types of vertices there are.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.

    Source: Shi et al. 2022, section 2 (3D channels); Shuaibi et al. 2021.

    Example:
        >>> import torch
        >>> from vgraph.nn import SpatialEncoder3d
        >>> SpatialEncoder3d(4, num_heads=2)(torch.rand(1, 3, 3)).shape
        torch.Size([1, 3, 3, 2])
    """

    @checked(num_kernels=POSITIVE, num_heads=POSITIVE, max_node_type=POSITIVE)
    def __init__(self, num_kernels: int, num_heads: int = 1, max_node_type: int = 100) -> None:
        super().__init__()
        self.num_kernels, self.num_heads, self.max_node_type = num_kernels, num_heads, max_node_type
        self.means, self.stds = nn.Parameter(torch.empty(num_kernels)), nn.Parameter(torch.empty(num_kernels))
        self.linear_layer_1, self.linear_layer_2 = (
            nn.Linear(num_kernels, num_kernels),
            nn.Linear(num_kernels, num_heads),
        )
        self.gamma = nn.Embedding(2 * max_node_type + 3, 1, padding_idx=0)
        self.beta = nn.Embedding(2 * max_node_type + 3, 1, padding_idx=0)
        for drawn in (self.means, self.stds):
            nn.init.uniform_(drawn, 0, 3)
        nn.init.ones_(self.gamma.weight)
        nn.init.zeros_(self.beta.weight)

    def forward(self, coord: Tensor, node_type: Tensor | None = None) -> Tensor:
        """The biases.

        Args:
            coord: positions, (graphs, vertices, 3).
            node_type: int64 (graphs, vertices) from 0 to max_node_type - 1; None: there are no types.

        Returns:
            (graphs, vertices, vertices, num_heads).
        """
        apart = torch.cdist(coord, coord).unsqueeze(-1)
        scale, shift = (self._of_types(table, coord, node_type) for table in (self.gamma, self.beta))
        std = self.stds.abs() + 0.01
        bells = torch.exp(-0.5 * ((scale * apart + shift - self.means) / std) ** 2) / (math.sqrt(2 * math.pi) * std)
        return self.linear_layer_2(F.gelu(self.linear_layer_1(bells)))

    def _of_types(self, table: nn.Embedding, coord: Tensor, node_type: Tensor | None) -> Tensor:
        """A number for every pair: one of the first end's type and one of the second's."""
        if node_type is None:  # row 0 is for pairs without types
            return 2 * table(torch.zeros(1, 1, 1, dtype=torch.int64, device=coord.device))
        return table(node_type + 2).unsqueeze(2) + table(node_type + self.max_node_type + 3).unsqueeze(1)
