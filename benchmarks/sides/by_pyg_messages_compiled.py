"""message_passing.py's side of PyG under torch.compile: what by_pyg runs, each model or function as one graph."""

from __future__ import annotations

import torch

from sides import by_pyg
from sides.steps import Step
from sides.workloads import Data


def build(data: Data) -> Step:
    return by_pyg.build(data, torch.compile)
