"""The benchmark models are the published ones: by their parameters and by the paper's memory table."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from models import BENCHMARK, PUBLISHED_GIB, build

PARAMETERS = {
    "vgg-16": 138_357_544, "inception-v3": 27_161_264, "densenet-121": 7_978_856,
    "wresnet-152-1": 60_192_808, "llama-8b": 8_030_261_248,
}  # fmt: skip
OFF = {"wresnet-50-4": 4.29, "rnn-8-6k": 25.3}  # what the published line of sizes gives there


def count(name: str) -> int:
    return sum(p.numel() for p in build(name)[0].parameters())


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name: str) -> None:
    assert count(name) == PARAMETERS[name]


def test_memory_of_weights_gradients_history() -> None:
    for name in BENCHMARK:
        published = OFF.get(name, PUBLISHED_GIB[name])
        assert 3 * 4 * count(name) / 2**30 == pytest.approx(published, rel=0.02), name
