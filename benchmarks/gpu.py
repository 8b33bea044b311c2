"""Everything on a GPU: its tests, then every row beside the other ways, in under eight minutes.

Sums over in-edges at Reddit's size, attention, pairs of functions, trees, sequences, reductions over modes:
beside cuSPARSE through torch, PyG eager and compiled, cuDNN's LSTM, torch.sum, and the floor that this machine's
own copy and gather rates set. Each row first checks that results are those of the CPU within the bound of rounding,
and two runs bitwise equal. Writes gpu.json, gpu.md and gpu.svg, after every result.

Rows run in a process of their own. One that fails, hangs or takes the GPU's context along is noted and left out; the
others run. Each section has a share of the time, so that none starves the next. The command fails if a row did.

    python benchmarks/gpu.py [--rows gcn-* ...] [--minutes 8] [--out benchmarks/results] [--no-tests]
    python benchmarks/gpu.py --shim --smoke   # no GPU: tiny, kernels for a GPU run on the CPU
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from device import report
from device.row import beside_sum
from device.worker import BROKEN, REDUCTION_AIMS, reductions_of, rows_of, serve
from tqdm import tqdm

from vgraph.runtime.cuda import driver as cuda

PROJECT = Path(__file__).resolve().parents[1]
TESTS = 90.0  # seconds
SECTIONS = {"gcn-*": 115, "gat*": 80, "udf-*": 60, "tree-*": 70, "[vc]*": 45, "reduce-*": 50}  # seconds of each
SPARE, GRACE = 20.0, 25.0  # what no row begins in; how far one may run beyond its section's end


class Worker:
    """A process that runs rows; its answers are read without waiting longer than one may."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answers: queue.Queue[str] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("")

    def ask(self, name: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, which its answers say, too
            self.process.stdin.write(name + "\n")
            self.process.stdin.flush()

    def answered(self, until: float) -> Iterator[dict[str, Any]]:
        """What it says of one row; a problem where it ends or takes too long."""
        while True:
            try:
                line = self.answers.get(timeout=max(0.1, until - time.monotonic()))
            except queue.Empty:
                self.end()
                yield {"problem": "it took too long and was ended"}
                return
            if not line:
                status = self.process.wait()
                self.end()
                why = "an error that the GPU does not recover from" if status == BROKEN else f"status {status}"
                yield {"problem": f"its process ended: {why}"}
                return
            found = json.loads(line)
            yield found
            if "done" in found:
                return

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


def sections(names: list[str], start: float, share: float) -> Iterator[tuple[float, list[str]]]:
    """When each section ends, and its rows; what one leaves of its time goes to the next ones."""
    end = start
    for pattern, seconds in SECTIONS.items():
        end += seconds * share
        yield end, [name for name in names if fnmatch.fnmatch(name, pattern)]


def run(given: argparse.Namespace, names: list[str], found: dict[str, Any], until: float) -> None:
    """All rows; ``found`` is written after every answer."""
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", *["--smoke"] * given.smoke]
    command += ["--shim"] * (found["device"] == "cpu")
    share = 1e6 if given.smoke else max(0.05, (until - time.monotonic()) / sum(SECTIONS.values()))
    worker = Worker(command)
    with tqdm(total=len(names), disable=None) as shown:
        for end, wanted in sections(names, time.monotonic(), share):
            for name in wanted:
                shown.update()
                if end - time.monotonic() < SPARE * min(share, 1):
                    note(given, found, {"row": name, "problem": "left out, the time of its section is up"})
                    continue
                worker = worker if worker.is_alive() else Worker(command)
                worker.ask(name)
                take(given, found, name, worker.answered(end + GRACE))
    worker.end()


def take(given: argparse.Namespace, found: dict[str, Any], name: str, answers: Iterator[dict[str, Any]]) -> None:
    for answer in answers:
        if "machine" in answer:
            found.update(answer["machine"])
        elif "result" in answer:
            note(given, found, answer["result"])
        elif "problem" in answer:
            note(given, found, {"row": name, **answer})


def note(given: argparse.Namespace, found: dict[str, Any], result: dict[str, Any]) -> None:
    """In the place of what was known of the row; a problem is added to it."""
    rows = {row["row"]: row for row in found["rows"]}
    known = rows.get(result["row"], {})
    rows[result["row"]] = {**known, **result} if "sides" not in result else result
    found["rows"] = [*rows.values()]
    beside_sum([row for row in found["rows"] if "figures" in row])
    report.write(given.out, found)


def run_tests() -> str:
    """The tests of kernels for GPUs: how they ended."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/cuda/test_on_gpu.py"]
    try:
        done = subprocess.run(command, cwd=PROJECT, check=False, timeout=TESTS, capture_output=True, text=True)
    except subprocess.TimeoutExpired as error:
        said = (error.stdout or b"").decode(errors="replace")
        return f"not done after {TESTS:.0f} s: {said[-500:]}"
    print(done.stdout[-6000:], done.stderr[-2000:])
    return (done.stdout.strip() or done.stderr.strip() or "?").splitlines()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", default=["*"], help="names or patterns, as they stand in the table")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--no-tests", action="store_true", help="measure at once")
    parser.add_argument("--shim", action="store_true", help="on the CPU; with --smoke")
    parser.add_argument("--smoke", action="store_true", help="tiny; the figures mean nothing")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    until, lacking = time.monotonic() + 60 * given.minutes, cuda.missing()
    device = "cpu" if given.shim or (given.smoke and lacking) else "cuda"
    if device == "cuda" and lacking:
        raise SystemExit(f"{lacking}; without a GPU: gpu.py --shim --smoke")
    if device == "cpu" and not given.smoke:
        raise SystemExit("--shim runs one thread after the other: give --smoke, too")
    if given.worker:
        serve(device, is_small=given.smoke)
        return
    with tempfile.TemporaryDirectory() as room:
        given.out = given.out or (Path(room) if given.smoke else PROJECT / "benchmarks" / "results")
        found: dict[str, Any] = {"device": device, "name": "?", "torch": "?", "machine": {"copy": 0.0}, "rows": []}
        if device == "cuda" and not given.no_tests:
            found["tests"] = run_tests()
        names = [*rows_of(device, is_small=given.smoke), *reductions_of(is_small=given.smoke)]
        names = [n for n in names if any(fnmatch.fnmatch(n, pattern) for pattern in given.rows)]
        run(given, names, found, until)
        tell(given, found)


def tell(given: argparse.Namespace, found: dict[str, Any]) -> None:
    print("\n".join(report.lines(found)))
    try:
        report.draw(given.out, found)
    except Exception as error:
        print(f"no picture: {type(error).__name__}: {error}")
    if found["device"] != "cuda":
        aims = [(row.name, row.aims) for row in rows_of("cuda", is_small=False).values()]
        print("\n".join(report.open_figures([*aims, ("reduce, 64 MB and more", REDUCTION_AIMS)])))
    failed = [row["row"] for row in found["rows"] if "problem" in row]
    if failed:
        raise SystemExit(f"with problems: {', '.join(failed)}; everything else is in {given.out}")
    print("results equal to the CPU's within the bound, two runs bitwise equal: all of the rows above")


if __name__ == "__main__":
    main()
