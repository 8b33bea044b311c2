"""PyG's layers, and edges to try them on; where PyG is not installed, a file of tests that imports this is skipped."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG's import uses what torch has deprecated
        import torch_geometric.nn as pyg
except ImportError:
    pytest.skip("torch_geometric is not installed", allow_module_level=True)

__all__ = ["E", "F", "N", "edges", "pyg"]

N, E, F = 30, 100, 8


def edges() -> Tensor:
    return torch.randint(0, N, (2, E))
