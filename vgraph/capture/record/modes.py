"""Ambient: the modes in which a function is captured, and in which later recordings of it are made.

Takes: torch's modes and the graph's device. Gives: a guard, and a context. Runs at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from typing import NamedTuple, Protocol, cast
from weakref import ReferenceType, ref

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import _disable_current_modes  # noqa: TID251  # pyright: ignore  # docs/adr/0004

from vgraph.capture.errors import CaptureError
from vgraph.capture.record.function_mode import beneath
from vgraph.capture.record.profiler import unseen


class _SavedTensorsHooks(Protocol):
    """What ``torch.autograd.graph.disable_saved_tensors_hooks`` is made of."""

    def _saved_tensors_hooks_get_disabled_error_message(self) -> str | None: ...
    def _saved_tensors_hooks_enable(self) -> None: ...
    def _saved_tensors_hooks_disable(self, message: str) -> None: ...
    def _top_saved_tensors_default_hooks(self, ignore_is_tracing: bool) -> object: ...
    def _pop_saved_tensors_default_hooks(self) -> None: ...


_autograd = cast("_SavedTensorsHooks", torch._C._autograd)  # noqa: TID251  # pyright: ignore
# What of torch's dispatcher this thread leaves out, by name.
_leaves_out: Callable[[str], bool] = torch._C._dispatch_tls_is_dispatch_key_excluded  # noqa: TID251  # pyright: ignore
_leave_out: Callable[[str, bool], None] = torch._C._dispatch_tls_set_dispatch_key_excluded  # noqa: TID251  # pyright: ignore
_VMAP_KEYS = ("VmapMode", "FuncTorchVmapMode")  # of is_grads_batched, and of torch.vmap
CPU = torch.device("cpu")
Modes = tuple[bool, bool, torch.dtype, torch.dtype, torch.device]


def current_modes(device: torch.device = CPU) -> Modes:
    """Grad mode, autocast, the default dtype and the graph's device: they decide what a function does."""
    kind = "cuda" if device.type == "cuda" else "cpu"  # as ``autocast_kind``, at every call
    return (
        torch.is_grad_enabled(),
        torch.is_autocast_enabled(kind),
        torch.get_autocast_dtype(kind),
        torch.get_default_dtype(),
        device,
    )


def autocast_kind(device: torch.device) -> str:
    """Which autocast rules what lies on a device."""
    return "cuda" if device.type == "cuda" else "cpu"


def hidden_switch(asked: Collection[object], names: Collection[str]) -> str:
    """A switch of torch that a function reads and that its recording did not see as it is around the call, or nothing.

    ``asked``: functions of torch that it called; ``names``: attributes that it reads.
    """
    if torch.is_inference_mode_enabled in asked and torch.is_inference_mode_enabled():
        return "it asks whether inference mode is on, which is off in recordings"
    if "mkldnn" in names and torch.backends.mkldnn.enabled:
        return "it reads the switch of oneDNN, which is off in recordings"
    return ""


@contextmanager
def without_whole_layers() -> Generator[None]:
    """No kernels that hide a whole LSTM, whose backward reads what they give only where gradients are on."""
    before = torch.backends.mkldnn.enabled
    try:
        torch.backends.mkldnn.set_flags(False, _fp32_precision=None)  # pyright: ignore[reportArgumentType]  # allowed where the flags themselves are frozen
        yield
    finally:
        torch.backends.mkldnn.set_flags(before, _fp32_precision=None)  # pyright: ignore[reportArgumentType]


@contextmanager
def made_on_cpu() -> Generator[None]:
    """Tensors that name no device are made on the CPU, also within ``with torch.device("meta")``."""
    if torch.get_default_device().type == "cpu":  # a mode of torch's costs something at every call
        yield
        return
    with torch.device("cpu"):
        yield


class _Saved(NamedTuple):
    """What autograd saves: the tensor itself as long as somebody else holds it, and what it is without its graph.

    A node that saves what it has made would otherwise hold itself, for ever.
    """

    itself: ReferenceType[torch.Tensor]
    alias: torch.Tensor
    version: int  # how often it was written to before


@unseen
@beneath
def _noted(tensor: torch.Tensor) -> _Saved:
    with _disable_current_modes():  # nothing that a recording should hold
        alias = tensor.detach()
    return _Saved(ref(tensor), alias, tensor._version)


def _unchanged(saved: _Saved) -> torch.Tensor:
    """What was saved; autograd itself looks for writes only where there are no hooks, and joins it to its graph."""
    if saved.alias._version != saved.version:
        raise CaptureError("a tensor that its derivative needs is written in place", cure="write to a copy of it")
    found = saved.itself()
    return saved.alias if found is None else found


@contextmanager
def with_own_hooks() -> Generator[None]:
    """What autograd saves of examples passes our hooks: the program's own do not see it, and its ban is lifted."""
    ban = _autograd._saved_tensors_hooks_get_disabled_error_message()  # pyright: ignore[reportPrivateUsage]
    try:
        if ban is not None:
            _autograd._saved_tensors_hooks_enable()  # pyright: ignore[reportPrivateUsage]
        with torch.autograd.graph.saved_tensors_hooks(_noted, _unchanged):
            yield
    finally:
        if ban is not None:
            _autograd._saved_tensors_hooks_disable(ban)  # pyright: ignore[reportPrivateUsage]


@beneath
def generator_state(generator: torch.Generator | None = None) -> bytes:
    """The state of torch's own generator, or of another, also where tensors are fake."""
    with _disable_current_modes():
        return (torch.default_generator if generator is None else generator).get_state().numpy().tobytes()


@beneath
def move_generator_on() -> None:
    """Has torch's generator draw a number, as what is recorded would; also within vmap, which has no say in it."""
    before = [(key, _leaves_out(key)) for key in _VMAP_KEYS]
    for key in _VMAP_KEYS:
        _leave_out(key, True)
    try:
        with _disable_current_modes():
            torch.empty((), device=CPU).uniform_()
    finally:
        for key, was_excluded in before:
            _leave_out(key, was_excluded)


class Switches:
    """This thread's modes, and torch's switches, that recordings set."""

    def __init__(self) -> None:
        self.grad_mode, self.default = torch.is_grad_enabled(), torch.get_default_dtype()
        self.autocast = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _KINDS]
        self.caches, self.nesting = torch.is_autocast_cache_enabled(), _autocast_nesting()
        self.mkldnn = torch.backends.mkldnn.enabled
        self.sdpa = [(is_on(), switch) for is_on, switch in _SDPA]
        self.ban = _autograd._saved_tensors_hooks_get_disabled_error_message()  # pyright: ignore[reportPrivateUsage]

    def put_back(self) -> None:
        """Sets all of them as they were."""
        while _autograd._top_saved_tensors_default_hooks(True) == (_noted, _unchanged):  # pyright: ignore[reportPrivateUsage]
            _autograd._pop_saved_tensors_default_hooks()  # pyright: ignore[reportPrivateUsage]
        if self.ban is not None:
            _autograd._saved_tensors_hooks_disable(self.ban)  # pyright: ignore[reportPrivateUsage]
        while _autocast_nesting() > self.nesting:
            torch.autocast_decrement_nesting()
        for kind, enabled, dtype in self.autocast:
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, dtype)
        torch.set_autocast_cache_enabled(self.caches)
        for is_on, switch in self.sdpa:
            switch(is_on)
        torch.backends.mkldnn.set_flags(self.mkldnn, _fp32_precision=None)  # pyright: ignore[reportArgumentType]
        torch.set_default_dtype(self.default)
        torch.set_grad_enabled(self.grad_mode)


_KINDS = ("cpu", "cuda")
_SDPA = [
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
]


def _autocast_nesting() -> int:
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


@contextmanager
def ambient(
    grad_mode: bool, enabled: bool, dtype: torch.dtype, default: torch.dtype, device: torch.device = CPU
) -> Generator[None]:
    """The modes under which a function was captured, for recordings made later."""
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(default)
        with (
            torch.inference_mode(False),  # which leaves composite operators whole; what is recorded serves all modes
            torch.set_grad_enabled(grad_mode),
            torch.autocast(autocast_kind(device), dtype=dtype, enabled=enabled, cache_enabled=False),
            without_whole_layers(),
            sdpa_kernel(SDPBackend.MATH),  # in parts that are batched by rows
            with_own_hooks(),
        ):
            yield
    finally:
        torch.set_default_dtype(before)
