"""Files with something wrong, given to every loader: it reads them, or says what is wrong as an error of vgraph's.

A case is a loader, its valid files, and a few changes of them. It runs in a process of its own, which is watched:
a crash, an exception of somebody else's, more than 1 GiB of memory in use, 2 GiB asked for, or half a minute of
computing is a failure; so is what was read and does not fit together (an id that there is not), and what a refused
file has changed.

``python -m tests.campaign files --count 2000 --seed 0``
"""

from __future__ import annotations

import atexit
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FULL_COUNT, SHORT_COUNT = 2000, 75
MOST_BYTES, MOST_ASKED, MOST_SECONDS = 1 << 30, 2 << 30, 30
PROJECT = Path(__file__).resolve().parents[2]
NO_MEMORY = ("allocate memory", "not enough memory", "DefaultCPUAllocator", "std::bad_alloc", "Unable to allocate")
_workers: list[subprocess.Popen[str]] = []


def run(count: int, seed: int) -> list[str]:
    """Descriptions of the failures among the cases ``seed``, ``seed + 1``, ..., ``seed + count - 1``."""
    worker = _worker()
    assert worker.stdin is not None and worker.stdout is not None
    failures: list[str] = []
    for case in range(seed, seed + count):
        print(case, file=worker.stdin, flush=True)
        answer = worker.stdout.readline()
        if not answer:
            raise RuntimeError(f"the worker ended in case {case}")
        failures += json.loads(answer)
    return failures


def _worker() -> subprocess.Popen[str]:
    """A process that has the loaders in memory and copies itself for every case; it is kept for the next call."""
    if not _workers:
        command = [sys.executable, "-m", "tests.campaign.files"]
        search = os.pathsep.join([str(PROJECT), str(PROJECT / "kernels"), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"OMP_NUM_THREADS": "1", "VGRAPH_KERNELS": "0", "PYTHONPATH": search}
        pipe = subprocess.PIPE
        _workers.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=PROJECT, env=environment))
        atexit.register(_end_workers)
    return _workers[0]


def _end_workers() -> None:
    while _workers:
        worker = _workers.pop()
        worker.communicate()


# ---------------------------------------------------------------- in the worker
def serve() -> None:
    """Tries the cases whose numbers are read, one a line, and writes what failed."""
    from tests.campaign.valid_files import make_loaders

    with tempfile.TemporaryDirectory(prefix="vgraph-files-") as folder:
        os.environ["VGRAPH_CACHE_DIR"] = folder
        loaders = make_loaders(Path(folder, "valid"))
        for line in sys.stdin:
            print(json.dumps(try_case(int(line), loaders, Path(folder))), flush=True)


def try_case(seed: int, loaders: Sequence[Any], folder: Path) -> list[str]:
    """What is wrong with a case, in a list; nothing, if nothing is."""
    from tests.campaign.mutations import mutate

    draw = random.Random(seed)
    loader = draw.choice(loaders)
    others = [content for other in loaders for content in other.files.values()]
    changed = draw.choice(sorted(loader.files))
    with tempfile.TemporaryDirectory(dir=folder) as place:
        for name, content in loader.files.items():
            data = mutate(draw, content, others) if name == changed else content
            if name == changed and loader.seal and draw.random() < 0.7:
                data = loader.seal(data)
            Path(place, name).parent.mkdir(parents=True, exist_ok=True)
            Path(place, name).write_bytes(data)
        wrong = watched(loader, Path(place))
    return [f"{loader.name}, {changed} changed by seed {seed}: {wrong}"] if wrong else []


def watched(loader: Any, place: Path) -> str:
    """Runs the loader in a copy of this process; what it did wrong, or nothing."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        _limit()
        said = _outcome(loader, place)
        os.write(write, said.encode()[-4000:])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, errors="replace") as pipe:
        said = pipe.read()
    _, status, used = os.wait4(child, 0)
    if status:
        return f"the process ended with {os.waitstatus_to_exitcode(status)} (-24: too much computing)"
    if used.ru_maxrss > MOST_BYTES >> 10:
        return f"{used.ru_maxrss >> 10} MiB in use. {said}"
    return said


def _limit() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_ASKED
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS + 5))  # the first by SIGXCPU
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")


def _outcome(loader: Any, place: Path) -> str:
    """What a loader did wrong with the files of a folder, or nothing."""
    from vgraph.errors import VGraphError

    try:
        loader.load(place)
    except VGraphError as error:
        if not (error.fact and error.cure):
            return f"an error without {'a cure' if error.fact else 'a fact'}: {error!r}"
        return _asked_for_too_much(error)
    except BaseException as error:
        return _asked_for_too_much(error) or "".join(traceback.format_exception(error)[-4:])
    return ""


def _asked_for_too_much(error: BaseException | None) -> str:
    """Whether memory was missing anywhere behind an error."""
    while error is not None:
        if isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY):
            return f"it asked for more than {MOST_ASKED >> 30} GiB: {error!r}"
        error = error.__cause__ or error.__context__
    return ""


if __name__ == "__main__":
    serve()
