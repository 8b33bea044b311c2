"""Starts the ranks of a test: with torchrun, as a user does, or with what torchrun tells them and nothing else."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests import apart

PROJECT = Path(__file__).resolve().parents[2]


_PORTS = range(20_000, 32_000)  # below those that systems give to whoever asks for any


def free_port() -> int:
    """A port of this host that nothing listens on, and that hardly anybody takes until a rank does."""
    for port in random.SystemRandom().sample(_PORTS, 100):
        with socket.socket() as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a hundred ports are taken")


def on_ranks(module: str, ranks: int, *args: str, fails: bool = False, seconds: float = 900, **env: str) -> str:
    """What ``ranks`` processes of ``python -m module args`` print; they must end well, or not if it ``fails``."""
    return on_machines(module, [ranks], *args, fails=fails, seconds=seconds, **env)


def on_machines(
    module: str, ranks: list[int], *args: str, fails: bool = False, seconds: float = 900, **env: str
) -> str:
    """What ``ranks[i]`` processes of machine i print, all of which are on this host."""
    codes, said = apart.run_together(["-m", module, *args], [told | env for told in environments(ranks)], seconds)
    assert any(codes) == fails, said[-6000:]
    return said


def environments(ranks: list[int]) -> list[dict[str, str]]:
    """What torchrun tells the processes of a job of ``ranks[i]`` on machine i."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(sum(ranks))}
    common |= {"GROUP_WORLD_SIZE": str(len(ranks)), "OMP_NUM_THREADS": "1"}
    places = [(machine, local) for machine, number in enumerate(ranks) for local in range(number)]
    return [
        common
        | {"RANK": str(rank), "LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(ranks[machine])}
        | {"GROUP_RANK": str(machine)}
        for rank, (machine, local) in enumerate(places)
    ]


def torchrun(module: str, ranks: int, *args: str, fails: bool = False, seconds: float = 600, **env: str) -> str:
    """As ``on_ranks``, by torchrun: for what it does itself, and for processes that are as new as a user's."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    settings = {"PYTHONPATH": apart.OURS, "OMP_NUM_THREADS": "1"}
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
