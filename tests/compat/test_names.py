"""Every name that programs call does what it does in DGL 1.1.3, and the table of names is true.

``dgl_1_1_3.json`` is what ``checks.py`` printed with DGL 1.1.3 in place of vgraph.
"""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import apart
from vgraph.compat.ranked import BEYOND, COUNTS, NAMES, NEXT, table, where

FOLDER = Path(__file__).parent
PROJECT = FOLDER.parent.parent
DATA = {
    f"dgl.data.{name}" for name in ("download", "CoraGraphDataset", "PubmedGraphDataset", "GINDataset", "TUDataset")
}
ONLY_HERE = {"g.adj", *DATA}
NEEDS_SAMPLING = ("dgl.dataloading.", "dgl.sampling.")


@cache
def recorded() -> dict[str, Any]:
    return json.loads((FOLDER / "dgl_1_1_3.json").read_text(encoding="utf-8"))


@cache
def found() -> dict[str, Any]:
    status, said = apart.run(["-m", "vgraph.compat", str(FOLDER / "checks.py")], {}, strict=True)
    assert status == 0, said
    return json.loads(said)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_does_what_it_does_in_dgl(name: str) -> None:
    if name.startswith(NEEDS_SAMPLING) and importlib.util.find_spec("vgraph.sampling") is None:
        pytest.skip("there is no vgraph.sampling")
    wanted = True if name in ONLY_HERE else recorded()[name]
    assert found()[name] == wanted
    assert where(name) != "-"


def test_all_names_are_there() -> None:
    assert (len(COUNTS), len(NEXT), len(BEYOND)) == (99, 37, 56)
    assert set(found()) == set(NAMES)


def test_the_table_is_true() -> None:
    written = (PROJECT / "docs" / "coming_from" / "dgl_names.md").read_text(encoding="utf-8").splitlines()
    for line, wanted in zip(written, table().splitlines(), strict=True):
        assert line == wanted or wanted.endswith("| `-` |")  # a package that is left out
