"""Widths: how long the vectors are that a kernel's text computes in.

Takes: what torch says of this processor. Gives: bytes. Asked once per kernel.
GCC takes sums and products of vectors that are longer than the processor's in as many parts as it needs, but compares
them, and chooses between them, number by number: with AVX2 a gated sum over edges took 3.7 times as long in vectors
of 64 bytes as in those of 32.
"""

from __future__ import annotations

import torch

_BYTES = {"AVX512": 64, "AVX2": 32}
_LEAST = 16  # of SSE2 and Neon


def vector_bytes() -> int:
    """Bytes of this processor's vectors."""
    return _BYTES.get(torch.backends.cpu.get_cpu_capability(), _LEAST)


def numbers_of(itemsize: int) -> int:
    """How many numbers of so many bytes each one vector holds."""
    return vector_bytes() // itemsize
