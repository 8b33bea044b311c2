"""Every value of every axis of a table is checked at every change; all of them together, in `make thorough`."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from tests.tables import table


@pytest.mark.parametrize("axes", [("ab",), ("ab", "cde"), ("ab", "cd"), ("abcde", "fg", "hij")], ids="-".join)
def test_a_table_is_whole_and_its_diagonal_has_every_value(axes: tuple[str, ...]) -> None:
    cases = table(*axes)
    assert [case.values for case in cases] == list(product(*axes))
    checked = [case.values for case in cases if not case.marks]
    assert len(checked) == max(map(len, axes))
    assert [set(values) for values in zip(*checked, strict=True)] == [set(axis) for axis in axes]
    assert all([mark.name for mark in case.marks] == ["thorough"] for case in cases if case.marks)


def test_cases_are_named_by_their_values() -> None:
    named = [case.id for case in table([torch.float32, torch.exp], [(2, 3), "sum"])]
    assert named == ["torch.float32-(2, 3)", "torch.float32-sum", "exp-(2, 3)", "exp-sum"]
