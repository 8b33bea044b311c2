"""The line that says why a first call takes long."""

from __future__ import annotations

import io
import logging
import sys
import threading

import pytest

from vgraph.fusion.notice import Notice


class Watched(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program that has not set up logging."""
    monkeypatch.setattr(logging.getLogger("vgraph"), "hasHandlers", lambda: False)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("stream", "lines"), [(Watched(), 1), (io.StringIO(), 0)], ids=["terminal", "file"])
def test_a_terminal_is_told_once(stream: io.StringIO, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    notice = Notice()
    for _ in range(2):
        notice.tell()
    assert stream.getvalue().count("vgraph: compiling kernels") == lines == stream.getvalue().count("\n")


def test_a_log_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Watched()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(logging.getLogger("vgraph"), "hasHandlers", lambda: True)
    Notice().tell()
    assert not stream.getvalue()


def test_it_is_told_while_a_compiler_runs_and_not_before_patience_ends() -> None:
    impatient, patient, told = Notice(patience=0.0), Notice(patience=3600.0), threading.Event()
    impatient.tell, patient.tell = told.set, told.set  # type: ignore[method-assign]
    with patient.compiling():
        assert not told.is_set()
    assert patient.patience < 3600.0
    with impatient.compiling():
        assert told.wait(60)
