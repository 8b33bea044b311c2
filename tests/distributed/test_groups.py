"""Process groups end, with their threads, before the interpreter does: a thread that outlives it may abort it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import atexit, os, sys
import torch, torch.distributed as dist

def num_threads():
    return len(os.listdir("/proc/self/task"))

def report():  # runs after what vgraph registers
    print("at exit", dist.is_initialized(), num_threads() - before)

import vgraph.distributed as vd
from vgraph.errors import WorkerError
from vgraph.runtime.distributed.groups import begin
from vgraph.runtime.distributed.ranks import current_ranks

torch.ones(3).sum()
atexit.register(report)
before = num_threads()
vd.init()
ranks = current_ranks()
vd.mean(torch.ones(3))
assert num_threads() > before
{ending}
"""

needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted by /proc")


def run(ending: str, *, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(ending=ending)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@needs_proc
def test_the_groups_of_vgraph_have_no_threads_left_at_exit() -> None:
    assert run("") == "at exit False 0\n"


@needs_proc
def test_a_program_that_destroys_its_groups_destroys_those_of_vgraph() -> None:
    said = run("dist.destroy_process_group()\nprint(num_threads() - before, ranks.is_current)")
    assert said == "0 False\nat exit False 0\n"


@needs_proc
def test_a_program_that_fails_leaves_what_others_may_never_answer() -> None:
    assert run("begin(object())").startswith("at exit True")
    assert run("raise ValueError", code=1).startswith("at exit True")


def test_an_exchange_of_a_group_that_was_destroyed_says_so() -> None:
    ending = """
dist.destroy_process_group()
try:
    ranks.barrier("barrier")
except WorkerError as error:
    print(error)
"""
    assert "was destroyed" in run(ending)
