"""Every benchmark runs, small, without a warning; what it measures then means nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

BENCHMARKS = sorted((Path(__file__).resolve().parent.parent / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_benchmark(path: Path, run_script: Callable[..., str]) -> None:
    assert run_script(path, "--smoke").strip(), f"{path.name} prints no table"
