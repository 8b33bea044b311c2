"""What a report of a problem needs: versions, devices, compilers, the cache.

Takes: nothing. Gives: one line each; tempo: once.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import vgraph
from vgraph.config import cache_dir

COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "nvcc")
SECONDS_TO_ANSWER = 10
UNITS = ("bytes", "kB", "MB", "GB")


def describe() -> Iterator[str]:
    """The lines of ``vgraph info``."""
    yield f"vgraph    {vgraph.__version__}"
    yield f"python    {platform.python_version()} ({platform.system()} {platform.machine()})"
    yield f"torch     {torch.__version__}"
    yield f"numpy     {np.__version__}"
    yield f"cpu       {os.cpu_count()} processors, torch uses {torch.get_num_threads()} threads"
    for index in range(torch.cuda.device_count()):
        yield f"gpu {index}     {torch.cuda.get_device_name(index)}"
    if not torch.cuda.device_count():
        yield "gpu       none"
    found = [line for line in map(_describe_compiler, COMPILERS) if line]
    for line in found or ["none: what needs one will say so"]:
        yield f"compiler  {line}"
    yield f"cache     {_describe_folder(cache_dir())}"


def _describe_compiler(name: str) -> str | None:
    """``gcc: gcc (Debian ...) 12.2.0``, or None where there is none that answers."""
    path = shutil.which(name)
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, timeout=SECONDS_TO_ANSWER, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    shown = next((line for line in lines if "release" in line), lines[0]) if lines else "no version"
    return f"{path}: {shown}"


def _describe_folder(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} (not made yet)"
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return f"{folder} ({len(sizes)} files, {_readable(sum(sizes))})"


def _readable(count: float) -> str:
    """A number of bytes for people.

    >>> _readable(12), _readable(3_400_000)
    ('12 bytes', '3.4 MB')
    """
    for unit in UNITS[:-1]:
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} {UNITS[-1]}"
