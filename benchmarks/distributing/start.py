"""Starts what is measured in processes of its own: one, or ranks by torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

MARK = "RESULT "  # before the line of JSON that a program prints


def result_of(script: Path, *given: str, ranks: int, threads: int = 1) -> Any:
    """What a program prints, of so many processes of so many threads each; 0 ranks: one without torchrun."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [sys.executable, *(torchrun if ranks else []), str(script), *given]
    done = subprocess.run(command, env=settings(threads), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return results(done.stdout)[0]


def settings(threads: int = 1) -> dict[str, str]:
    """Of a process that imports what lies beside this file."""
    paths = [str(Path(__file__).resolve().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(paths)}


def results(said: str) -> list[Any]:
    """All that programs have printed."""
    return [json.loads(line.removeprefix(MARK)) for line in said.splitlines() if line.startswith(MARK)]
