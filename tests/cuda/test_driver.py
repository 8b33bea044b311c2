"""The way of a user's call to the driver: NVRTC, CuPy itself, and a driver that runs what it is given by the shim."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import vgraph
from tests.cuda import shim
from tests.cuda.test_shim import LAYERS, results
from tests.runtime.engine_models import GRAPHS, MODELS, features
from vgraph import compiler
from vgraph.background import at_once
from vgraph.capture import capture
from vgraph.errors import DeviceError
from vgraph.fusion.cpu import build
from vgraph.fusion.cuda import build as build_cuda
from vgraph.runtime.cuda import driver as cuda

pytestmark = [
    pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler"),
    pytest.mark.skipif(build_cuda.find_nvrtc() is None, reason="there is no NVRTC: pip install nvidia-cuda-nvrtc"),
    pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="there is no CuPy: pip install cupy-cuda13x"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="a real driver is there"),
]
STREAM, MOST_ROOM = 0x5AFE, 227 * 1024
Word = ctypes.c_int64
Words = ctypes.POINTER(Word)


@dataclass(eq=False)
class Driver:
    """Modules and functions by handle; functions run by the shim on what the launch passed by address."""

    built: list[str] = field(default_factory=list[str])  # sources in order of compilation
    modules: dict[int, str] = field(default_factory=dict[int, str])
    functions: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])
    room: dict[int, int] = field(default_factory=dict[int, int])
    launches: list[tuple[str, int, bool]] = field(default_factory=list[tuple[str, int, bool]])  # stream, together

    def load(self, image: int) -> int:
        self.modules[len(self.modules) + 1] = self.built[-1]
        return len(self.modules)

    def name(self, module: int, name: bytes) -> int:
        source = self.modules[module]
        if f" {name.decode()}(" not in source:
            return 0
        self.functions[1000 + len(self.functions)] = (source, name.decode())
        return 999 + len(self.functions)

    def set(self, function: int, attribute: int, value: int) -> int:
        self.room[function] = value
        return int(attribute != 8 or value > MOST_ROOM)

    def launch(self, function: int, shape: Any, rest: Any, params: Any) -> int:
        """0, or the error of a launch that a GPU would refuse."""
        source, name = self.functions[function]
        room, stream, together = rest[0], rest[1], bool(rest[2])
        if room > self.room.get(function, 48 * 1024) or not all(0 < n < 1 << 31 for n in shape[:6]):
            return 1
        if shape[1] > 65535 or shape[3] * shape[4] * shape[5] > 1024:
            return 1
        found = shim.load(source, tuple(re.findall(r"__global__ void (?:__launch_bounds__\(.*?\) )?(\w+)\(", source)))
        count = source.split(f" {name}(")[1].split(")", 1)[0].count(",") + 1
        words = [ctypes.cast(params[i], Words)[0] for i in range(count)]
        found[name](tuple(shape[:3]), tuple(shape[3:6]), words, room, together)
        self.launches.append((name, stream, together))
        return 0


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    """In the place of libcuda.so.1 for what loads it from now on."""
    made = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    words = [*(build.find_compiler() or ()), "-x", "c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-w"]
    subprocess.run([*words, str(Path(__file__).parent / "driver.c"), "-o", str(made)], check=True)
    library = ctypes.CDLL(str(made), mode=ctypes.RTLD_GLOBAL)
    found = Driver()
    kinds = [
        ctypes.CFUNCTYPE(Word, ctypes.c_void_p)(found.load),
        ctypes.CFUNCTYPE(Word, Word, ctypes.c_char_p)(found.name),
        ctypes.CFUNCTYPE(ctypes.c_int, Word, ctypes.c_int, ctypes.c_int)(found.set),
        ctypes.CFUNCTYPE(ctypes.c_int, Word, Words, Words, ctypes.POINTER(ctypes.c_void_p))(found.launch),
    ]
    library.vg_answer(*kinds)
    found.kinds = kinds  # pyright: ignore[reportAttributeAccessIssue] - they must outlive the library
    return found


@pytest.fixture
def gpu(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Programs on the CPU's memory take the way of those on a GPU of Hopper's kind."""
    build_cubin = build_cuda.build_cubin

    def noted(source: str, architecture: str) -> bytes | None:
        assert architecture == "sm_90"
        driver.built.append(source)
        return build_cubin(source, architecture)

    properties = SimpleNamespace(multi_processor_count=6, shared_memory_per_block_optin=MOST_ROOM)
    for name, value in {
        "current_device": lambda: 0, "mem_get_info": lambda device: (1 << 30, 1 << 31),
        "get_device_capability": lambda device=None: (9, 0), "get_device_properties": lambda device: properties,
        "current_stream": lambda device: SimpleNamespace(cuda_stream=STREAM),
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(compiler, "build_cubin", noted)
    monkeypatch.setattr(cuda, "missing", lambda: None)
    for table in (compiler.TARGETS, compiler.LOOPS, compiler.REDUCTIONS):
        monkeypatch.setitem(table, "cpu", table["cuda"])  # pyright: ignore[reportArgumentType, reportCallIssue]
    monkeypatch.setattr(compiler, "load_native", lambda: None)
    monkeypatch.setattr(compiler, "in_background", at_once)  # as for a GPU
    cuda.limits.cache_clear()
    driver.launches.clear()
    capture.forget()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield driver
    capture.forget()
    cuda.limits.cache_clear()


def beside_operators(run: Callable[[], list[torch.Tensor]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as torch's operators."""
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    found = run()
    monkeypatch.setenv("VGRAPH_KERNELS", "0")
    capture.forget()
    for mine, theirs in zip(found, run(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


def test_a_layer(gpu: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward: every launch on the stream that torch has."""
    beside_operators(lambda: results(LAYERS["gat"], 5, torch.float64, second=False), monkeypatch)
    assert gpu.launches and all(stream == STREAM and not together for _, stream, together in gpu.launches)


def test_all_frontiers_in_one_launch(gpu: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks at once, with more memory of their own than a launch may ask for without asking ahead."""
    monkeypatch.setenv("VGRAPH_WALK", "1")
    g, model = GRAPHS["trees"](), MODELS["child-sum"]().double()
    x = features(g)

    def run() -> list[torch.Tensor]:
        return [rows.detach() for rows in model(g, x=x).values()]

    beside_operators(run, monkeypatch)
    assert any("walk" in name for name, _, _ in gpu.launches)


def test_memory_of_a_block_is_asked_for(gpu: Driver) -> None:
    """Above 48 KiB a function's limit is raised first; blocks at once take another call."""
    source = 'extern "C" __global__ void kernel0(int64_t a, int64_t b) { ((int64_t*)a)[blockIdx.x] = b; }\n'
    loaded = cuda.load(lambda name: compiler.build_cubin('#include "prelude.cuh"\n' + source, name), ["kernel0"])
    assert loaded is not None
    out = torch.zeros(3, dtype=torch.int64)
    loaded["kernel0"]((3, 1, 1), (1, 1, 1), [out.data_ptr(), -7])
    assert out.tolist() == [-7, -7, -7] and max(gpu.functions) not in gpu.room
    loaded["kernel0"]((2, 1, 1), (1, 1, 1), [out.data_ptr(), 1 << 40], 100_000, True)
    assert out.tolist() == [1 << 40, 1 << 40, -7]
    assert gpu.launches[-1] == ("kernel0", STREAM, True) and gpu.room[max(gpu.functions)] == 100_000
    with pytest.raises(Exception, match="CUDA_ERROR"):
        loaded["kernel0"]((2, 1, 1), (1, 1, 1), [out.data_ptr(), 0], 300_000)


def test_reductions(gpu: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(6, 50, 7, dtype=torch.float64)
    beside_operators(lambda: [vgraph.reduce(x, (0, 2)), vgraph.reduce(x.exp(), (1,), "max")], monkeypatch)
    assert gpu.launches


def test_every_thread_gets_the_context(gpu: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver takes launches of threads alone that torch's context is current in: autograd's, a user's."""
    asked: list[int] = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: asked.append(device) or (0, 0))
    threads = [threading.Thread(target=lambda: [cuda._enter(0), cuda._enter(0)]) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join()
    assert asked == [0, 0]


def test_another_gpu(gpu: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions are loaded on the GPU that launches them, for its architecture; DeviceError where there is no code."""
    source = '#include "prelude.cuh"\nextern "C" __global__ void kernel0(int64_t a) { *(int64_t*)a = 5; }\n'
    asked: list[str] = []

    def build_for(name: str) -> bytes | None:
        asked.append(name)
        return None if name == "sm_75" else compiler.build_cubin(source, "sm_90")

    loaded = cuda.load(build_for, ["kernel0"])
    assert loaded is not None
    out = torch.zeros(1, dtype=torch.int64)
    for number, kind in ((1, (10, 0)), (2, (7, 5))):
        monkeypatch.setattr(torch.cuda, "current_device", lambda number=number: number)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, kind=kind: kind)
        if kind[0] > 8:
            loaded["kernel0"]((1, 1, 1), (1, 1, 1), [out.data_ptr()])
    assert asked == ["sm_90", "sm_100"] and out.item() == 5
    with pytest.raises(DeviceError, match="cuda:2"):
        loaded["kernel0"]((1, 1, 1), (1, 1, 1), [out.data_ptr()])


def test_the_graphs_gpu_is_the_current_one(gpu: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "device", lambda device: entered.append(device) or nullcontext())
    for name in ("cpu", "meta", "cuda", "cuda:0", "cuda:1"):
        with cuda.on(torch.device(name)):
            pass
    assert entered == [torch.device("cuda", 1)]
