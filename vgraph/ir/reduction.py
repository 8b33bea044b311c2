"""Loops that reduce: in what accumulators add, and how neighbours lie.

Takes: nothing (plain values). Gives: what a loop over modes is generated for. Runs once per function.
Source: Koç, multi-mode tensor reduction on GPUs; with pointwise producers computed inside the loop.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

ACCUMULATED = {  # sums of short numbers are kept in longer ones
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}


def kind_of(pace: int, itemsize: int) -> str:
    """What neighbours along the innermost mode are to each other, which is compiled in."""
    return "same" if pace == 0 else "unit" if pace == itemsize else "strided"


@dataclass(frozen=True)
class DeviceShape:
    """What a kernel on a GPU is generated for; sizes, strides and addresses are its arguments."""

    kinds: tuple[str, ...]  # of each operand along the innermost mode
    num_kept: int
    num_reduced: int
    columns: bool  # lanes along kept elements; else along a slice
    lanes: int  # elements that a thread loads at once
    team: int  # threads that share a slice; of columns: that lie side by side

    @property
    def num_words(self) -> int:
        """Arguments of the kernel: 64-bit integers all."""
        operands = len(self.kinds)
        return 5 + operands + self.num_kept * (4 + operands) + self.num_reduced * (3 + operands)
