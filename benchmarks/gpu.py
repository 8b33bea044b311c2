"""Everything on a GPU: its tests, then every row beside the other ways, in under eight minutes.

Sums over in-edges at Reddit's size, attention, pairs of functions, trees, sequences, reductions over modes:
beside cuSPARSE through torch, PyG eager and compiled, cuDNN's LSTM, torch.sum, and the floor that this machine's
own copy and gather rates set. Results are those of the CPU within the bound of rounding, and two runs are
bitwise equal; else the command fails. Writes gpu.json, gpu.md and gpu.svg.

    python benchmarks/gpu.py [--rows gcn-* ...] [--minutes 8] [--out benchmarks/results] [--no-tests]
    python benchmarks/gpu.py --shim --smoke   # no GPU: tiny, kernels for a GPU run on the CPU
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import importlib
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import reductions
import torch
from device import messages, report, sequences
from device.row import Clock, Machine, Row, beside_sum, deviation, measure, measure_machine, tidy
from tqdm import tqdm

from vgraph.api import capture
from vgraph.runtime import cuda

PROJECT = Path(__file__).resolve().parents[1]
REDUCTION_AIMS = {"of copy": 0.85, "times torch.sum": 0.9}


@contextlib.contextmanager
def shim() -> Iterator[list[str]]:
    """Kernels for a GPU on the CPU, as the tests run them; reductions run as the CPU's."""
    sys.path.insert(0, str(PROJECT))
    stand_in: Any = importlib.import_module("tests.cuda.shim")
    stand_in.launched.clear()
    with stand_in.in_place_of_cpu():
        yield stand_in.launched


def check(row: Row, device: str, place: contextlib.AbstractContextManager[Any]) -> float:
    """Beside torch's operators on the CPU; two runs are bitwise equal."""
    capture.forget()
    os.environ["VGRAPH_KERNELS"] = "0"
    wanted = row.check("cpu")
    capture.forget()
    os.environ["VGRAPH_KERNELS"] = "1"
    with place as launched:
        first, second = row.check(device), row.check(device)
    if launched is not None and not launched:
        raise SystemExit(f"{row.name}: no kernel for a GPU ran")
    if not all(torch.equal(a, b) for a, b in zip(first, second, strict=True)):
        raise SystemExit(f"{row.name}: two runs differ")
    apart = deviation(first, wanted, row.degree)
    if not apart <= 1:
        raise SystemExit(f"{row.name}: {apart:.2g} times the bound from the CPU's results")
    return apart


def reduction_rows(device: str, budget: float, *, is_small: bool) -> Iterator[dict[str, Any]]:
    """Slices of 64 M elements; orders 3 to 5 of 2 M to 128 M."""
    cases = [*reductions.slices(1 << (12 if is_small else 26))]
    for power in (12,) if is_small else range(21, 28):
        cases += reductions.orders(1 << power)
    for case in cases[::12] if is_small else cases:
        found = reductions.measure(case, device, budget)
        t = found["seconds"]
        told = {"of copy": t["copy"] / 2 / t["vgraph"], "times torch.sum": t["torch.sum"] / t["vgraph"]}
        told["times a launch a mode"] = t["launch a mode"] / t["vgraph"]
        aims = REDUCTION_AIMS if found["bytes"] >= 64e6 else {"times torch.sum": 0.9}
        sides = {name: {"seconds": seconds} for name, seconds in t.items()}
        name = f"reduce {case[0]}, {found['bytes'] >> 20} MiB"
        yield {"row": name, "sides": sides, "figures": told, "aims": aims}
        tidy(device)


def rows_of(device: str, *, is_small: bool) -> list[Row]:
    return [*messages.rows(device, is_small=is_small), *sequences.rows(device, is_small=is_small)]


def run_tests() -> None:
    """The tests of kernels for GPUs; what fails ends the command."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/cuda/test_on_gpu.py"]
    if subprocess.run(command, cwd=PROJECT, check=False).returncode:
        raise SystemExit("the tests fail")


def run(given: argparse.Namespace, device: str, machine: Machine, clock: Clock) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU in place of a GPU"
    rates = {"copy": machine.copy, "gather": machine.gather}
    found: dict[str, Any] = {"device": device, "name": name, "torch": torch.__version__, "machine": rates, "rows": []}
    budget = 0.0 if given.smoke else 0.25
    for row in tqdm(rows_of(device, is_small=given.smoke), disable=None):
        if not any(fnmatch.fnmatch(row.name, pattern) for pattern in given.rows):
            continue
        if clock.left() < 60:
            print(f"{row.name}: left out, the time is up")
            continue
        apart = check(row, device, shim() if device == "cpu" else contextlib.nullcontext())
        with shim() if device == "cpu" else contextlib.nullcontext():
            measured = measure(row, device, budget, machine)
        found["rows"].append(measured | {"of the bound": apart})
        beside_sum(found["rows"])
        report.write(given.out, found)
        tidy(device)
    if any(fnmatch.fnmatch("reduce", pattern) for pattern in given.rows):
        for measured in reduction_rows(device, budget / 5, is_small=given.smoke):
            found["rows"].append(measured)
            if clock.left() < 5:
                print("reductions: the others are left out, the time is up")
                break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", default=["*"], help="names or patterns; reduce: the reductions")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--no-tests", action="store_true", help="measure at once")
    parser.add_argument("--shim", action="store_true", help="on the CPU; with --smoke")
    parser.add_argument("--smoke", action="store_true", help="tiny; the figures mean nothing")
    given = parser.parse_args()
    clock, lacking = Clock(60 * given.minutes), cuda.missing()
    device = "cpu" if given.shim or (given.smoke and lacking) else "cuda"
    if device == "cuda" and lacking:
        raise SystemExit(f"{lacking}; without a GPU: gpu.py --shim --smoke")
    if device == "cpu" and not given.smoke:
        raise SystemExit("--shim runs one thread after the other: give --smoke, too")
    warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
    with tempfile.TemporaryDirectory() as room:
        given.out = given.out or (Path(room) if given.smoke else PROJECT / "benchmarks" / "results")
        if device == "cuda" and not given.no_tests:
            run_tests()
        sizes = (60, 1 << 10) if given.smoke else (messages.REDDIT.nodes, 1 << 24)
        machine = measure_machine(device, messages.WIDTHS[:1] if given.smoke else messages.WIDTHS, *sizes)
        tell(given, run(given, device, machine, clock))


def tell(given: argparse.Namespace, found: dict[str, Any]) -> None:
    report.write(given.out, found)
    report.draw(given.out, found)
    print("\n".join(report.lines(found)))
    print("results equal to the CPU's within the bound, two runs bitwise equal: all of the rows above")
    if found["device"] != "cuda":
        aims = [(row.name, row.aims) for row in rows_of("cuda", is_small=False)]
        print("\n".join(report.open_figures([*aims, ("reduce, 64 MB and more", REDUCTION_AIMS)])))


if __name__ == "__main__":
    main()
