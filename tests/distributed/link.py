"""Two processes of one job in two network namespaces, with one virtual link between them that can be shaped and cut.

Run in a namespace of its own: ``unshare --map-root-user --net python -m tests.distributed.link WHAT FOLDER PROGRAM``.
The link and the other namespace are gone when the processes in them are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

OWN = ["unshare", "--map-root-user", "--net"]
HERE, THERE = "10.83.0.1", "10.83.0.2"


def why_not() -> str | None:
    """Why there are no namespaces with a link between them on this machine; None: there are."""
    try:
        command = [*OWN, "ip", "link", "add", "here", "type", "veth", "peer", "name", "there"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else f"no network namespace with a link: {done.stderr.strip()}"


def ip(*args: str, of: int | None = None) -> str:
    """What ``ip`` says, in this namespace or in that of a process."""
    inside = [] if of is None else ["nsenter", "--target", str(of), "--net"]
    return subprocess.run([*inside, "ip", *args], capture_output=True, text=True, check=True).stdout


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    last = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < last, "it did not happen in time"
        time.sleep(0.02)


def linked() -> subprocess.Popen[bytes]:
    """A process in another namespace, to which there is a link."""
    other = subprocess.Popen(["unshare", "--net", "sleep", "300"])
    wait_for(lambda: os.readlink("/proc/self/ns/net") != os.readlink(f"/proc/{other.pid}/ns/net"), 10)
    ip("link", "add", "here", "type", "veth", "peer", "name", "there", "netns", str(other.pid))
    for name, address, of in (("here", HERE, None), ("there", THERE, other.pid)):
        ip("addr", "add", f"{address}/24", "dev", name, of=of)
        for one in (name, "lo"):
            ip("link", "set", one, "up", of=of)
    return other


def start(rank: int, other: int, program: list[str]) -> subprocess.Popen[bytes]:
    """A rank of two, which torchrun would start so on two machines."""
    inside = ["nsenter", "--target", str(other), "--net"] if rank else []
    told = {"RANK": rank, "LOCAL_RANK": 0, "GROUP_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 1}
    told |= {"MASTER_ADDR": HERE, "MASTER_PORT": 29512, "GLOO_SOCKET_IFNAME": ("here", "there")[rank]}
    env = os.environ | {name: str(value) for name, value in told.items()}
    return subprocess.Popen([*inside, sys.executable, "-m", *program], env=env)


def cut(folder: Path) -> None:
    """Takes the link down in the midst of training."""
    wait_for(lambda: all((folder / f"at-{rank}").exists() for rank in range(2)))
    time.sleep(0.5)
    ip("link", "set", "here", "down")
    (folder / "down").write_text(str(time.time()))


def count(folder: Path) -> None:
    """What went over the link while twenty exchanges were made."""
    wait_for(lambda: all((folder / f"ready-{rank}").exists() for rank in range(2)))
    before = _sent()
    (folder / "go").touch()
    wait_for(lambda: all((folder / f"sent-{rank}").exists() for rank in range(2)))
    (folder / "over-the-link").write_text(str(_sent() - before))


def _sent() -> int:
    return int(json.loads(ip("-json", "-statistics", "link", "show", "here"))[0]["stats64"]["tx"]["bytes"])


def main(what: str, folder: str, *program: str) -> None:
    other = linked()
    ranks = [start(rank, other.pid, list(program)) for rank in range(2)]
    try:
        {"cut": cut, "count": count}[what](Path(folder))
        ended = [rank.wait(60) for rank in ranks]
    finally:
        for process in (*ranks, other):
            process.kill()
    (Path(folder) / "ended").write_text(json.dumps(ended))


if __name__ == "__main__":
    main(*sys.argv[1:])
