"""Process groups end, with their threads, before the interpreter does: a thread that outlives it may abort it.

A program imports what it needs once, and copies itself for each way to end: a copy ends as any interpreter does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.distributed.launch import free_port

PROGRAM = """
import atexit, json, os, sys, time
import torch, torch.distributed as dist

import vgraph.distributed as vd
from vgraph.errors import WorkerError
from vgraph.runtime.distributed.groups import begin
from vgraph.runtime.distributed.ranks import current_ranks

def num_threads():
    return len(os.listdir("/proc/self/task"))

def report():  # runs after what vgraph registers
    late = time.monotonic() + 10
    while num_threads() > before and time.monotonic() < late:  # a thread that was joined is soon gone from the list
        time.sleep(0.01)
    print("at exit", dist.is_initialized(), num_threads() - before)

def copied():  # whether this is the copy, which writes to a pipe; elsewhere how the copy has ended, and what it wrote
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(write, 1)
        os.dup2(write, 2)
        return True
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said]), flush=True)
    return False

ending = next((ending for ending in sys.argv[1:] if copied()), None)
if ending is None:
    sys.exit()
torch.ones(3).sum()
atexit.register(report)
before = num_threads()
vd.init()
ranks = current_ranks()
vd.mean(torch.ones(3))
assert num_threads() > before
exec(ending)
"""

DESTROYED = "dist.destroy_process_group()\nprint(num_threads() - before, ranks.is_current)"
EXCHANGED = """
dist.destroy_process_group()
try:
    ranks.barrier("barrier")
except WorkerError as error:
    print(error)
"""
ENDINGS = ("", DESTROYED, "begin(object())", "raise ValueError", EXCHANGED)

needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted by /proc")


@cache
def ended() -> dict[str, tuple[int, str]]:
    """By ending the exit status, and all that was printed."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *ENDINGS], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [tuple(json.loads(line)) for line in done.stdout.splitlines()]
    return dict(zip(ENDINGS, answers, strict=True))


@needs_proc
def test_the_groups_of_vgraph_have_no_threads_left_at_exit() -> None:
    assert ended()[""] == (0, "at exit False 0\n")


@needs_proc
def test_a_program_that_destroys_its_groups_destroys_those_of_vgraph() -> None:
    # until then one thread waits to end groups
    assert ended()[DESTROYED] == (0, "1 False\nat exit False 0\n")


@needs_proc
def test_a_program_that_fails_ends_its_groups() -> None:
    assert ended()["begin(object())"] == (0, "at exit False 0\n")
    code, said = ended()["raise ValueError"]
    assert code == 1 and said.endswith("ValueError\nat exit False 0\n")


@needs_proc
def test_an_exchange_of_a_group_that_was_destroyed_says_so() -> None:
    code, said = ended()[EXCHANGED]
    assert code == 0 and "was destroyed" in said


UNANSWERED = """
import os, sys
import torch, torch.distributed as dist

import vgraph.distributed as vd

silent = os.fork()
os.environ["RANK"] = "0" if silent else "1"
vd.init()
vd.mean(torch.ones(3))
if silent:
    print(silent, flush=True)
    pending = dist.all_reduce(torch.ones(3), async_op=True)  # as DistributedDataParallel leaves them
    raise ValueError("this rank fails")
sys.stdin.read()  # the other rank does not answer as long as this lasts
"""


def test_a_program_that_fails_does_not_wait_for_what_is_never_answered() -> None:
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    failed = subprocess.Popen(
        [sys.executable, "-c", UNANSWERED],
        env={**os.environ, **where},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        code = failed.wait(timeout=120)
        assert failed.stdout is not None
        os.kill(int(failed.stdout.readline()), 0)  # it is still there: nobody answered
    finally:
        failed.kill()
        said = failed.communicate()[1]  # the silent rank reads to the end of its input, and ends
    assert code == 1, said
    assert "this rank fails" in said
