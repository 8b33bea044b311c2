"""Processes of one section: started with a rank each, as torchrun would; each prints its result as a line of JSON."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

PROGRAM = Path(__file__).resolve().parent.parent / "partition_runs.py"
MARK = "result: "


def start(task: str, count: int, smoke: bool, **environment: str) -> list[tuple[int, Any, str]]:
    """Exit code, result (None where there is none) and the last words of each process."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"}
    project = PROGRAM.parent.parent
    shared["PYTHONPATH"] = os.pathsep.join([str(project), str(project / "kernels"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(PROGRAM), "--worker", task, *(["--smoke"] if smoke else [])]
    started = [
        subprocess.Popen(
            command, env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} | environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(count)
    ]  # fmt: skip
    try:
        said = [process.communicate()[0] for process in started]
    finally:
        for process in started:
            process.kill()
    return [(p.returncode, _result(text), text[-2000:]) for p, text in zip(started, said, strict=True)]


def results(task: str, count: int, smoke: bool) -> list[Any]:
    """The result of each process; all must end well."""
    found = start(task, count, smoke)
    for code, _, text in found:
        if code:
            raise SystemExit(f"a process of {task} ended with {code}:\n{text}")
    return [result for _, result, _ in found]


def _result(text: str) -> Any:
    lines = [line for line in text.splitlines() if line.startswith(MARK)]
    return json.loads(lines[-1].removeprefix(MARK)) if lines else None


def serve(task: Callable[[bool], Any], smoke: bool) -> None:
    """What a started process does."""
    torch.set_num_threads(1)
    print(MARK + json.dumps(task(smoke)), flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()
