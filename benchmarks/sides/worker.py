"""One side in a process of its own: builds the workload, then steps whenever it is asked to.

Started by sides.alternate with a request as JSON in its first line; answers every line with one. What
the libraries print goes to stderr.

A step's answer has its seconds, by how much resident memory had grown at its peak beyond what stood
before the first step, and, for the first, the sizes of its results, by which sides are compared.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
import warnings
from typing import Any, TextIO

import torch
from torch import Tensor

from sides.workloads import Data, NotExpressible, Workload

STATUS = "/proc/self/status"


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    try:
        serve(json.loads(sys.stdin.readline()), answers)
    except Exception as error:
        tell(answers, describe(error))


def serve(request: dict[str, Any], answers: TextIO) -> None:
    if request["memory"]:
        limit = int(request["memory"] * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    torch.set_num_threads(request["threads"])
    given = request["workload"]
    workload = Workload(**{**given, "sizes": tuple(given["sizes"])})
    side = importlib.import_module(f"sides.by_{request['side']}")
    empty, start = forget_peak(), time.perf_counter()
    step = side.build(Data(workload))
    built = time.perf_counter() - start
    before = forget_peak()
    tell(answers, {"ready": True, "built": built, "held": max(0, before - empty)})
    for line in sys.stdin:
        if not line.strip():
            break
        start = time.perf_counter()
        results = step()
        seconds = time.perf_counter() - start
        answer = {"seconds": seconds, "growth": max(0, peak() - before)}
        tell(answers, answer | {"sizes": [size_of(t) for t in results]} if "sizes" in line else answer)


def size_of(tensor: Tensor) -> float:
    """The mean of the magnitudes."""
    return float(tensor.abs().mean(dtype=torch.float64))


def describe(error: Exception) -> dict[str, str]:
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    if isinstance(error, ImportError):
        return {"missing": text}
    if isinstance(error, NotExpressible):
        return {"left_out": str(error)}
    is_memory = isinstance(error, MemoryError) or any(w in text.lower() for w in ("memory", "alloc"))
    return {"out_of_memory": text} if is_memory else {"failed": text}


def status(name: str) -> int:
    """Bytes of an entry like VmRSS."""
    with open(STATUS) as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))


def forget_peak() -> int:
    """What is resident now, from which the peak counts again."""
    if not os.path.exists(STATUS):
        return peak()
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:  # where it is not allowed, the peak of building counts, too
        return peak()
    return status("VmRSS")


def peak() -> int:
    if os.path.exists(STATUS):
        return status("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes where there is no /proc


def tell(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
