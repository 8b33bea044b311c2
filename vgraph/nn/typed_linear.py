"""TypedLinear: a linear map for every type of row, with DGL's names.

Takes: rows and their types. Gives: rows. Runs at every call.
Source: Schlichtkrull et al. 2018, section 2.2 (bases and blocks).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import vgraph
from vgraph.arguments import POSITIVE, checked
from vgraph.errors import FunctionError, GraphError
from vgraph.nn.inputs import check_width

REGULARIZERS = ("basis", "bdd")


class TypedLinear(nn.Module):
    """Each row times the matrix of its type; all types in one batched product.

    Args:
        in_size: the width of a row.
        out_size: the width of a result's row.
        num_types: how many types.
        regularizer: None: a matrix a type; "basis": sums of ``num_bases`` matrices; "bdd": block-diagonal matrices of
            ``num_bases`` blocks.
        num_bases: how many bases or blocks; None without a regularizer.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FunctionError: an unknown regularizer, or one without ``num_bases``.
        GraphError: ``num_bases`` does not divide the sizes of block-diagonal matrices.

    Source: Schlichtkrull et al. 2018, equations 3 and 4.

    Example:
        >>> import torch
        >>> from vgraph.nn import TypedLinear
        >>> TypedLinear(5, 2, num_types=3)(torch.ones(4, 5), torch.tensor([0, 2, 2, 1])).shape
        torch.Size([4, 2])
    """

    @checked(in_size=POSITIVE, out_size=POSITIVE, num_types=POSITIVE, num_bases=POSITIVE.or_none())
    def __init__(
        self, in_size: int, out_size: int, num_types: int, regularizer: str | None = None, num_bases: int | None = None
    ) -> None:
        super().__init__()
        self.in_size, self.out_size, self.num_types = in_size, out_size, num_types
        self.regularizer, self.num_bases = regularizer, num_bases
        bases = _check(in_size, out_size, regularizer, num_bases)
        self.submat_in, self.submat_out = (size // max(bases, 1) for size in (in_size, out_size))
        blocks = (num_types, bases * self.submat_in * self.submat_out)
        whole = (bases or num_types, in_size, out_size)
        self.W = nn.Parameter(torch.empty(blocks if regularizer == "bdd" else whole))
        if regularizer == "basis":
            self.coeff = nn.Parameter(torch.empty(num_types, bases))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weights uniformly below 1 over the root of the fan-in.

        Coefficients of bases are drawn by Glorot, with the gain of relu.
        """
        limit = (self.submat_in if self.regularizer == "bdd" else self.in_size) ** -0.5
        nn.init.uniform_(self.W, -limit, limit)
        if self.regularizer == "basis":
            nn.init.xavier_uniform_(self.coeff, gain=nn.init.calculate_gain("relu"))

    def get_weight(self) -> Tensor:
        """The matrices of all types; blocks as they are stored.

        Returns:
            (num_types, in_size, out_size); for "bdd" (num_types, blocks * in * out).
        """
        if self.regularizer != "basis":
            return self.W
        return (self.coeff @ self.W.flatten(1)).view(self.num_types, self.in_size, self.out_size)

    def get_matrices(self) -> Tensor:
        """The matrices of all types; blocks apart.

        Returns:
            (num_types, in_size, out_size); for "bdd" (num_types, blocks, in, out).
        """
        weight = self.get_weight()
        return weight if weight.ndim == 3 else weight.view(self.num_types, -1, self.submat_in, self.submat_out)

    @checked()
    def forward(self, x: Tensor, x_type: Tensor, sorted_by_type: bool = False) -> Tensor:
        """Every row through the matrix of its type.

        Args:
            x: (rows, in_size).
            x_type: (rows,) from 0 to num_types - 1.
            sorted_by_type: rows lie type by type.

        Returns:
            (rows, out_size).

        Raises:
            FeatureError: types are outside, or not one a row.
            ShapeError: rows are of another width than the layer's.
        """
        check_width(self, x, self.in_size)
        if self.regularizer == "bdd":
            blocks = self.get_matrices()
            parts = x.unflatten(1, (-1, self.submat_in)).unbind(1)
            made = (vgraph.ops.gather_mm(p, blocks[:, i], idx_b=x_type) for i, p in enumerate(parts))
            return torch.cat(list(made), 1)
        if sorted_by_type:
            lengths = torch.bincount(x_type, minlength=self.num_types)
            return vgraph.ops.segment_mm(x, self.get_weight(), lengths)
        return vgraph.ops.gather_mm(x, self.get_weight(), idx_b=x_type)

    def extra_repr(self) -> str:
        """What ``repr`` shows of the layer.

        Returns:
            Its widths, the number of types and the regularizer.
        """
        shown = f"in_size={self.in_size}, out_size={self.out_size}, num_types={self.num_types}"
        return shown + (f", regularizer={self.regularizer}, num_bases={self.num_bases}" if self.regularizer else "")


def _check(in_size: int, out_size: int, regularizer: str | None, num_bases: int | None) -> int:
    """The number of bases or blocks; 0 where there are none."""
    if regularizer is None:
        return 0
    if regularizer not in REGULARIZERS:
        raise FunctionError(f"there is no regularizer {regularizer!r}", cure='one of "basis", "bdd", or None')
    if num_bases is None:
        raise FunctionError(f"{regularizer} without num_bases", cure="say how many bases or blocks there are")
    if regularizer == "bdd" and (in_size % num_bases or out_size % num_bases):
        fact = f"{in_size} and {out_size} are not both divisible into {num_bases} blocks"
        raise GraphError(fact, cure="choose sizes that are")
    return num_bases
