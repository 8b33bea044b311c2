"""``vgraph info``: what is found, what is missing, and what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import vgraph
from vgraph.cli import info, main


def test_python_runs_the_package() -> None:
    done = subprocess.run([sys.executable, "-m", "vgraph", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"vgraph {vgraph.__version__}\n"


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"vgraph    {vgraph.__version__}"
    starts = {line.split()[0] for line in lines}
    assert starts >= {"vgraph", "python", "torch", "numpy", "cpu", "gpu", "compiler", "cache"}
    assert starts >= {"kernels", "cupy", "nvrtc", "dgl"}


def test_info_names_the_cure_of_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_absent(name: str) -> str:
        raise info.PackageNotFoundError(name)

    monkeypatch.setattr(info, "version", is_absent)
    monkeypatch.setattr(info, "find_nvrtc", lambda: None)
    monkeypatch.setattr(info, "find_compiler", lambda: None)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    assert main(["info"]) == 0
    said = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert "vgraph[jit]" in said["kernels"]
    assert said["cupy"] == said["nvrtc"] == "missing: pip install 'vgraph[cuda13]' for kernels on a GPU"
    assert said["dgl"].startswith("not installed")
