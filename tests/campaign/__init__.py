"""The campaign: fuzzers that run for as long as one likes, each with a count and a seed.

A fuzzer is a module of this package with

- ``run(count, seed)``, which tries the cases ``seed``, ``seed + 1``, ..., ``seed + count - 1`` and gives a description
  of each that failed; it names the case's own seed, so that ``run(1, that seed)`` repeats it alone;
- ``FULL_COUNT``, the cases of ``make campaign``, and ``SHORT_COUNT``, those of an ordinary test (a few seconds).

``python -m tests.campaign NAME... [--count N] [--seed S] [--minutes M]`` runs them.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Protocol, cast


class Fuzzer(Protocol):
    """What a module of this package has that is a fuzzer."""

    FULL_COUNT: int
    SHORT_COUNT: int

    def run(self, count: int, seed: int) -> list[str]: ...


def fuzzers() -> dict[str, Fuzzer]:
    """The modules of this package that are fuzzers, by name."""
    names = [found.name for found in pkgutil.iter_modules(__path__)]
    modules = {name: import_module(f"tests.campaign.{name}") for name in names if not name.startswith(("test_", "__"))}
    return {name: cast(Fuzzer, module) for name, module in modules.items() if hasattr(module, "FULL_COUNT")}
