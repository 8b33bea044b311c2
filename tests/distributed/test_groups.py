"""Process groups end, with their threads, before the interpreter does: a thread that outlives it may abort it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed.launch import free_port

PROGRAM = """
import atexit, os, sys, time
import torch, torch.distributed as dist

def num_threads():
    return len(os.listdir("/proc/self/task"))

def report():  # runs after what vgraph registers
    late = time.monotonic() + 10
    while num_threads() > before and time.monotonic() < late:  # a thread that was joined is soon gone from the list
        time.sleep(0.01)
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
    assert said == "1 False\nat exit False 0\n"  # until then one thread waits to end groups


@needs_proc
def test_a_program_that_fails_ends_its_groups() -> None:
    assert run("begin(object())") == "at exit False 0\n"
    assert run("raise ValueError", code=1) == "at exit False 0\n"


UNANSWERED = """
import os, sys
import torch, torch.distributed as dist

import vgraph.distributed as vd

vd.init()
vd.mean(torch.ones(3))
if os.environ["RANK"] == "0":
    pending = dist.all_reduce(torch.ones(3), async_op=True)  # as DistributedDataParallel leaves them
    raise ValueError("this rank fails")
sys.stdin.read()  # the other rank does not answer as long as this lasts
"""


def test_a_program_that_fails_does_not_wait_for_what_is_never_answered() -> None:
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", UNANSWERED],
            env={**os.environ, **where, "RANK": rank},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    failed, silent = ranks
    try:
        code = failed.wait(timeout=120)
        assert silent.poll() is None  # nobody answered
    finally:
        for rank in ranks:
            rank.kill()
        said = [rank.communicate()[1] for rank in ranks]
    assert code == 1, said
    assert "this rank fails" in said[0]


def test_an_exchange_of_a_group_that_was_destroyed_says_so() -> None:
    ending = """
dist.destroy_process_group()
try:
    ranks.barrier("barrier")
except WorkerError as error:
    print(error)
"""
    assert "was destroyed" in run(ending)
