"""pyg.py's side of PyG under torch.compile: what by_pyg_eager runs, each layer or model compiled."""

from __future__ import annotations

import torch

from sides import pyg_layers
from sides.steps import Step
from sides.workloads import Data


def build(data: Data) -> Step:
    return pyg_layers.build(data, torch.compile)
