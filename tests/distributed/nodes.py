"""Starts a test's processes as several machines would: one agent of torchrun for each, all on this host."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from tests.distributed.launch import PROJECT


def free_port() -> int:
    """A port of this host that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def start_nodes(module: str, ranks: list[int], *args: str, **env: str) -> list[subprocess.Popen[str]]:
    """``ranks[i]`` processes of ``python -m module args`` on machine i; what they print is piped."""
    settings = {"PYTHONPATH": f"{PROJECT}{os.pathsep}{PROJECT / 'kernels'}", "OMP_NUM_THREADS": "1"}
    settings["PYTHONUNBUFFERED"] = ""  # processes share a pipe: a line is written at once, with its end
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(len(ranks))]
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


def run_nodes(module: str, ranks: list[int], *args: str, fails: bool = False, seconds: float = 900, **env: str) -> str:
    """What all machines' processes print; they must end well, or not if it ``fails``."""
    agents = start_nodes(module, ranks, *args, **env)
    try:
        said = [agent.communicate(timeout=seconds)[0] for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
    assert all((agent.returncode != 0) == fails for agent in agents), "\n".join(one[-6000:] for one in said)
    return "\n".join(said)
