"""``import vgraph`` loads vgraph, not what some of its functions need; that loads when they are called."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import PROJECT
from vgraph.late import late

LATE = (
    "scipy", "networkx", "sympy", "matplotlib", "tqdm", "pandas", "cupy", "unittest.mock",
    "torch._dynamo", "torch._inductor", "torch._decomp", "torch._subclasses.fake_tensor", "torch.fx.experimental",
    "torch.distributed.tensor", "torch.distributed.checkpoint", "torch.distributed.device_mesh",
    "vgraph.nn", "vgraph.data", "vgraph.sampling", "vgraph.compat", "vgraph.cli", "vgraph.partition",
    "vgraph.api.dense.parallel", "vgraph.api.dense.place",
)  # fmt: skip

_LOADED = """
import json, sys
import torch
before = set(sys.modules)
import vgraph
print(json.dumps(sorted(set(sys.modules) - before)))
"""


_TRAINED = """
import json, sys
import torch, vgraph
g = vgraph.graph(([0, 1, 2], [2, 2, 1]))
g.ndata["h"] = torch.ones(3, 2, requires_grad=True)
g.update_all(lambda edges: {"m": edges.src["h"].exp()}, lambda nodes: {"o": nodes.mailbox["m"].sum(1)})
g.ndata["o"].sum().backward()
print(json.dumps(sorted(sys.modules)))
"""


def loaded_by(program: str) -> list[str]:
    path = os.pathsep.join([str(PROJECT), str(PROJECT / "kernels")])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    return json.loads(done.stdout)


def test_what_is_not_loaded() -> None:
    """Beside what ``import torch`` loads."""
    loaded = loaded_by(_LOADED)
    wrong = [name for name in loaded for other in LATE if name == other or name.startswith(f"{other}.")]
    assert not wrong


def test_what_a_first_training_step_does_not_load() -> None:
    """Each of these takes longer than the step and its compilation together."""
    loaded = loaded_by(_TRAINED)
    assert "vgraph.compiler" in loaded
    assert not {"torch._dynamo", "torch._inductor", "sympy", "networkx"} & set(loaded)


def test_layers_do_not_load_the_compiler() -> None:
    loaded = loaded_by("import json, sys, torch, vgraph.nn; print(json.dumps(sorted(sys.modules)))")
    assert "vgraph.nn.sequential" in loaded
    assert not {"torch._dynamo", "torch._inductor", "sympy"} & set(loaded)


def test_late_names_are_the_modules_own() -> None:
    import vgraph
    from vgraph.api.dense import parallel, place

    assert vgraph.parallelize is parallel.parallelize
    assert (vgraph.place, vgraph.Placement) == (place.place, place.Placement)
    assert all(hasattr(vgraph, name) for name in vgraph.__all__)
    with pytest.raises(AttributeError, match="module 'vgraph' has no attribute 'pluck'"):
        vgraph.pluck  # noqa: B018 - reading it is the test


def test_a_late_module() -> None:
    """It loads with the first attribute that is read, and keeps what was read."""
    program = "import json, sys; from vgraph.late import late; late('colorsys'); print(json.dumps(list(sys.modules)))"
    assert "colorsys" not in loaded_by(program)
    module = late("colorsys")
    assert module.rgb_to_hsv is sys.modules["colorsys"].rgb_to_hsv is vars(module)["rgb_to_hsv"]
    with pytest.raises(AttributeError, match="module 'colorsys' has no attribute 'mix'"):
        module.mix  # noqa: B018 - reading it is the test
