"""PyG's own tests, first as they are and then with every layer and sampler accelerated, test by test.

Takes: a folder with PyG's sources of the release that is installed, and which tests. Gives: what passes without
acceleration and not with it. Runs by hand; the same file is the plugin of pytest that does either. Both sides draw the
same numbers. Where they are accelerated, tests of loaders that PyG skips for want of a package are not skipped.

usage: python -m tests.compat.pyg_own FOLDER [test/nn/conv ...]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch

from vgraph.compat.pyg import accelerated

_LAYERS = [f"test/nn/{what}" for what in ("conv", "aggr", "models", "norm", "pool")]
TESTS = (*_LAYERS, "test/loader", "test/sampler")
_BREAKS = "each accelerated layer is a graph break under torch.compile"
_MAKES_ONE = "makes a SparseTensor besides, which is torch-sparse's own"
_NAMES_THEM = "compares pyg-lib with torch-sparse and calls them by name"
EXCEPTED = {
    "test_compile_graph_breaks": _BREAKS,
    "test_compile_hetero_conv_graph_breaks": _BREAKS,
    "test_compile_multi_aggr_sage_conv": _BREAKS,
    "test_hgt_loader": _MAKES_ONE,
    "test_neighbor_sampler_basic": _MAKES_ONE,
    "test_shadow_k_hop_sampler": _MAKES_ONE,
    "test_pyg_lib_and_torch_sparse_homo_equality": _NAMES_THEM,
    "test_pyg_lib_and_torch_sparse_hetero_equality": _NAMES_THEM,
}
_OPTIONS = ["-p", "no:xdist", "-q", "--tb=line", "-o", "addopts=", "-m", "not rag and not dataset"]
_ROOT = Path(__file__).parents[2]
_SIDE, _FOUND = "VGRAPH_PYG_SIDE", "VGRAPH_PYG_FOUND"
_RANKS = ("passed", "skipped", "failed")  # what a test is called when its parts differ: the last of these
_PACKAGES = ("pyg_lib", "torch_sparse")
_FLAGS = ("WITH_PYG_LIB", "WITH_EDGE_TIME_NEIGHBOR_SAMPLE", "WITH_WEIGHTED_NEIGHBOR_SAMPLE")
_open = ExitStack()
_Collecting = Generator[None, pytest.CollectReport, pytest.CollectReport]


# ---------------------------------------------------------------- the plugin
def is_accelerated() -> bool:
    return os.environ.get(_SIDE) == "accelerated"


def pytest_configure() -> None:
    if is_accelerated():
        _open.enter_context(accelerated())


def pytest_unconfigure() -> None:
    _open.close()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> _Collecting:
    """Tests of loaders are collected as if what they ask for were installed."""
    if not is_accelerated() or collector.path.parent.name not in ("loader", "sampler"):
        return (yield)
    from torch_geometric import testing, typing
    from torch_geometric.testing import decorators

    has = decorators.has_package
    with ExitStack() as stack:
        for flag in _FLAGS:
            stack.enter_context(patch.object(typing, flag, new=True))
        stack.enter_context(patch.object(decorators, "WITH_PYG_LIB", new=True))
        stack.enter_context(patch.object(decorators, "has_package", lambda name: name in _PACKAGES or has(name)))
        stack.enter_context(patch.object(testing, "withMETIS", lambda test: test))
        return (yield)


def pytest_runtest_setup() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One line for each part of a test."""
    with Path(os.environ[_FOUND]).open("a") as found:
        why = report.longreprtext.strip().rsplit("\n", 1)[-1] if report.failed else ""
        found.write(json.dumps([report.nodeid, report.outcome, why]) + "\n")


# ---------------------------------------------------------------- both sides
def outcomes(folder: Path, tests: list[str], side: str) -> dict[str, tuple[str, str]]:
    """What each test did, and the last line of its error."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "found"
        path.touch()
        command = [sys.executable, "-m", "pytest", "-p", "tests.compat.pyg_own", *_OPTIONS]
        command += ["-c", str(folder / "pyproject.toml"), *(str(folder / test) for test in tests)]
        environment = {**os.environ, _SIDE: side, _FOUND: str(path), "OMP_NUM_THREADS": "2"}  # one asks for two
        code = subprocess.run(command, cwd=_ROOT, env=environment, check=False).returncode
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):  # nothing was compared
            raise SystemExit(f"pytest ended with {code} {side}, as it does where a file or folder is not there")
        found: dict[str, tuple[str, str]] = {}
        for line in path.read_text().splitlines():
            test, outcome, why = json.loads(line)
            found[test] = max(found.get(test, (_RANKS[0], "")), (outcome, why), key=lambda one: _RANKS.index(one[0]))
    return found


def main() -> int:
    """Prints counts of both sides and each test that does another thing on the other side."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="PyG's sources, with test/ and pyproject.toml")
    parser.add_argument("tests", nargs="*", default=list(TESTS))
    given = parser.parse_args()
    theirs, ours = (outcomes(given.folder.resolve(), given.tests, side) for side in ("as PyG runs it", "accelerated"))
    lost = 0
    for test in sorted(theirs.keys() | ours.keys()):
        before, after = theirs.get(test, ("missing", "")), ours.get(test, ("missing", ""))
        if before[0] == after[0]:
            continue
        reason = EXCEPTED.get(test.rsplit("::", 1)[-1].split("[", 1)[0])
        lost += after[0] != "passed" and reason is None
        print(f"{test}: {before[0]}, accelerated {after[0]}. {reason or after[1] or before[1]}")
    for side, found in (("as PyG runs it", theirs), ("accelerated", ours)):
        print(f"{side}: {dict(Counter(outcome for outcome, _ in found.values()))}")
    print(f"{lost} do not pass when they are accelerated, which passed or were skipped, besides what is excepted")
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
