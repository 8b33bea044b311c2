"""The staleness fuzzer: what it draws, and that it sees a stale result."""

from __future__ import annotations

from typing import Any

import pytest

from tests.campaign import staleness
from tests.campaign.hosts import HOSTS
from tests.campaign.programs import VIAS
from tests.campaign.staleness import FULL_COUNT, case_of
from vgraph.capture import capture


def test_a_full_campaign_has_many_combinations() -> None:
    cases = [case_of(seed) for seed in range(FULL_COUNT)]
    assert len({(case.reading.name, case.changes[0], case.host.name) for case in cases}) >= 900
    assert {case.host.name for case in cases} == {host.name for host in HOSTS}
    assert {case.via.name for case in cases} == {via.name for via in VIAS}
    names = [reading.name for reading in staleness.READINGS]
    assert len(names) == len(set(names)) >= 200


def test_programs_run_by_plain_python() -> None:
    """Before any change all but a few give a result: what always fails says nothing of staleness."""
    ran = [_plainly(seed) for seed in range(0, 1000, 7)]
    assert sum(isinstance(outcomes[0], str) for outcomes in ran) < len(ran) / 20
    changed = sum(not staleness._same(outcomes[0], outcomes[-1]) for outcomes in ran)
    assert changed > 0.8 * len(ran)


def _plainly(seed: int) -> Any:
    with staleness._quiet():
        return staleness._outcomes(case_of(seed), staleness.plain, staleness.plain.function)


def test_a_guard_that_sees_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VGRAPH_CAPTURE", raising=False)  # numbers alone are to tell, not the oracle
    make_check = capture.make_check

    def blind(*args: Any) -> Any:
        check, known = make_check(*args), list[Any]()

        def accept(roots: Any) -> Any:
            known.append(known[0] if known else check(roots))
            return known[0]

        return accept

    seeds = [seed for seed in range(2000) if case_of(seed).reading.name == "a global"][:8]
    assert not any(staleness.run(1, seed) for seed in seeds if not case_of(seed).via.is_module)
    monkeypatch.setattr(capture, "make_check", blind)
    failures = [failure for seed in seeds for failure in staleness.run(1, seed)]
    assert len(failures) > len(seeds) / 2
    assert all(f"seed {seed}: a global" in " ".join(failures) for seed in seeds[:1])
    assert "plain Python gives" in failures[0]
