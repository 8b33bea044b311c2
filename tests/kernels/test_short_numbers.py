"""Numbers of 16 bits, converted in software: as torch does, every one of them, by vectors and one by one."""

from __future__ import annotations

import struct

import pytest
import torch
from torch import Tensor

from vgraph.fusion.cpu import build

pytestmark = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")

DTYPES = {torch.float16: "vg_half", torch.bfloat16: "vg_bf16"}
_SOURCE = """#include "prelude.h"
template <class S, int W> static void widen(const int64_t* a) {
  for (int64_t i = 0; i < a[0]; i += W) vg_store<W>((float*)a[2] + i, vg_load<W>((const S*)a[1] + i));
}
template <class S, int W> static void shorten(const int64_t* a) {
  for (int64_t i = 0; i < a[0]; i += W) vg_store<W>((S*)a[2] + i, vg_load<W>((const float*)a[1] + i));
}
"""
_ENTRY = 'extern "C" void kernel{0}(const int64_t* a) {{ {1}<{2}, {3}>(a); }}'
_WAYS = [(way, kind, width) for way in ("widen", "shorten") for kind in DTYPES.values() for width in (1, 8, 16)]


def call(way: str, dtype: torch.dtype, width: int, given: Tensor) -> Tensor:
    text = "\n".join(_ENTRY.format(i, *words) for i, words in enumerate(_WAYS))
    built = build.build_kernels(_SOURCE + text, len(_WAYS))
    assert built is not None
    out = torch.empty(given.shape, dtype=torch.float32 if way == "widen" else dtype)
    words = (given.numel(), given.data_ptr(), out.data_ptr())
    built[_WAYS.index((way, DTYPES[dtype], width))](struct.pack("=3q", *words))
    return out


def assert_same_bits(found: Tensor, wanted: Tensor) -> None:
    """NaN is NaN, whatever its bits; zeros have their signs."""
    bits = {2: torch.int16, 4: torch.int32}[found.element_size()]
    assert torch.equal(found.isnan(), wanted.isnan())
    is_number = ~wanted.isnan()
    assert torch.equal(found.view(bits)[is_number], wanted.view(bits)[is_number])


@pytest.mark.parametrize("width", [1, 8, 16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_short_number(dtype: torch.dtype, width: int) -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    assert_same_bits(call("widen", dtype, width, every), every.float())


@pytest.mark.parametrize("width", [1, 8, 16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_lies_between_short_numbers(dtype: torch.dtype, width: int) -> None:
    """Every short number, halfway to the next one, what lies beside these, and random bits."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype).float()
    halfway = ((every.double() + every.roll(-1).double()) / 2).float()
    bits = torch.cat([every, halfway]).view(torch.int32)
    anywhere = torch.randint(-(2**31), 2**31, (2**17,)).to(torch.int32)
    given = torch.cat([bits, bits + 1, bits - 1, anywhere]).view(torch.float32)
    assert_same_bits(call("shorten", dtype, width, given), given.to(dtype))


@pytest.mark.parametrize("width", [1, 16])
def test_halves_do_not_pass_through_what_a_processor_may_flush(width: int) -> None:
    """With subnormal numbers taken for zero, halves below 2^-14 stay what they are."""
    small = torch.arange(1024, dtype=torch.int16).view(torch.float16)
    wide = small.float()
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot take subnormal numbers for zero")
    try:
        assert torch.equal(call("widen", torch.float16, width, small), wide)
        assert torch.equal(call("shorten", torch.float16, width, wide).view(torch.int16), small.view(torch.int16))
    finally:
        torch.set_flush_denormal(False)
