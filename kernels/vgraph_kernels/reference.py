"""Reference kernels in PyTorch: segment reductions, slots, random numbers keyed by rows.

Takes: rows (n, ...) and index tensors. Gives: rows (m, ...). Runs at every step.
Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (counter-based generators).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag


def segment_sum(rows: Tensor, ids: Tensor | None, ptr: Tensor, degree: int | None) -> Tensor:
    """Sums ``rows[ids[ptr[i]:ptr[i+1]]]`` for every i; ``ids`` None means 0, 1, 2 ...

    Shapes: rows (n, ...), ids (e,), ptr (m + 1,); gives (m, ...). ``degree`` is every segment's
    length where they agree.
    """
    num_segments = ptr.shape[0] - 1
    if degree == 0 or num_segments == 0:
        return rows.new_zeros((num_segments, *rows.shape[1:]))
    if rows.dtype in (torch.bfloat16, torch.float16):  # 256 + 1 is 256 in bfloat16
        return segment_sum(rows.float(), ids, ptr, degree).to(rows.dtype)
    if degree is not None:
        picked = rows if ids is None else rows.index_select(0, ids)
        return picked if degree == 1 else _uniform(picked, num_segments, degree).sum(1)
    if rows.is_floating_point() and rows.numel() and rows.dim() > 1:
        if ids is None:
            ids = torch.arange(rows.shape[0], device=rows.device)
        flat = rows.reshape(rows.shape[0], -1)
        total = embedding_bag(ids, flat, ptr, mode="sum", include_last_offset=True)
        return total.view(num_segments, *rows.shape[1:])
    picked = rows if ids is None else rows.index_select(0, ids)
    target = rows.new_zeros((num_segments, *rows.shape[1:]))
    return target.index_add_(0, segment_ids(ptr), picked)


def _uniform(rows: Tensor, num_segments: int, degree: int) -> Tensor:
    return rows.view(num_segments, degree, *rows.shape[1:])


def segment_ids(ptr: Tensor) -> Tensor:
    """The segment of every element, (e,), from ptr (m + 1,)."""
    counts = ptr[1:] - ptr[:-1]
    return torch.repeat_interleave(torch.arange(counts.shape[0], device=ptr.device), counts)


def segment_extremum(rows: Tensor, ptr: Tensor, degree: int | None, largest: bool) -> tuple[Tensor, Tensor]:
    """Largest (smallest) element of every segment, and its first position within the segment.

    Shapes: rows (e, ...), ptr (m + 1,); gives two (m, ...). Empty segments give 0 and -1; NaN wins.
    """
    num_segments = ptr.shape[0] - 1
    shape = (num_segments, *rows.shape[1:])
    if degree == 0 or num_segments == 0:
        return rows.new_zeros(shape), torch.full(shape, -1, dtype=torch.int64, device=rows.device)
    if degree is not None:
        found = (torch.max if largest else torch.min)(_uniform(rows, num_segments, degree), 1)
        return found.values, found.indices
    ids = segment_ids(ptr)
    spread = ids.view(-1, *(1,) * (rows.dim() - 1)).expand(rows.shape)
    kind = "amax" if largest else "amin"
    best = rows.new_zeros(shape).scatter_reduce_(0, spread, rows, kind, include_self=False)
    slots = torch.arange(rows.shape[0], device=rows.device) - ptr[:-1].index_select(0, ids)
    mine = best.index_select(0, ids)
    is_best = (rows == mine) | (rows.isnan())
    far = torch.iinfo(torch.int64).max
    candidates = torch.where(is_best, slots.view(-1, *(1,) * (rows.dim() - 1)), far)
    first = torch.full(shape, far, dtype=torch.int64, device=rows.device)
    first.scatter_reduce_(0, spread, candidates, "amin")
    return best, torch.where(first == far, -1, first)


def segment_prod(rows: Tensor, ptr: Tensor, degree: int | None) -> Tensor:
    """Product of every segment, (m, ...); empty segments give 1."""
    num_segments = ptr.shape[0] - 1
    ones = rows.new_ones((num_segments, *rows.shape[1:]))
    if degree == 0 or num_segments == 0:
        return ones
    if rows.dtype in (torch.bfloat16, torch.float16):
        return segment_prod(rows.float(), ptr, degree).to(rows.dtype)
    if degree is not None:
        return _uniform(rows, num_segments, degree).prod(1)
    spread = segment_ids(ptr).view(-1, *(1,) * (rows.dim() - 1)).expand(rows.shape)
    return ones.scatter_reduce_(0, spread, rows, "prod")


def take_slot(rows: Tensor, ptr: Tensor, degree: int | None, k: int) -> Tensor:
    """The k-th element of every segment, (m, ...); zeros where a segment is shorter."""
    num_segments = ptr.shape[0] - 1
    if degree is not None:
        if k >= degree:
            return rows.new_zeros((num_segments, *rows.shape[1:]))
        return _uniform(rows, num_segments, degree)[:, k]
    if rows.shape[0] == 0:
        return rows.new_zeros((num_segments, *rows.shape[1:]))
    position = ptr[:-1] + k
    present = position < ptr[1:]
    picked = rows.index_select(0, torch.where(present, position, 0))
    return torch.where(present.view(-1, *(1,) * (rows.dim() - 1)), picked, torch.zeros_like(picked))


def put_slot(values: Tensor, ptr: Tensor, num_elements: int, degree: int | None, k: int) -> Tensor:
    """Zeros (e, ...) with ``values`` (m, ...) at the k-th element of every segment long enough."""
    if degree is not None and k < degree:
        spread = values.new_zeros((values.shape[0], degree, *values.shape[1:]))
        spread[:, k] = values
        return spread.view(num_elements, *values.shape[1:])
    out = values.new_zeros((num_elements, *values.shape[1:]))
    if degree is not None or num_elements == 0:
        return out
    position = ptr[:-1] + k
    present = (position < ptr[1:]).nonzero().squeeze(1)
    return out.index_copy_(0, position.index_select(0, present), values.index_select(0, present))


# ---------------------------------------------------------------- random numbers
_MULTIPLIERS = (-4658895280553007687, -7723592293110705685)  # splitmix64's, as signed numbers


def _mix(bits: Tensor) -> Tensor:
    """A bijection of 64-bit words whose output bits each depend on every input bit."""
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        bits = (bits ^ _shifted(bits, shift)) * multiplier
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, count: int) -> Tensor:
    """Logical shift to the right (torch's keeps the sign)."""
    return (bits >> count) & ((1 << (64 - count)) - 1)


def random_bits(seed: Tensor, number: int, ids: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    """53 random bits an element as int64, from (seed, number, row id, column); ids (rows,) or None."""
    device = seed.device
    key = _mix(seed + _mix(torch.full((), number + 1, dtype=torch.int64, device=device)))
    rows = shape[0] if ids is not None else 1
    columns = math.prod(shape) // max(rows, 1) if rows else 0
    if ids is None:
        ids = torch.zeros(1, dtype=torch.int64, device=device)
    inner = columns
    row_keys = _mix(ids.to(torch.int64) + key)
    if ids.shape[0] and rows % ids.shape[0] == 0:  # several leading entries belong to one row
        inner = columns * (rows // ids.shape[0])
    column_keys = _mix(torch.arange(inner, dtype=torch.int64, device=device) + 1)
    return _shifted(_mix(row_keys[:, None] ^ column_keys), 11).reshape(shape)


_DIGITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}  # binary, of numbers below 1


def random_uniform(seed: Tensor, number: int, ids: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Uniform numbers of [0, 1), of ``shape`` and ``dtype``: as many digits as it has, for more would round to 1."""
    digits = _DIGITS[dtype]
    bits = random_bits(seed, number, ids, shape) >> (53 - digits)
    return (bits.to(torch.promote_types(dtype, torch.float32)) * 2.0**-digits).to(dtype)


def last_below(high: float, low: float, dtype: torch.dtype) -> float:
    """The last number before ``high`` on the way from ``low``: what is drawn between them is no further."""
    ends = torch.tensor([high, low], dtype=dtype, device="cpu")
    return float(torch.nextafter(*ends))


def random_normal(seed: Tensor, number: int, ids: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Standard normal numbers by the inverse of the error function."""
    wide = random_uniform(seed, number, ids, shape, torch.float64) + 2.0**-54
    return (torch.erfinv(2 * wide - 1) * math.sqrt(2)).to(dtype)
