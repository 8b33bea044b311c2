"""Stands for a Python whose modules are imported already: see ``tests/forked_python.py``; imports next to nothing.

usage: forked_client.py SOCKET [-u] (-m MODULE | FILE) [ARGUMENT ...]
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

AT_START = ("LD_", "MALLOC_")  # what the loader and the allocator read when a process starts


def main() -> None:
    address, *given = sys.argv[1:]
    program = given[1:] if given[:1] == ["-u"] else given  # lines are written at once in any case
    is_known = program[:1] == ["-m"] or (program[:1] and not program[0].startswith("-"))
    if not is_known or any(name.startswith(AT_START) for name in os.environ):
        os.execv(sys.executable, [sys.executable, *given])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.connect(address)
        request = json.dumps({"program": program, "env": dict(os.environ), "folder": os.getcwd()}).encode()
        socket.send_fds(server, [len(request).to_bytes(8, "little")], [0, 1, 2])
        server.sendall(request)
        with server.makefile("r") as answers:
            process = int(answers.readline())
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda number, _: os.kill(process, number))
            status = int(answers.readline())
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    main()
