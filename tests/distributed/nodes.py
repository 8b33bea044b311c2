"""Starts a test's processes as several machines would: one agent of torchrun for each, all on this host."""

from __future__ import annotations

import os
import subprocess

from tests import apart, forked_python
from tests.distributed.launch import PROJECT, free_port


def start_nodes(module: str, ranks: list[int], *args: str, **env: str) -> list[subprocess.Popen[str]]:
    """``ranks[i]`` processes of ``python -m module args`` on machine i; what they print is piped."""
    settings = {"PYTHONPATH": apart.OURS, "OMP_NUM_THREADS": "1"}
    settings["PYTHONUNBUFFERED"] = ""  # processes share a pipe: a line is written at once, with its end
    command = [forked_python.command(), "-m", "torch.distributed.run", "--nnodes", str(len(ranks))]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    return [
        subprocess.Popen(
            [*command, "--node-rank", str(node), "--nproc-per-node", str(number), "-m", module, *args],
            cwd=PROJECT,
            env=os.environ | settings | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for node, number in enumerate(ranks)
    ]
