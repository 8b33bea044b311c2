"""LapPosEncoder: places in a graph as rows, from eigenvectors of its Laplacian, with DGL's names.

Takes: eigenvalues and eigenvectors. Gives: one row a vertex. Runs at every call.
Source: Kreuzer et al. 2021, section 3.3; Zaheer et al. 2017 (sets).
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from vgraph.arguments import COUNT, POSITIVE, checked
from vgraph.nn.inputs import check_name


class LapPosEncoder(nn.Module):
    """A vertex's entries in the first eigenvectors, with their eigenvalues, read as a set.

    Args:
        model_type: what reads the set: "Transformer" or "DeepSet".
        num_layer: how many layers it has.
        k: how many eigenvectors there are.
        dim: the width of a result's row.
        n_head: how many heads the Transformer has.
        batch_norm: normalise what is read.
        num_post_layer: how many layers follow the sum over the set.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        NameLookupError: an unknown ``model_type``.

    Source: Kreuzer et al. 2021, section 3.3 (LPE); DGL 1.1, ``dgl.nn.LapPosEncoder``.

    Example:
        >>> import torch
        >>> from vgraph.nn import LapPosEncoder
        >>> LapPosEncoder("DeepSet", 2, 3, dim=8)(torch.rand(5, 3), torch.rand(5, 3)).shape
        torch.Size([5, 8])
    """

    @checked(num_layer=POSITIVE, k=POSITIVE, dim=POSITIVE, n_head=POSITIVE, num_post_layer=COUNT)
    def __init__(
        self,
        model_type: str,
        num_layer: int,
        k: int,
        dim: int,
        n_head: int = 1,
        batch_norm: bool = False,
        num_post_layer: int = 0,
    ) -> None:
        super().__init__()
        self.model_type = check_name(model_type, ("Transformer", "DeepSet"), "model_type")
        self.linear, wide = nn.Linear(2, dim), [2 * dim]
        if model_type == "Transformer":
            layer = nn.TransformerEncoderLayer(d_model=dim, nhead=n_head, batch_first=True)
            self.pe_encoder = nn.TransformerEncoder(layer, num_layers=num_layer)
        elif num_layer == 1:
            self.pe_encoder = nn.Sequential(nn.ReLU())
        else:
            self.linear = nn.Linear(2, 2 * dim)
            self.pe_encoder = nn.Sequential(nn.ReLU(), *_layers(*wide * (num_layer - 1), dim))
        self.raw_norm = nn.BatchNorm1d(k) if batch_norm else None
        after = _layers(dim, *wide * (num_post_layer - 1), dim) if num_post_layer > 0 else []
        self.post_mlp = nn.Sequential(*after) if after else None

    def forward(self, eigvals: Tensor, eigvecs: Tensor) -> Tensor:
        """The rows.

        Args:
            eigvals: (vertices, k), the eigenvalues of the vertex's graph; NaN where it has fewer.
            eigvecs: (vertices, k), the vertex's entries in their eigenvectors.

        Returns:
            (vertices, dim).
        """
        pairs = torch.stack([eigvecs, eigvals], 2).to(self.linear.weight.dtype)
        missing = pairs[:, :, 1].isnan()
        pairs = pairs.masked_fill(pairs.isnan(), 0)
        pairs = pairs if self.raw_norm is None else self.raw_norm(pairs)
        rows = self.linear(pairs)
        if self.model_type == "Transformer":
            rows = self.pe_encoder(src=rows, src_key_padding_mask=missing)
        else:
            rows = self.pe_encoder(rows)
        rows = rows.masked_fill(missing.unsqueeze(-1), 0).sum(1)
        return rows if self.post_mlp is None else self.post_mlp(rows)


def _layers(*widths: int) -> list[nn.Module]:
    """Linear maps from each width to the next, with a relu behind each."""
    return [layer for width, to in pairwise(widths) for layer in (nn.Linear(width, to), nn.ReLU())]
