"""A few cases of every fuzzer; ``make campaign`` runs as many as each of them asks for."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

import pytest

from tests.campaign import fuzzers
from tests.campaign.__main__ import main
from tests.campaign.limits import LIMITS
from tests.tables import thorough

HALVED = ("messages", "plans", "staleness", "vertex_functions")  # what draws every case from the same distribution


@pytest.mark.parametrize(
    ("name", "half"),
    [*((name, 0) for name in fuzzers()), *(pytest.param(name, 1, marks=thorough) for name in HALVED)],
)
def test_a_few_cases(name: str, half: int) -> None:
    fuzzer = fuzzers()[name]
    count = fuzzer.SHORT_COUNT // 2 if name in HALVED else fuzzer.SHORT_COUNT
    failures = fuzzer.run(count, half * count)
    if failures:
        pytest.fail("\n".join([f"of {count} cases {len(failures)} failed:", *failures]), pytrace=False)


@pytest.mark.parametrize("name", LIMITS)
def test_small_limits_are_limits_of_the_library(name: str) -> None:
    module, _, limit = name.rpartition(".")
    assert type(getattr(import_module(f"vgraph.{module}"), limit)) is int


def _odd_ones_fail(count: int, seed: int) -> list[str]:
    return [f"seed {case} is odd" for case in range(seed, seed + count) if case % 2]


ODD = {"odd": SimpleNamespace(run=_odd_ones_fail, FULL_COUNT=1000, SHORT_COUNT=1)}


@pytest.mark.parametrize(("count", "seed", "failed"), [(1, 0, 0), (1, 1, 1), (500, 3, 250)])
def test_failures_are_listed(count: int, seed: int, failed: int, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["odd", "--count", str(count), "--seed", str(seed)], ODD)
    shown = capsys.readouterr()
    assert code == (1 if failed else 0)
    assert shown.out.count("is odd") == failed
    assert f"odd: {count} cases from seed {seed}, {failed} failed" in shown.out
    assert not shown.err  # no bar where there is no terminal


def test_the_full_count_is_the_fuzzers_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], ODD) == 1
    assert "odd: 1000 cases from seed 0, 500 failed" in capsys.readouterr().out


def test_minutes_are_a_bound(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--minutes", "1e-9"], ODD) == 0
    assert "odd: 0 cases" in capsys.readouterr().out


def test_an_unknown_fuzzer_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["even"], ODD)
    assert "there is no fuzzer even; there are odd" in capsys.readouterr().err
