"""Generated kernels become machine code of the GPUs that there are, with nothing spilled; no GPU is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

import vgraph
from tests.cuda.test_shim import LAYERS, results
from tests.fusion.test_operator_table import Everything
from tests.fusion.test_reduction_table import by_call
from tests.tables import table
from vgraph import compiler
from vgraph.capture import capture
from vgraph.capture.scalar.pointwise import identity_of
from vgraph.fusion.cpu import build
from vgraph.fusion.cuda import build as build_cuda
from vgraph.fusion.cuda.emit import emit_cuda
from vgraph.fusion.reduction import emit_reduction_cuda
from vgraph.ir.kernel import KernelSpec
from vgraph.ir.program import Reduction
from vgraph.ir.reduction import DeviceShape
from vgraph.ir.reductions import REDUCTIONS

pytestmark = [
    pytest.mark.skipif(build_cuda.find_nvrtc() is None, reason="there is no NVRTC: pip install nvidia-cuda-nvrtc"),
    pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler"),
]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    capture.forget()
    yield
    capture.forget()


def sources_of(name: str, width: int, dtype: torch.dtype) -> list[str]:
    """The CUDA C++ of a layer's forward and backward."""
    made: list[str] = []
    on_cpu = compiler.TARGETS["cpu"]

    def noted(specs: Sequence[KernelSpec]) -> object:
        made.append(emit_cuda(specs)[0])
        return on_cpu(specs)

    with mock.patch.dict(compiler.TARGETS, cpu=noted):
        results(LAYERS[name], width, dtype, second=False)
    return made


@pytest.mark.parametrize(("name", "architecture"), table([*LAYERS], ["sm_80", "sm_90"]))
def test_kernels_compile_without_spills(name: str, architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    nvrtc = build_cuda.find_nvrtc()
    assert nvrtc is not None
    for source in sources_of(name, 16, torch.float32):
        cubin, said = nvrtc.compile(source, architecture)
        assert cubin[:4] == b"\x7fELF", said
        used = build_cuda.usages(said)
        assert len(used) == source.count("__global__"), said
        assert all(usage.spilled == 0 < usage.registers <= 128 for usage in used.values()), used


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_every_row_of_the_tables_compiles(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators and reductions over edges, also of rows in chunks, and reductions over dims."""
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    made: list[str] = []
    monkeypatch.setitem(compiler.TARGETS, "cpu", lambda specs: made.append(emit_cuda(specs)[0]))
    rows = torch.rand(6, 4).to(dtype)
    Everything()(vgraph.graph(([], []), num_nodes=6), x=rows, y=rows)
    g = vgraph.graph(([0, 1, 2, 3], [4, 4, 4, 5]))
    g.ndata["x"] = rows
    for name in REDUCTIONS:
        g.update_all(lambda e: {"m": e.src["x"]}, by_call(name))
    assert len(made) == 1 + len(REDUCTIONS)
    shape = DeviceShape(("unit",), num_kept=1, num_reduced=1, columns=False, lanes=4, team=32)
    made += [emit_reduction_cuda(Reduction(identity_of(dtype), name), shape) for name in REDUCTIONS]
    nvrtc = build_cuda.find_nvrtc()
    assert nvrtc is not None
    for source in made:
        cubin, said = nvrtc.compile(source, "sm_90")
        assert cubin[:4] == b"\x7fELF", said


def test_numbers_that_are_not_finite_compile() -> None:
    """Constants of masks, and the peaks of attention: NVRTC lacks what compilers for CPUs have for them."""
    line = "((double*)a)[0] = vg_inf; ((double*)a)[1] = vg_nan;"
    source = f'#include "prelude.cuh"\nextern "C" __global__ void kernel0(int64_t a) {{ {line} }}\n'
    nvrtc = build_cuda.find_nvrtc()
    assert nvrtc is not None
    cubin, said = nvrtc.compile(source, "sm_90")
    assert cubin[:4] == b"\x7fELF", said


def test_cubins_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    source = '#include "prelude.cuh"\nextern "C" __global__ void kernel0(int64_t a) { *(float*)a = vg_exp(1.0f); }\n'
    first = build_cuda.build_cubin(source, "sm_90")
    monkeypatch.setattr(build_cuda.Nvrtc, "compile", lambda *_: pytest.fail("compiled again"))
    assert first and build_cuda.build_cubin(source, "sm_90") == first


def test_the_compiler_of_torchs_own_cuda_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both are installed: a driver may refuse what a newer one made."""
    for folder, name in (("cu13/lib", "libnvrtc.so.13"), ("cuda_nvrtc/lib", "libnvrtc.so.12")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).touch()
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(build_cuda.importlib.util, "find_spec", lambda name: spec)
    for version, first in (("12.8", "libnvrtc.so.12"), ("13.0", "libnvrtc.so.13")):
        monkeypatch.setattr(torch.version, "cuda", version)
        found = [Path(name).name for name in build_cuda._candidates()]
        assert found[0] == found[2] == first and len(found) == 5


def test_what_a_function_takes_is_read() -> None:
    """Memory of a block stands before other kinds of memory, or at the end."""
    for tail in ("768 bytes smem, 384 bytes cmem[0]", "used 1 barriers, 768 bytes smem"):
        head = "Function properties for kernel0\n 0 bytes stack frame, 8 bytes spill stores\n"
        said = f"{head}Used 40 registers, {tail}\n"
        assert build_cuda.usages(said) == {"kernel0": build_cuda.Usage(40, 8, 768)}
