"""What is partitioned: the models of the Tofu paper at their batches, small stand-ins, published figures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from models import build
from models.lstm import StackedLSTM
from models.resnet import WideResNet
from models.transformer import Llama

from vgraph.capture.step.capture_step import capture_step
from vgraph.ir.step import TrainingStep
from vgraph.partition.accounting.machines import MACHINES

GIB = 2**30
PAPER = MACHINES["paper"]
BATCHES = {"rnn-4-8k": 512, "rnn-10-8k": 128, "wresnet-152-10": 8, "llama-8b": 8}
SEARCHED = ("wresnet-152-10", "rnn-10-8k", "llama-8b")
PUBLISHED_SEARCH = {"wresnet-152-10": 8.3, "rnn-10-8k": 66.6}
PUBLISHED_PLAIN = {"wresnet-152-10": "8 h", "rnn-10-8k": "over 24 h"}
# Samples a second of the thesis' table 3.3, by method.
PUBLISHED_SAMPLES = {
    "rnn-6-4k": {"tofu": 210, "operator placement": 107},
    "rnn-8-4k": {"tofu": 154, "operator placement": 95},
    "rnn-10-4k": {"tofu": 122, "operator placement": 59},
}
# What the paper says of figures whose numbers it does not print.
PUBLISHED_WORDS = {
    "wresnet-50-4": "small batch 12 % faster than Tofu",
    "wresnet-101-4": "small batch 15 % faster than Tofu",
}


def batch_of(name: str) -> int:
    """The global batch of a model."""
    if name in BATCHES:
        return BATCHES[name]
    size = name.rsplit("-", 1)[1]
    if name.startswith("rnn"):
        return {"4k": 512, "6k": 256, "8k": 128}[size]
    return {"4": 64, "6": 32, "8": 16, "10": 8}.get(size, 8) if name.startswith("wresnet") else 8


def sgd(parameters: Sequence[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def captured(model: torch.nn.Module, inputs: tuple[Any, ...]) -> TrainingStep:
    return capture_step(model, inputs, sgd)


def small(name: str, layers: int = 2) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """A reduced model of a kind, on the meta device."""
    with torch.device("meta"):
        if name.startswith("rnn"):
            return StackedLSTM(layers, 64), (torch.zeros(3, 32, 64), torch.zeros(3, 32, 64))
        if name == "llama":
            ids = torch.zeros(4, 64, dtype=torch.long)
            return Llama(512, 128, 8, 4, 256, layers), (ids, ids)
        images, labels = torch.zeros(8, 3, 32, 32), torch.zeros(8, dtype=torch.long)
        return WideResNet(50, 1, 8, (1, layers, 1, 1)), (images, labels)


@lru_cache(1)  # sections of a short run take the same one
def step_of(name: str, smoke: bool, batch: int | None = None) -> TrainingStep:
    return captured(*(small(name) if smoke else build(name, batch or batch_of(name))))


def samples(name: str, smoke: bool) -> int:
    return 32 if smoke else batch_of(name)
