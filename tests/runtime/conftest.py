"""What tests of loops over frontiers share: kernels on, and nothing left of what was captured before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from vgraph import native_part
from vgraph.capture import capture


@pytest.fixture
def with_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compiled kernels and native loops."""
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    capture.forget()
    native_part.begin_native.cache_clear()
    yield
    capture.forget()
    native_part.begin_native.cache_clear()
