"""What a report of a problem needs: versions, devices, compilers, choices, the cache; what is missing, and its cure.

Takes: nothing. Gives: one line each. Runs once.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch

import vgraph
from vgraph.config import cache_dir, kernels_enabled, tunes
from vgraph.fusion.cpu.build import find_compiler
from vgraph.fusion.cuda.build import find_nvrtc
from vgraph.fusion.widths import vector_bytes
from vgraph.runtime.cpu.products import PRODUCTS, choices_of_machine
from vgraph.runtime.cuda import driver as cuda

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
    found = [line for line in map(_describe_compiler, COMPILERS) if line]
    for line in found or ["none: what needs one will say so"]:
        yield f"compiler  {line}"
    yield f"kernels   {_describe_kernels()}"
    for line in _describe_choices():
        yield f"choice    {line}"
    for index in range(torch.cuda.device_count()):
        memory = _readable(torch.cuda.get_device_properties(index).total_memory)
        yield f"gpu {index}     {torch.cuda.get_device_name(index)}, {cuda.architecture(index)}, {memory}"
    if not torch.cuda.device_count():
        yield f"gpu       none: torch {_describe_build()}"
    yield f"cupy      {_describe_cupy()}"
    nvrtc = find_nvrtc()
    yield f"nvrtc     {'.'.join(map(str, nvrtc.version)) if nvrtc else 'missing: ' + _extra()}"
    yield f"dgl       {_describe_dgl()}"
    yield f"cache     {_describe_folder(cache_dir())}"


def _describe_kernels() -> str:
    """What generated loops are compiled with."""
    if not kernels_enabled():
        return "switched off by VGRAPH_KERNELS=0: torch's operators run"
    command = find_compiler()
    if command is None:
        return "no compiler: pip install 'vgraph[jit]' brings one"
    return f"compiled by {' '.join(command)}, in vectors of {vector_bytes()} bytes"


def _describe_choices() -> Iterable[str]:
    """What was measured on this machine, or why nothing was."""
    if not tunes():
        return ["fixed by VGRAPH_TUNE=0: nothing is measured"]
    return [str(PRODUCTS), *choices_of_machine().lines()]


def _describe_build() -> str:
    built = torch.version.cuda
    return f"was built for CUDA {built} and finds no device" if built else "was built without CUDA"


def _describe_cupy() -> str:
    """Its version, without importing it: that takes a second and a driver."""
    for name in ("cupy-cuda13x", "cupy-cuda12x", "cupy"):
        with suppress(PackageNotFoundError):
            return f"{version(name)} ({name})"
    return f"missing: {_extra()}"


def _extra() -> str:
    """Which extra fits torch."""
    major = (torch.version.cuda or "").partition(".")[0]
    wanted = f"'vgraph[cuda{major}]'" if major in ("12", "13") else "'vgraph[cuda12]' or 'vgraph[cuda13]'"
    return f"pip install {wanted} for kernels on a GPU"


def _describe_dgl() -> str:
    with suppress(PackageNotFoundError):
        return f"{version('dgl')} is installed; python -m vgraph.compat hides it from a program"
    return "not installed; python -m vgraph.compat runs programs written for it"


def _describe_compiler(name: str) -> str | None:
    """``gcc: gcc (Debian ...) 12.2.0``, or None where there is none that answers."""
    path = shutil.which(name)
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=SECONDS_TO_ANSWER,
            check=True,
        )
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
