"""Two machines on one: network namespaces with a virtual link between them, which may be slow.

What measures runs in namespaces of its own (``[*OWN, python, ...]``), which are the first machine; ``second_machine``
makes the other. All is gone when the processes in them are. Each has a /dev/shm of its own, too.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

OWN = ["unshare", "--map-root-user", "--net", "--mount"]
ADDRESSES, LINKS = ("10.84.0.1", "10.84.0.2"), ("here", "there")
_MEMORY = ["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"]


def why_not() -> str | None:
    """Why there are no such machines; None: there are."""
    if shutil.which(OWN[0]) is None:
        return f"there is no {OWN[0]}"
    tried = f"{' '.join(_MEMORY)} && ip link add {LINKS[0]} type veth peer name {LINKS[1]}"
    done = subprocess.run([*OWN, "sh", "-c", tried], capture_output=True, text=True, check=False)
    return f"no namespaces with a link between them: {done.stderr.strip()}" if done.returncode else None


@contextmanager
def second_machine(rate: str | None = None) -> Generator[list[list[str]]]:
    """What stands before a command so that it runs on either machine. ``rate``: of the link, as ``tc`` has it."""
    subprocess.run(_MEMORY, check=True)
    waiting = ["unshare", "--net", "--mount", "sh", "-c", f"{' '.join(_MEMORY)} && echo ready && exec sleep 86400"]
    with subprocess.Popen(waiting, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"ready\n", "the second machine has no /dev/shm of its own"
            there = ["nsenter", "--target", str(other.pid), "--net"]
            _run(["ip", "link", "add", LINKS[0], "type", "veth", "peer", "name", LINKS[1], "netns", str(other.pid)])
            for inside, name, address in zip(([], there), LINKS, ADDRESSES, strict=True):
                _bring_up(inside, name, address, rate)
            yield [[], [*there, "--mount"]]
        finally:
            other.kill()


def _bring_up(inside: list[str], name: str, address: str, rate: str | None) -> None:
    _run([*inside, "ip", "addr", "add", f"{address}/24", "dev", name])
    _run([*inside, "ip", "link", "set", "lo", "up"])
    if rate is None:
        _run([*inside, "ip", "link", "set", name, "mtu", "65535"])  # as loopback has
    _run([*inside, "ip", "link", "set", name, "up"])
    if rate is not None:
        shape = ["rate", rate, "burst", "256kb", "latency", "400ms"]
        _run([*inside, "tc", "qdisc", "add", "dev", name, "root", "tbf", *shape])


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True)
