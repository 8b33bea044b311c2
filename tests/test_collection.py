"""What is put off while a function is recorded or a plan is searched for, and what that does to young objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from vgraph.collection import uncollected


@pytest.fixture(autouse=True)
def _nothing_is_frozen() -> Iterator[None]:
    """What was there before any test is, otherwise."""
    gc.unfreeze()
    yield
    gc.freeze()


def is_old(thing: object) -> bool:
    return any(one is thing for one in gc.get_objects(generation=2))


@pytest.mark.parametrize("ages", [False, True])
def test_young_objects_age_only_where_it_is_asked(ages: bool) -> None:
    gc.collect()
    with uncollected(ages=ages):
        assert not gc.isenabled()
        made = [object()]
    assert gc.isenabled() and is_old(made) == ages


def test_a_block_within_another_leaves_collection_off() -> None:
    with uncollected():
        with uncollected(ages=True):
            made = [object()]
        assert not gc.isenabled() and not is_old(made)
    assert gc.isenabled()


def test_what_a_program_has_frozen_stays_so() -> None:
    held = [object()]
    gc.freeze()
    try:
        with uncollected(ages=True):
            pass
        assert not is_old(held), "what is frozen is of no generation"
    finally:
        gc.unfreeze()
    assert is_old(held)
