"""Functions of one number in float, as vectors and one by one: as near to the exact value as a few last places."""

from __future__ import annotations

import struct

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from vgraph.fusion.cpu import build

pytestmark = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")

EXACT = {
    "exp": torch.exp, "log": torch.log, "tanh": torch.tanh, "log1p": torch.log1p, "expm1": torch.expm1,
    "erf": torch.erf, "sin": torch.sin, "cos": torch.cos, "softplus": lambda x: F.softplus(x, threshold=40),
}  # fmt: skip
_SOURCE = """#include "prelude.h"
template <class F> static void each(const int64_t* a, F function) {
  for (int64_t i = 0; i < a[0]; i += 8) vg_store<8>((float*)a[2] + i, function(vg_load<8>((const float*)a[1] + i)));
}
template <class F> static void alone(const int64_t* a, F function) {
  for (int64_t i = 0; i < a[0]; ++i) ((float*)a[2])[i] = function(((const float*)a[1])[i]);
}
"""
_ENTRY = 'extern "C" void kernel{0}(const int64_t* a) {{ {1}(a, [](auto x) {{ return vg_{2}(x); }}); }}'
_WAYS = [(way, name) for way in ("each", "alone") for name in EXACT]


def call(way: str, name: str, given: Tensor) -> Tensor:
    text = "\n".join(_ENTRY.format(i, *words) for i, words in enumerate(_WAYS))
    built = build.build_kernels(_SOURCE + text, len(_WAYS))
    assert built is not None
    out = torch.empty_like(given)
    built[_WAYS.index((way, name))](struct.pack("=3q", given.numel(), given.data_ptr(), out.data_ptr()))
    return out


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("way", ["each", "alone"])
def test_all_kinds_of_floats(way: str, name: str) -> None:
    """Random bits, numbers that programs have, and those near zeros of waves; zeros keep their signs."""
    anywhere = torch.randint(-(2**31), 2**31, (2**17,)).to(torch.int32).view(torch.float32)
    turns = (torch.arange(-3800, 3800).double() * torch.pi / 2).float()
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-42, -1.0, 88.7, -104.0])
    given = torch.cat([anywhere, torch.randn(2**16) * 5, turns, special])
    given = torch.cat([given, given.new_zeros(-len(given) % 8)])
    found, exact = call(way, name, given), EXACT[name](given.double())
    wanted = exact.float()
    assert torch.equal(found.isnan(), wanted.isnan())
    plain = wanted.isfinite() & (wanted.abs() >= torch.finfo(torch.float32).tiny)
    assert torch.equal(found[wanted.isinf()], wanted[wanted.isinf()])
    nothing = wanted == 0
    assert torch.equal(found[nothing].signbit(), wanted[nothing].signbit()) and not found[nothing].any()
    size = wanted[plain].abs()
    place = torch.nextafter(size, torch.full_like(size, torch.inf)) - size
    assert ((found[plain].double() - exact[plain]).abs() / place.double()).max() < 3
