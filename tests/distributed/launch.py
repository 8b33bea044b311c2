"""Starts a test's processes as a user does: with torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def torchrun(module: str, ranks: int, *args: str, fails: bool = False, seconds: float = 600, **env: str) -> str:
    """What ``ranks`` processes of ``python -m module args`` print; they must end well, or not if it ``fails``."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    settings = {"PYTHONPATH": f"{PROJECT}{os.pathsep}{PROJECT / 'kernels'}", "OMP_NUM_THREADS": "1"}
    settings["PYTHONUNBUFFERED"] = ""  # ranks share a pipe: a line is written at once, with its end
    done = subprocess.run(
        [*command, "-m", module, *args],
        cwd=PROJECT,
        env=os.environ | settings | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stdout[-6000:]
    return done.stdout
