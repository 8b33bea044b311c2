"""Programs in processes of their own, without the seconds that each would take to import torch.

They are forked from a process that has imported what most programs import, and has run nothing: no thread is started
there, no setting read, no number drawn. What a program needs beside that it imports itself. Tests of how a process
starts (imports, launchers, memory that is held) start Python instead.
"""

from __future__ import annotations

import atexit
import gc
import io
import multiprocessing
import os
import runpy
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import cast

PROJECT = Path(__file__).resolve().parent.parent
OURS = os.pathsep.join([str(PROJECT), str(PROJECT / "kernels")])
IMPORTED = (
    "tests.apart",  # first: it counts the filters of warnings that Python begins with
    "torch",
    "torch._dynamo",  # what every optimizer imports at its first step
    "torch.distributed.checkpoint",
    "torch.distributed.run",
    "torch.distributed.tensor",
    "networkx",
    "scipy.optimize",
    "scipy.sparse",
    "vgraph",
    "vgraph.distributed",
    "tests.campaign.fault_runs",
    "tests.campaign.fault_calls",
)
PYTHON = "VGRAPH_TESTS_PYTHON"  # what a program that starts Python itself is to start: see tests/forked_python.py
_FIRST_FILTERS = len(warnings.filters)


def forking() -> ForkServerContext:
    """What makes processes; the one that they are forked from starts with the first."""
    os.environ.setdefault("PYTHONPATH", OURS)  # where it finds what it is to import
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    return context


class Forked:
    """A process that runs a program: ``["-m", module, *arguments]`` or ``[path, *arguments]``.

    What it prints goes to the end of the file ``said``; with ``strict`` a warning is an error, as by ``-W error``.
    """

    def __init__(
        self, program: Sequence[str], said: Path, env: Mapping[str, str], folder: Path = PROJECT, strict: bool = False
    ) -> None:
        whole = os.environ | {"PYTHONPATH": OURS} | env
        given = (tuple(program), str(said), dict(whole), str(folder), strict)
        self.process: BaseProcess = forking().Process(target=_live, args=given)
        self.process.start()

    def poll(self) -> int | None:
        """The exit status, below 0 the signal that ended it; None: it runs."""
        return self.process.exitcode

    def wait(self, seconds: float) -> int:
        self.process.join(seconds)
        if self.process.exitcode is None:
            raise TimeoutError(f"a program has not ended after {seconds:.0f} seconds")
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


def run(
    program: Sequence[str], env: Mapping[str, str], folder: Path = PROJECT, strict: bool = False, seconds: float = 900
) -> tuple[int, str]:
    """The exit status of a program and what it printed."""
    with tempfile.TemporaryDirectory() as scratch:
        said = Path(scratch) / "said"
        forked = Forked(program, said, env, folder, strict)
        try:
            return forked.wait(seconds), said.read_text()
        finally:
            forked.kill()


def run_together(
    program: Sequence[str], envs: Sequence[Mapping[str, str]], seconds: float = 900
) -> tuple[list[int], str]:
    """A program once in each environment, all at the same time: exit statuses, and what they printed in turns.

    As soon as one has failed the others are ended, as torchrun does.
    """
    with tempfile.TemporaryDirectory() as scratch:
        said = Path(scratch) / "said"
        all_of_it = [Forked(program, said, env) for env in envs]
        until = time.monotonic() + seconds
        try:
            while (codes := [one.poll() for one in all_of_it]).count(None) and not any(codes):
                if time.monotonic() > until:
                    raise TimeoutError(f"after {seconds:.0f} seconds: {codes}\n{said.read_text()[-6000:]}")
                wait([one.process.sentinel for one in all_of_it if one.poll() is None], 1)
        finally:
            for one in all_of_it:
                one.process.terminate()
                one.process.join(30)
                one.kill()
        return [one.wait(0) for one in all_of_it], said.read_text()


def _live(program: tuple[str, ...], said: str, env: dict[str, str], folder: str, strict: bool) -> None:
    """The life of the process."""
    out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    live(program, env, folder, strict)


def live(program: Sequence[str], env: Mapping[str, str], folder: str, strict: bool) -> None:
    """The life of a process that has its standard streams."""
    # Several may write to one file: each line at once, with its end.
    cast(io.TextIOWrapper, sys.stdout).reconfigure(line_buffering=True)
    gc.freeze()  # what is imported stays: no collection need visit it
    sys.executable = env.get(PYTHON, sys.executable)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    _take_settings(env, strict)
    try:
        _run(program, folder)
    finally:
        with suppress(BaseException):
            atexit._run_exitfuncs()  # multiprocessing leaves without


def _take_settings(env: Mapping[str, str], strict: bool) -> None:
    """What Python and torch read of the environment, and of the command line, when they start."""
    import torch

    if env.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(env["OMP_NUM_THREADS"]))
    sys.path[:0] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    if strict:
        later = warnings.filters[: len(warnings.filters) - _FIRST_FILTERS]
        warnings.simplefilter("error")
        warnings.filters[:0] = later  # what the imports have set stands before the command line's
        sys.warnoptions.append("error")


def _run(program: Sequence[str], folder: str) -> None:
    if program[0] == "-m":
        sys.argv = list(program[1:])
        sys.path.insert(0, folder)
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(program)
        sys.path.insert(0, str(Path(program[0]).parent))
        runpy.run_path(program[0], run_name="__main__")
