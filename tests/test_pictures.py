"""The documentation's pictures are what the functions that draw them give."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"


def test_the_files_are_those_that_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PICTURES)
    drawn = {f"{draw.__name__}.svg": draw().svg() for draw in import_module("make").PICTURES}
    assert drawn == {path.name: path.read_text(encoding="utf-8") for path in PICTURES.glob("*.svg")}, (
        "python docs/pictures/make.py writes them"
    )
