"""Kernels that check their own memory and arithmetic: a short form of ``make sanitize``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tests.tables import thorough

GCC = shutil.which("g++")


def library(name: str) -> str:
    """Where GCC has a sanitizer; a bare name where it has none."""
    found = subprocess.run([GCC or "g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def preloaded() -> str:
    return " ".join(library(name) for name in ("libasan.so", "libubsan.so")) if GCC else ""


pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or any(not Path(one).is_absolute() for one in preloaded().split() or [""]),
    reason="there is no GCC with sanitizers",
)

MESSAGES = """
import torch, vgraph
from vgraph import compiler
g = vgraph.rand_graph(20, 60)
made = []
build = compiler.build_kernels
compiler.build_kernels = lambda source, count: made.append(build(source, count)) or made[-1]
for dtype, width in ((torch.float32, 13), (torch.float16, 8)):
    h = torch.randn(20, width, dtype=dtype, requires_grad=True)
    g.ndata["h"] = h
    g.update_all(
        lambda edges: {"m": edges.src["h"], "s": (edges.src["h"] * edges.dst["h"]).sum(1, keepdim=True)},
        lambda nodes: {"o": (nodes.mailbox["s"].softmax(1) * nodes.mailbox["m"]).sum(1) + nodes.mailbox["m"].amax(1)},
    )
    g.ndata["o"].square().sum().backward()
    assert torch.isfinite(h.grad).all()
assert made and None not in made
print("found nothing")
"""

WRONG = """
from vgraph.fusion.cpu.build import build_kernels
(kernel,) = build_kernels(BODY, 1)
import ctypes
kernel((ctypes.c_int64 * 2)(7, 0))
print("went unnoticed")
"""


def run(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    own = {
        "CXX": GCC or "", "VGRAPH_SANITIZE": "1", "VGRAPH_KERNELS": "1", "VGRAPH_NATIVE": "0",
        "VGRAPH_CACHE_DIR": str(folder), "LD_PRELOAD": preloaded(), "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": f"{PROJECT}:{PROJECT / 'kernels'}", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    environment = {**os.environ, **own}
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, env=environment)


@thorough
def test_kernels_of_messages(tmp_path: Path) -> None:
    done = run(MESSAGES, tmp_path)
    assert (done.returncode, done.stdout) == (0, "found nothing\n"), done.stderr


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("long room[4]; long* p = room; asm(\"\" : \"+r\"(p)); return p[a[0]];", "stack-buffer-overflow"),
        pytest.param("return 1 << (int)(a[0] + 60);", "shift exponent 67 is too large", marks=thorough),
    ],
    ids=["memory", "arithmetic"],
)  # fmt: skip
def test_what_is_wrong_is_found(body: str, found: str, tmp_path: Path) -> None:
    done = run(WRONG.replace("BODY", repr(f'extern "C" long kernel0(const long* a) {{ {body} }}')), tmp_path)
    assert done.returncode != 0
    assert found in done.stderr
    assert done.stdout == ""
