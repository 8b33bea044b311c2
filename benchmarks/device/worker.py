"""Rows of gpu.py in a process of their own: told a name, it answers with results as they come.

What the libraries print goes to stderr; every line of stdout is JSON. A row that fails says so and the next one runs;
after an error that the GPU does not recover from the process ends, and gpu.py starts another one.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import reductions
import torch

from device import messages, sequences
from device.row import Machine, Row, deviation, measure, measure_machine, tidy
from vgraph.capture import capture

PROJECT = Path(__file__).resolve().parents[2]
Answer = dict[str, Any]
BROKEN = 3  # the exit status after an error that the GPU does not recover from
REDUCTION_AIMS = {"of copy": 0.85, "times torch.sum": 0.9}


def rows_of(device: str, *, is_small: bool) -> dict[str, Row]:
    made = [*messages.rows(device, is_small=is_small), *sequences.rows(device, is_small=is_small)]
    return {row.name: row for row in made}


def reductions_of(*, is_small: bool) -> dict[str, list[reductions.Case]]:
    """Slices of 64 M elements; orders 3 to 5 of 2 M to 128 M."""
    if is_small:
        return {
            "reduce-slices": [*reductions.slices(1 << 12)][::12],
            "reduce-2^12": [*reductions.orders(1 << 12)][::12],
        }
    sizes = {f"reduce-2^{power}": [*reductions.orders(1 << power)] for power in range(21, 28)}
    return {"reduce-slices": [*reductions.slices(1 << 26)], **sizes}


def serve(device: str, *, is_small: bool) -> None:
    """Names in, one a line; answers out."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")

    def tell(answer: Answer) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    sizes = (60, 1 << 10) if is_small else (messages.REDDIT.nodes, 1 << 24)
    machine = measure_machine(device, messages.WIDTHS[:1] if is_small else messages.WIDTHS, *sizes)
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU in place of a GPU"
    rates = {"copy": machine.copy, "gather": machine.gather}
    tell({"machine": {"name": name, "torch": torch.__version__, "machine": rates}})
    rows, cases = rows_of(device, is_small=is_small), reductions_of(is_small=is_small)
    budget = 0.0 if is_small else 0.25
    for line in sys.stdin:
        name = line.strip()
        try:
            if name in rows:
                results = of_row(rows[name], device, machine, budget)
            else:
                results = of_cases(cases[name], device, budget / 5)
            for found in results:
                tell({"result": found})
        except Exception as error:
            tell({"result": {"row": name, "problem": f"{type(error).__name__}: {error}"}})
        if device == "cuda" and is_broken():
            sys.exit(BROKEN)  # without a last word: the row is the one to blame
        tell({"done": name})
        tidy(device)


def is_broken() -> bool:
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


# ---------------------------------------------------------------- one row
def of_row(row: Row, device: str, machine: Machine, budget: float) -> Iterator[Answer]:
    """Its results, and how they compare with the CPU's."""
    checked = check(row, device)
    with shim() if device == "cpu" else contextlib.nullcontext():
        for found in measure(row, device, budget, machine):
            mine = found["sides"]["vgraph"]
            failed = {} if "seconds" in mine else {"problem": f"vgraph does not run: {mine.get('problem')}"}
            yield {**found, **failed, **checked}


@contextlib.contextmanager
def shim() -> Iterator[list[str]]:
    """Kernels for a GPU on the CPU, as the tests run them; reductions run as the CPU's."""
    sys.path.insert(0, str(PROJECT))
    stand_in: Any = importlib.import_module("tests.cuda.shim")
    stand_in.launched.clear()
    with stand_in.in_place_of_cpu():
        yield stand_in.launched


def check(row: Row, device: str) -> Answer:
    """How far results lie from torch's operators on the CPU, in bounds; a problem if that is far or two runs differ."""
    capture.forget()
    os.environ["VGRAPH_KERNELS"] = "0"
    try:
        wanted = row.check("cpu")
    finally:
        capture.forget()
        os.environ["VGRAPH_KERNELS"] = "1"
    with shim() if device == "cpu" else contextlib.nullcontext() as launched:
        first, second = row.check(device), row.check(device)
    if launched is not None and not launched:
        return {"problem": "no kernel for a GPU ran"}
    apart = deviation(first, wanted, row.degree)
    found: Answer = {"of the bound": apart}
    if not all(torch.equal(a, b) for a, b in zip(first, second, strict=True)):
        return found | {"problem": "two runs differ"}
    return found if apart <= 1 else found | {"problem": f"{apart:.2g} times the bound from the CPU's results"}


# ---------------------------------------------------------------- reductions
def of_cases(cases: list[reductions.Case], device: str, budget: float) -> Iterator[Answer]:
    for case in cases:
        try:
            yield of_case(case, device, budget)
        except Exception as error:
            yield {"row": f"reduce {case[0]}, {case[1]}", "problem": f"{type(error).__name__}: {error}"}
        tidy(device)


def of_case(case: reductions.Case, device: str, budget: float) -> Answer:
    found = reductions.measure(case, device, budget)
    t = found["seconds"]
    told = {"of copy": t["copy"] / 2 / t["vgraph"], "times torch.sum": t["torch.sum"] / t["vgraph"]}
    told["times a launch a mode"] = t["launch a mode"] / t["vgraph"]
    aims = REDUCTION_AIMS if found["bytes"] >= 64e6 else {"times torch.sum": 0.9}
    sides = {name: {"seconds": seconds} for name, seconds in t.items()}
    name = f"reduce {case[0]}, {found['bytes'] / 2**20:.3g} MiB"
    return {"row": name, "sides": sides, "figures": told, "aims": aims}
