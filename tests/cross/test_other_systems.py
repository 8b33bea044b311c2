"""What kernels are made of compiles for systems on which nothing here can run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cross.remote import compile_for, wheel
from vgraph.runtime.cpu.native import native_sources

pytestmark = pytest.mark.skipif(wheel() is None, reason="the ziglang wheel, which compiles for others, is missing")

# Objects alone: to link for Windows the wheel's compiler would first build a C library, for a minute.
TARGETS = ("aarch64-macos", "x86_64-macos", "x86_64-windows-gnu", "aarch64-linux-gnu")
_MORE = """
#include "reduction.h"
template <class S> static void both(const int64_t* a) { vg_store<16>((S*)a[1], vg_load<16>((const S*)a[0])); }
extern "C" void kernel_of_short_numbers(const int64_t* a) { both<vg_half>(a); both<vg_bf16>(a); }
extern "C" void kernel_of_functions(const int64_t* a) {
  typedef vg_t<float, 16> V;
  vg_store<16>((float*)a[1], vg_tanh(vg_exp(vg_log(vg_erf(vg_load<16>((const float*)a[0]))))));
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_compile(target: str, tmp_path: Path) -> None:
    for source, count in native_sources():
        built = tmp_path / "kernels.o"
        compile_for(target, ("-O1", "-c"), source + _MORE, built)
        content = built.read_bytes()
        assert all(f"kernel{i}".encode() in content for i in range(count))
