"""A process that has compiled nothing yet, and what its log says of kernels."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fusion.build_cases import tanh_sum
from vgraph.capture import capture
from vgraph.fusion import kernel_cache as kept
from vgraph.fusion.cpu import build


@pytest.fixture
def fresh_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """As in a process that has compiled nothing yet, with an empty cache."""
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    monkeypatch.setenv("VGRAPH_NATIVE", "0")  # what loops over frontiers share is built apart
    monkeypatch.setenv("VGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    _forget()
    yield
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    for known in (kept.cache_folder, kept.tell):
        known.cache_clear()
    build.forget()
    capture.forget()


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the log said of kernels while a function ran whose result was right."""

    def run() -> list[str]:
        caplog.clear()
        capture.forget()
        with caplog.at_level(logging.INFO, "vgraph"):
            assert tanh_sum()
        return caplog.messages

    return run
