"""Vertex functions as on a GPU: loops over frontiers that launch kernels, beside torch's operators."""

from __future__ import annotations

import pytest
import torch

from tests.cuda import shim
from tests.runtime.engine_models import GRAPHS, MODELS, PLAIN, Gates, features, outcome, outcome_with
from vgraph.fusion.cpu import build

pytestmark = [
    pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler"),
    pytest.mark.usefixtures("launches"),
]


@pytest.mark.parametrize("name", [*MODELS, "gates"])
def test_frontiers_launch_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs and all gradients; the same compiled Programs on every graph."""
    model = (MODELS | {"gates": Gates})[name]().double()
    for graph in GRAPHS:
        g = GRAPHS[graph]()
        x = features(g)
        wanted = outcome_with(monkeypatch, PLAIN, model, g, x)
        with shim.in_place_of_cpu():
            got = outcome(model, g, x)
        assert shim.launched, "no kernel ran"
        for one, two in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)
