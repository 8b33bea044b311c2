"""PyG's layers on vgraph's kernels."""

from __future__ import annotations

import vgraph
from sides import pyg_layers
from sides.steps import Step
from sides.workloads import Data


def build(data: Data) -> Step:
    return pyg_layers.build(data, vgraph.accelerate)
