"""What has a name of DGL takes DGL's arguments: names, places and defaults.

``names_1_1_3.json`` has the public names of six modules of DGL 1.1.3; ``signatures_1_1_3.json`` is what
``signatures.py`` printed with it, less the names that vgraph lacks.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import apart
from vgraph.compat.modules import lookup

FOLDER = Path(__file__).parent
PROJECT = FOLDER.parent.parent
NAMES: dict[str, list[str]] = json.loads((FOLDER / "names_1_1_3.json").read_text(encoding="utf-8"))
WANTED: dict[str, Any] = json.loads((FOLDER / "signatures_1_1_3.json").read_text(encoding="utf-8"))
OTHERWISE = {
    **dict.fromkeys(("dgl.DGLGraph", "dgl.DGLHeteroGraph", "dgl.dataloading.DGLGraph"), "arguments of DGL for itself"),
    **dict.fromkeys(("dgl.backend.cat", "dgl.backend.stack"), "dim has a default"),
    **dict.fromkeys(("dgl.backend.zeros", "dgl.backend.ones", "dgl.backend.full_1d"), "dtype and device have defaults"),
    "dgl.data.GINDataset": "self_loop has a default",
    "dgl.dataloading.DataLoader": "arguments for other processes and the GPU's memory come by name",
    "dgl.nn.EGTLayer": "None is a new ELU a layer, not one ELU for all",
    "dgl.nn.GraphormerLayer": "None is a new ReLU a layer, not one ReLU for all",
    **dict.fromkeys(("dgl.prop_nodes", "dgl.prop_edges"), "functions of a graph are given, not registered before"),
    **dict.fromkeys(("dgl.sampling.sample_neighbors", "g.sample_neighbors"), "no _dist_training"),
    "dgl.sampling.sample_etype_neighbors": "no _dist_training",
    **dict.fromkeys(("g.get_ntype_id", "g.get_etype_id"), "a type may be left out"),
}


@cache
def found() -> dict[str, Any]:
    names = [str(FOLDER / "signatures.py"), str(FOLDER / "signatures_1_1_3.json")]
    status, said = apart.run(["-m", "vgraph.compat", *names], {}, strict=True)
    assert status == 0, said
    return json.loads(said)


@pytest.mark.parametrize("module", sorted({name.removesuffix(".forward").rpartition(".")[0] for name in WANTED}))
def test_arguments_are_those_of_dgl(module: str) -> None:
    mine = found()
    compared = 0
    for name, wanted in WANTED.items():
        if name.removesuffix(".forward").rpartition(".")[0] == module and name not in OTHERWISE:
            assert mine[name][: len(wanted)] == wanted, name
            compared += 1
    assert compared


@pytest.mark.parametrize("module", list(NAMES))
def test_every_public_name_is_here_or_said_to_be_absent(module: str) -> None:
    page = (PROJECT / "docs" / "coming_from" / "dgl.md").read_text(encoding="utf-8")
    told = page[page.index("## What is absent") : page.index("## DGL's own tests")]
    for name in NAMES[module]:
        try:
            lookup(module, name)
        except LookupError:
            assert f"`{name}`" in told, f"{module}.{name} is neither here nor on the page"
        else:
            assert f"`{name}`" not in told, f"{module}.{name} is here, and said to be absent"


def test_what_is_otherwise_is_so() -> None:
    for name in OTHERWISE:
        assert found()[name][: len(WANTED[name])] != WANTED[name], name
