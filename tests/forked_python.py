"""A Python for the processes that programs start themselves: forked where torch is imported, as programs are.

``command`` gives the path of an executable that takes the place of ``sys.executable`` within a program of a test. It is
``tests/forked_client.py``: it hands its arguments, environment, folder and standard streams over a socket to a server,
which is a process of ``tests/apart.py`` that forks one program for each, and ends as that program ends.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
from functools import cache
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path

from tests import apart

CLIENT = Path(__file__).with_name("forked_client.py")
SECONDS = 60  # more than a server takes that imports on a busy machine


@cache
def command() -> str:
    """The executable; its server starts with the first call and ends with this process.

    Programs that it runs start it in their turn, if they start Python.
    """
    folder = Path(tempfile.mkdtemp(prefix="vgraph-python-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(folder / "socket"))
    listening.listen(64)
    server = apart.forking().Process(target=_serve, args=(listening,))
    server.start()
    listening.close()
    atexit.register(server.terminate)
    started = folder / "python"
    client = f'"{sys.executable}" -IS "{CLIENT}" "{folder / "socket"}"'
    started.write_text(f'#!/bin/sh\n{apart.PYTHON}="$0" exec {client} "$@"\n')
    started.chmod(stat.S_IRWXU)
    return str(started)


def _serve(listening: socket.socket) -> None:
    """One child for each program, until the process that asked for the server ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children that wait for programs
    asking = parent_process()
    assert asking is not None
    while listening in wait([listening, asking.sentinel]):
        connection = listening.accept()[0]
        if not os.fork():
            listening.close()
            _attend(connection)
            os._exit(0)
        connection.close()


def _attend(connection: socket.socket) -> None:
    """Runs one program; it is killed if its client is."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as file:
        given = json.loads(file.read(int.from_bytes(size, "little")))
    program = get_context("fork").Process(target=_live, args=(streams, given))
    program.start()
    for stream in streams:
        os.close(stream)
    connection.sendall(f"{program.pid}\n".encode())
    if connection in wait([program.sentinel, connection]):
        program.kill()
    program.join()
    connection.sendall(f"{program.exitcode}\n".encode())


def _live(streams: list[int], given: dict[str, object]) -> None:
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it stays open as long as the process
    apart.live(given["program"], given["env"], given["folder"], strict=False)
