"""Every example runs, small, without a warning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, run_script: Callable[..., str]) -> None:
    assert run_script(path, "--smoke").strip(), f"{path.name} prints nothing"
