"""Reference kernels: segment reductions against loops, random numbers keyed by rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vgraph_kernels import reference

LENGTHS = st.lists(st.integers(0, 4), max_size=6)
WIDTHS = st.sampled_from([(), (1,), (3,), (2, 3)])
DTYPES = st.sampled_from([torch.float64, torch.float32, torch.int64])


def pointers(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *torch.tensor(lengths, dtype=torch.int64).cumsum(0).tolist()])


def rows_of(lengths: list[int], width: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.randint(-3, 4, (sum(lengths), *width)).to(dtype)


def degree_of(lengths: list[int]) -> int | None:
    return lengths[0] if lengths and len(set(lengths)) == 1 else None


@given(LENGTHS, WIDTHS, DTYPES)
@settings(max_examples=60)
def test_sums_and_products(lengths: list[int], width: tuple[int, ...], dtype: torch.dtype) -> None:
    rows, ptr = rows_of(lengths, width, dtype), pointers(lengths)
    parts = list(rows.split(lengths)) if lengths else []
    sums = [p.sum(0, dtype=dtype) for p in parts]
    products = [p.prod(0, dtype=dtype) for p in parts]
    order = torch.randperm(rows.shape[0])
    shuffled = torch.empty_like(rows)
    shuffled[order] = rows
    for degree in {None, degree_of(lengths)}:
        shape = (len(lengths), *width)
        found = reference.segment_sum(rows, None, ptr, degree)
        torch.testing.assert_close(found, torch.stack(sums) if sums else rows.new_zeros(shape))
        by_ids = reference.segment_sum(shuffled, order, ptr, degree)
        torch.testing.assert_close(by_ids, found)
        product = reference.segment_prod(rows, ptr, degree)
        torch.testing.assert_close(product, torch.stack(products) if products else rows.new_ones(shape))


@given(LENGTHS, WIDTHS, DTYPES, st.booleans())
@settings(max_examples=60)
def test_extrema(lengths: list[int], width: tuple[int, ...], dtype: torch.dtype, largest: bool) -> None:
    rows, ptr = rows_of(lengths, width, dtype), pointers(lengths)
    for degree in {None, degree_of(lengths)}:
        best, slots = reference.segment_extremum(rows, ptr, degree, largest)
        assert best.shape == slots.shape == (len(lengths), *width)
        for index, part in enumerate(rows.split(lengths) if lengths else ()):
            if not len(part):
                assert not best[index].any()
                assert bool((slots[index] == -1).all())
                continue
            wanted = part.amax(0) if largest else part.amin(0)
            assert torch.equal(best[index], wanted)
            first = (part == wanted).to(torch.uint8).argmax(0)
            assert torch.equal(slots[index], first)


def test_nan_wins() -> None:
    rows = torch.tensor([1.0, float("nan"), 3.0, 2.0])
    for largest in (True, False):
        best, slots = reference.segment_extremum(rows, torch.tensor([0, 3, 4]), None, largest)
        assert best.isnan().tolist() == [True, False]
        assert slots.tolist() == [1, 0]


@given(LENGTHS, WIDTHS, st.integers(0, 3))
@settings(max_examples=40)
def test_slots_and_their_transposes(lengths: list[int], width: tuple[int, ...], k: int) -> None:
    rows, ptr = rows_of(lengths, width, torch.float64), pointers(lengths)
    values = torch.randn(len(lengths), *width, dtype=torch.float64)
    for degree in {None, degree_of(lengths)}:
        taken = reference.take_slot(rows, ptr, degree, k)
        for index, part in enumerate(rows.split(lengths) if lengths else ()):
            wanted = part[k] if k < len(part) else torch.zeros(width, dtype=torch.float64)
            assert torch.equal(taken[index], wanted)
        put = reference.put_slot(values, ptr, rows.shape[0], degree, k)
        assert put.shape == rows.shape
        torch.testing.assert_close((taken * values).sum(), (rows * put).sum())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_floats_are_summed_in_long_ones(dtype: torch.dtype) -> None:
    rows = torch.ones(4000, 2, dtype=dtype)
    for degree in (None, 4000):
        found = reference.segment_sum(rows, None, torch.tensor([0, 4000]), degree)
        assert found.dtype == dtype
        assert torch.equal(found, torch.full((1, 2), 4000, dtype=dtype))


# ---------------------------------------------------------------- random numbers
SEED = torch.tensor(12345)


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=8), st.integers(1, 5))
@settings(max_examples=40)
def test_a_row_does_not_depend_on_the_others(ids: list[int], width: int) -> None:
    rows = torch.tensor(ids)
    whole = reference.random_uniform(SEED, 3, rows, (len(ids), width), torch.float64)
    for place, row in enumerate(ids):
        alone = reference.random_uniform(SEED, 3, torch.tensor([row]), (1, width), torch.float64)
        assert torch.equal(whole[place], alone[0])


def test_seed_number_row_and_column_all_matter() -> None:
    def draw(seed: int, number: int, first: int) -> Tensor:
        ids = torch.arange(first, first + 50)
        shape = (50, 20)
        return reference.random_uniform(torch.tensor(seed), number, ids, shape, torch.float64)

    base = draw(0, 0, 0)
    for other in (draw(1, 0, 0), draw(0, 1, 0), draw(0, 0, 1000)):
        both = torch.stack([base.flatten(), other.flatten()])
        assert abs(torch.corrcoef(both)[0, 1]) < 0.15
        assert not torch.equal(base, other)
    assert base.unique().numel() == base.numel()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_numbers_are_uniform(dtype: torch.dtype) -> None:
    found = reference.random_uniform(SEED, 0, torch.arange(2000), (2000, 50), dtype)
    assert found.dtype == dtype
    assert found.min() >= 0 and found.max() < 1
    counts = torch.histc(found.double(), bins=100, min=0, max=1)
    chi_square = ((counts - 1000) ** 2 / 1000).sum()
    assert 40 < chi_square < 180  # 99 degrees of freedom: 6 standard deviations either way
    for lag in (found[1:] * found[:-1], found[:, 1:] * found[:, :-1]):
        assert abs(lag.double().mean() - 0.25) < 0.005


def test_normal_numbers_have_the_right_moments() -> None:
    found = reference.random_normal(SEED, 0, torch.arange(1000), (1000, 100), torch.float64)
    assert bool(found.isfinite().all())
    for power, wanted, error in ((1, 0.0, 0.016), (2, 1.0, 0.023), (3, 0.0, 0.062), (4, 3.0, 0.16)):
        assert abs((found**power).mean() - wanted) < error


def test_without_rows() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    assert reference.random_uniform(SEED, 0, none, (0, 3), torch.float32).shape == (0, 3)
    shared = reference.random_uniform(SEED, 0, None, (4, 3), torch.float32)
    assert shared.unique().numel() == 12
