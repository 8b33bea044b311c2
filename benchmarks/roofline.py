"""What this machine can do: copy, gather of random rows by row size, multiplication of matrices.

Takes two seconds and knows nothing of vgraph. Every benchmark divides the floor, the time that its
bytes, its gathered rows and its arithmetic need at these rates, by the time it measured.

Gathers are timed by a small loop in C that adds rows up in registers, where there is a compiler, and by
torch.index_select where there is none (which also writes them; the table says which).

usage: roofline.py [--rows 100000] [--threads N] [--json FILE] [--smoke]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

TILE = 32  # floats
WIDTHS = (4, 8, 16, 32, 64, 128, 256)  # floats a row
AHEAD = ((1, 8), (2, 32))  # into which cache rows are fetched, and how many rows ahead: the faster of the two counts
LEAST, SAMPLE = 500_000, 4_000_000  # edges that gathers are timed on
LOOP = """
#include <stdint.h>
#define GATHER(W, L, KEPT, CACHE, FAR) /* L floats a vector, KEPT in registers; into which cache, how far */ \\
  void gather##W##_##CACHE(const float* x, const int32_t* ids, int64_t n, float* out) { \\
    typedef float vector##W __attribute__((vector_size(4 * L), aligned(4))); \\
    vector##W sum[KEPT] = {}; \\
    for (int64_t i = 0; i < n; i++) { \\
      const float* ahead = x + (int64_t)ids[i + FAR < n ? i + FAR : i] * W; \\
      for (int j = 0; j < W; j += 16) __builtin_prefetch(ahead + j, 0, 4 - CACHE); \\
      const vector##W* row = (const vector##W*)(x + (int64_t)ids[i] * W); \\
      for (int k = 0; k < W / L; k += KEPT) \\
        for (int j = 0; j < KEPT; j++) sum[j] += row[k + j]; \\
    } \\
    for (int j = 0; j < KEPT; j++) ((vector##W*)out)[j] = sum[j]; \\
  }
"""


def this_machine() -> dict[str, str]:
    """What figures were measured with: processor, number of cores, vectors as torch names them, version of torch."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor()
    vectors = torch.backends.cpu.get_cpu_capability()
    return {"processor": f"{name}, {os.cpu_count()} cores", "vectors": vectors, "torch": torch.__version__}


def best_seconds(run: Callable[[], object], budget: float = 0.12, least: int = 2) -> float:
    """The shortest of the runs that fit into the budget: the rate that nothing disturbed."""
    times: list[float] = []
    end = time.perf_counter() + budget
    while len(times) < least or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


@cache
def compiled_gathers() -> ctypes.CDLL | None:
    """The loop in C for every width, where a compiler is found."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix="roofline-"))
    source, library = folder / "gather.c", folder / "gather.so"
    sizes = [f"{w}, {min(w, 16)}, {max(1, min(w, 64) // 16)}" for w in WIDTHS]
    source.write_text(LOOP + "".join(f"GATHER({size}, {cache}, {far})\n" for size in sizes for cache, far in AHEAD))
    flags = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
    try:
        subprocess.run([compiler, *flags, str(source), "-o", str(library)], check=True, capture_output=True)
        return ctypes.CDLL(str(library))
    except (OSError, subprocess.CalledProcessError):
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Machine:
    """Rates of this machine with so many threads: bytes and operations a second."""

    threads: int
    copy: float
    gemm: float
    edge: float  # seconds of one edge on one thread, all in cache
    by: str  # what gathers were timed with
    known: dict[tuple[int, int, int], tuple[float, Tensor | None]] = field(default_factory=dict)

    def gather(self, num_rows: int, width: int, ids: Tensor | None = None) -> float:
        """Bytes a second at which rows of so many floats are gathered from so many, by ids or at random.

        In tiles of 32 floats, as they are of copies (docs/adr/0046), where those are gathered faster than whole rows.
        """
        if width > TILE and width % TILE == 0:
            return max(self._gather(num_rows, width, ids), self._gather(num_rows, TILE, ids))
        return self._gather(num_rows, width, ids)

    def _gather(self, num_rows: int, width: int, ids: Tensor | None) -> float:
        at_width = next((w for w in WIDTHS if w >= width), WIDTHS[-1])
        key = (num_rows, at_width, 0 if ids is None else ids.data_ptr())
        if key not in self.known:
            self.known[key] = (time_gather(num_rows, at_width, ids, self.threads), ids)
        return self.known[key][0]


def time_gather(num_rows: int, width: int, ids: Tensor | None, threads: int) -> float:
    if ids is None:
        ids = torch.randint(num_rows, (min(SAMPLE, 32_000_000 // width),))
    ids = ids[:SAMPLE].to(torch.int32).contiguous()
    if 0 < len(ids) < LEAST:  # long enough that starting threads takes no time beside it
        ids = ids.repeat(-(-LEAST // len(ids)))
    x = torch.from_numpy(
        np.ones((num_rows, width), np.float32)
    )  # NumPy asks for large pages, as vgraph's own memory does
    loops = compiled_gathers()
    if loops is None:
        out = x.new_empty(len(ids), width)
        seconds = best_seconds(lambda: torch.index_select(x, 0, ids, out=out))
    else:
        ways = (getattr(loops, f"gather{width}_{cache}") for cache, _ in AHEAD)
        seconds = min(best_seconds(gather_in_threads(way, x, ids, threads)) for way in ways)
    return len(ids) * width * 4 / seconds


def gather_in_threads(loop: Callable[..., None], x: Tensor, ids: Tensor, threads: int) -> Callable[[], None]:
    """ctypes lets go of the interpreter, so that threads of Python's are enough."""
    pool, outs = ThreadPoolExecutor(threads), torch.empty(threads, x.shape[1])
    bounds = [len(ids) * i // threads for i in range(threads + 1)]

    def part(i: int) -> None:
        at, count = ids.data_ptr() + bounds[i] * 4, bounds[i + 1] - bounds[i]
        loop(
            *(ctypes.c_void_p(p) for p in (x.data_ptr(), at)),
            ctypes.c_int64(count),
            ctypes.c_void_p(outs[i].data_ptr()),
        )

    return lambda: list(pool.map(part, range(threads))) and None


def measure(threads: int | None = None, budget: float = 0.3) -> Machine:
    """The machine's rates as they are now."""
    threads = threads or torch.get_num_threads()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    a, b = torch.ones(32_000_000), torch.ones(32_000_000)
    copy = 2 * a.numel() * 4 / best_seconds(lambda: b.copy_(a), budget)
    m = torch.randn(1024, 1024)
    out = torch.empty_like(m)
    gemm = 2 * 1024**3 / best_seconds(lambda: torch.mm(m, m, out=out), budget)
    torch.set_num_threads(before)
    edge = 16 / time_gather(1000, 4, None, 1)
    return Machine(threads, copy, gemm, edge, "a loop in C" if compiled_gathers() else "torch.index_select")


@dataclass(frozen=True)
class Pass:
    """One sweep over the edges that gathers ``width`` floats for each, and writes ``width`` a vertex."""

    edges: int
    vertices: int
    width: int
    ids: Tensor | None = None

    def floor(self, machine: Machine) -> float:
        rows = self.vertices * self.width * 4
        needed = 2 * rows + self.edges * 4 + self.vertices * 8
        gathered = self.edges * self.width * 4 / machine.gather(self.vertices, self.width, self.ids)
        return max(needed / machine.copy, gathered, self.edges * machine.edge / machine.threads)


def floor_seconds(machine: Machine, passes: Sequence[Pass] = (), *, flops: float = 0, bytes_: float = 0) -> float:
    """What sweeps over edges, arithmetic and further bytes cannot be faster than, one after the other."""
    return sum(sweep.floor(machine) for sweep in passes) + flops / machine.gemm + bytes_ / machine.copy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="of the table that rows are gathered from")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    machine = measure(options.threads)
    rows = 1000 if options.smoke else options.rows
    gathers = {width: machine.gather(rows, width) for width in WIDTHS}
    print(f"{machine.threads} threads; gathers timed by {machine.by}, from {rows} rows")
    print(
        f"copy {machine.copy / 1e9:.1f} GB/s   gemm {machine.gemm / 1e9:.0f} GFLOP/s   edge {machine.edge * 1e9:.2f} ns"
    )
    for width, rate in gathers.items():
        print(f"gather of {width:4} floats  {rate / 1e9:6.1f} GB/s   {rate / 4 / width / 1e6:7.0f} M rows/s")
    if options.json:
        found = {"threads": machine.threads, "copy": machine.copy, "gemm": machine.gemm, "edge": machine.edge}
        options.json.write_text(json.dumps({**found, "rows": rows, "gather": gathers, "by": machine.by}, indent=1))


if __name__ == "__main__":
    main()
