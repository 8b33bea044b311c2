"""Heads of attention: how their parameters are made and their rows are laid out.

Takes: widths, rows. Gives: parameters, rows by head. Runs once per layer. Every call.
Source: Velickovic et al. 2018, section 2.1; Glorot and Bengio 2010.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import vgraph
from vgraph.nn.hooks import is_plain
from vgraph.nn.propagate import Finish


def make_head_vector(num_heads: int, width: int) -> nn.Parameter:
    """One vector a head, (1, num_heads, width), not yet initialised."""
    return nn.Parameter(torch.empty(1, num_heads, width))


def init_glorot(layer: nn.Module, *order: str) -> None:
    """Weights normal with the gain of relu, drawn in this order where they are there; biases of linear maps zero."""
    gain = nn.init.calculate_gain("relu")
    known = dict(layer.named_parameters())
    for name in order:
        for full in (name, f"{name}.weight"):
            if full in known:
                nn.init.xavier_normal_(known[full], gain=gain)
        if f"{name}.bias" in known:
            nn.init.zeros_(known[f"{name}.bias"])


def is_linear(fc: nn.Module) -> bool:
    """Whether a map is the product with its weight, and no hook, parametrization or method of its own changes that."""
    return type(fc) is nn.Linear and is_plain(fc)


def mapped_by(fc: nn.Module, rows: Tensor, num_heads: int) -> Tensor:
    """(..., in) through a linear map, (..., num_heads, width)."""
    found = vgraph.linear(rows, fc.weight, fc.bias) if isinstance(fc, nn.Linear) and is_linear(fc) else fc(rows)
    return split_heads(found, num_heads)


def by_head(vectors: Tensor) -> Tensor:
    """(1, num_heads, width) as (num_heads * width, num_heads): each column has one head's vector in its rows."""
    return torch.diag_embed(vectors[0].t()).transpose(0, 1).flatten(0, 1)


def split_heads(rows: Tensor, num_heads: int) -> Tensor:
    """(..., num_heads * width) as (..., num_heads, width)."""
    return rows.unflatten(-1, (num_heads, -1))


def residual_rows(res_fc: nn.Module | None, own: Tensor, width: int) -> tuple[Tensor, ...]:
    """What the receivers hold, through the layer's map, by head; nothing where the layer has none."""
    return () if res_fc is None else (res_fc(own).unflatten(-1, (-1, width)),)


def finish_of_heads(
    bias: Tensor | None, activation: Callable[[Tensor], Tensor] | None, dtype: torch.dtype | None = None
) -> Finish:
    """What receivers keep of their sums by head, as ``dtype``: with the residual, if there is one, and the bias."""

    def finish(rows: Tensor, *residual: Tensor) -> Tensor:
        rows = rows if dtype is None else rows.to(dtype)
        for more in residual:
            rows = rows + more
        if bias is not None:
            rows = rows + bias.view(rows.shape[-2:])
        return rows if activation is None else activation(rows)

    return finish
