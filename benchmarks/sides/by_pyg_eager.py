"""PyG's layers by itself."""

from __future__ import annotations

from sides import pyg_layers
from sides.steps import Step
from sides.workloads import Data


def build(data: Data) -> Step:
    return pyg_layers.build(data, lambda module: module)
