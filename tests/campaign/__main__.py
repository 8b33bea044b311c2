"""Runs fuzzers: ``python -m tests.campaign NAME... [--count N] [--seed S] [--minutes M]``.

Without names all of them run, and share the minutes. Failures are told as they are found, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from tqdm import tqdm

from tests.campaign import Fuzzer, fuzzers
from vgraph.fusion.cpu import build

SLICES = 200  # of a fuzzer's cases; between them the clock is looked at


def main(words: Sequence[str] | None = None, known: Mapping[str, Fuzzer] | None = None) -> int:
    """The exit code: 1 where a case failed."""
    known = fuzzers() if known is None else known
    parser = argparse.ArgumentParser("python -m tests.campaign", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; all, if none is named")
    parser.add_argument("--count", type=int, help="cases of each; without it, those of a full campaign")
    parser.add_argument("--seed", type=int, default=0, help="the first case")
    parser.add_argument("--minutes", type=float, help="in all; what has not been tried by then is left out")
    given = parser.parse_args(words)
    unknown = [name for name in given.names if name not in known]
    if unknown:
        parser.error(f"there is no fuzzer {', '.join(unknown)}; there are {', '.join(known)}")
    return 1 if run_all({name: known[name] for name in given.names or known}, given) else 0


def run_all(chosen: Mapping[str, Fuzzer], given: argparse.Namespace) -> int:
    """Runs them one after the other; how many cases failed."""
    end = time.monotonic() + 60 * given.minutes if given.minutes else float("inf")
    failed = 0
    for left, (name, fuzzer) in zip(range(len(chosen), 0, -1), chosen.items(), strict=True):
        count = fuzzer.FULL_COUNT if given.count is None else given.count
        deadline = time.monotonic() + (end - time.monotonic()) / left
        failed += tried(name, fuzzer, count, given.seed, deadline)
    return failed


def tried(name: str, fuzzer: Fuzzer, count: int, seed: int, deadline: float) -> int:
    """How many of ``count`` cases failed, or of those that began before the deadline."""
    step, done, failed = max(1, count // SLICES), 0, 0
    with tqdm(total=count, desc=name, unit="case", disable=None) as bar:
        while done < count and time.monotonic() < deadline:
            size = min(step, count - done)
            failures = fuzzer.run(size, seed + done)
            for failure in failures:
                tqdm.write(f"{name}: {failure}")
            done, failed = done + size, failed + len(failures)
            bar.update(size)
            bar.set_postfix(failed=failed)
    print(f"{name}: {done} cases from seed {seed}, {failed} failed", flush=True)
    return failed


def refuse(line: str) -> None:
    """A kernel that no compiler takes is a failure: torch's operators would give the same result in its place."""
    raise RuntimeError(line)


if __name__ == "__main__":
    build.warn = refuse
    with tempfile.TemporaryDirectory(prefix="vgraph-campaign-") as folder:
        os.environ.setdefault("VGRAPH_CACHE_DIR", folder)  # the user's own is not for thousands of random kernels
        sys.exit(main())
