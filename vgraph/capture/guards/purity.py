"""Purity: which functions of C and of libraries answer alike whenever they are asked alike.

Takes: a function that user code called. Gives: whether guards may pass it over. Runs once per function.
What is not known here is not watched: a function that calls it is no ordinary one.
"""

from __future__ import annotations

import builtins
import random
import sys
import types
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

# What looks into a tensor's memory without any operator that a recording would see.
PEEKS = frozenset({"tolist", "numpy", "data_ptr", "__array__", "__dlpack__", "untyped_storage"})
LIBRARIES = frozenset({*sys.stdlib_module_names, "torch", "numpy", "scipy", "networkx", "vgraph"})
REFLECTION = frozenset(
    "getattr hasattr vars dir __dict__ __getattr__ __getattribute__ attrgetter globals __slots__".split()
)

_ASKING_ANEW = frozenset("open input breakpoint id globals __import__ eval exec compile".split())
_BUILTINS = frozenset(
    value
    for name, value in vars(builtins).items()
    if isinstance(value, types.BuiltinFunctionType) and name not in _ASKING_ANEW
)
_REFLECTING = (builtins.getattr, builtins.hasattr, builtins.vars, builtins.dir)

# Modules of the standard library that keep no state of their own which an answer could depend on.
_PURE_MODULES = frozenset(
    "__future__ _abc _bisect _collections _collections_abc _functools _heapq _operator _sre _string _struct abc array "
    "base64 binascii bisect builtins cmath collections colorsys contextlib copy copyreg dataclasses decimal _decimal "
    "enum fractions functools genericpath hashlib heapq inspect itertools json keyword logging math ntpath numbers "
    "operator posixpath pprint re reprlib statistics string struct textwrap traceback types typing unicodedata "
    "warnings zlib".split()
)
_LOOKING_AROUND = frozenset({"copy", "copyreg", "dataclasses", "inspect", "json", "pprint", "reprlib"})
_STATEFUL = frozenset(
    "stack currentframe getouterframes trace realpath abspath exists getcwd getcontext setcontext localcontext".split()
)

_PURE_TORCH = frozenset(
    "torch torch._tensor torch.functional torch.overrides torch._jit_internal torch._ops torch._utils torch._VF "
    "torch._compile torch._lowrank torch._linalg_utils torch.types torch.library torch.cuda torch._C".split()
)
_PURE_TORCH_PARTS = tuple(
    f"torch.{name}."
    for name in "nn autograd amp special linalg fft _library backends jit compiler _dynamo _prims_common _refs _decomp "
    "_meta_registrations masked sparse nested fx _higher_order_ops _functorch func distributions "
    "utils._pytree utils._contextlib utils.checkpoint utils._python_dispatch utils._device _C".split()
)
_STATE_OF_TORCH = frozenset(
    "initial_seed seed get_rng_state get_rng_state_all memory_allocated memory_reserved max_memory_allocated "
    "mem_get_info utilization".split()
)
_IMPURE_NUMPY = (
    "numpy.random",
    "numpy._core._ufunc_config",
    "numpy.core._ufunc_config",
    "numpy.lib.npyio",
    "numpy.lib._npyio_impl",
    "numpy.testing",
)
_IMPURE_OWNERS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
_CLOCKS = frozenset({"now", "utcnow", "today"})
_SWITCH = ("get_", "_get_", "is_", "_is_", "are_", "_are_")
_OF_DEVICES = ("is_autocast_enabled", "get_autocast_dtype", "get_autocast_gpu_dtype", "get_autocast_cpu_dtype")
# What the recording itself sets, or knows by other means; and what tells of its own modes.
_OF_THE_RECORDING = frozenset(
    "is_grad_enabled get_default_dtype _get_tracing_state _is_torch_function_enabled _is_torch_function_all_disabled "
    "_get_dispatch_mode _is_torch_function_mode_enabled _is_tracing is_tracing _are_functorch_transforms_active".split()
)
Named = Callable[..., object]  # with a name, as functions of C and of Python have
Question = tuple[Named, tuple[object, ...]]  # a function and its arguments


def library_of(name: str) -> str:
    """The library that a module belongs to."""
    return name.partition(".")[0]


def is_pure_module(module: str, name: str) -> bool:
    """Whether a Python function of a library answers by its arguments alone."""
    root = library_of(module)
    if root == "torch":
        known = module in _PURE_TORCH or f"{module}.".startswith(_PURE_TORCH_PARTS)
        return known and name not in _STATE_OF_TORCH
    if root in ("numpy", "scipy", "networkx"):
        return not module.startswith(_IMPURE_NUMPY)
    return root in _PURE_MODULES and name not in _STATEFUL


def looks_around(module: str) -> bool:
    """Whether functions of this module read attributes that the user's code does not name."""
    return library_of(module) in _LOOKING_AROUND


def is_reflecting(function: object) -> bool:
    """Whether this builtin reads attributes by names that are computed."""
    return any(function is known for known in _REFLECTING)


def question_of(function: Named) -> list[Question]:
    """What to ask again at every call, where torch was asked for one of its switches."""
    name, module = function.__name__, getattr(function, "__module__", None) or ""
    if not name.startswith(_SWITCH) or library_of(module) != "torch" or name in _OF_THE_RECORDING:
        return []
    if name in _OF_DEVICES and name.startswith(("is", "get_autocast_dtype")):
        return [(function, (kind,)) for kind in ("cpu", "cuda")]
    try:
        function()
    except (TypeError, RuntimeError):
        return []
    return [(function, ())]


def impurity(function: Named, *, of_layer: bool = False) -> str:
    """The name of a builtin that may answer anew every time, else nothing; what layers call is known but for draws."""
    owner, name = getattr(function, "__self__", None), function.__name__
    if (isinstance(owner, Tensor) and name in PEEKS) or isinstance(owner, _IMPURE_OWNERS):
        return f"{type(owner).__name__}.{name}"
    if of_layer:
        return ""
    if owner is None or isinstance(owner, types.ModuleType):
        module = getattr(function, "__module__", None) or getattr(owner, "__name__", "")
        return "" if _is_pure_builtin(function, module, name) else f"{module}.{name}"
    kind: type = owner if isinstance(owner, type) else type(owner)
    return "" if _is_pure_type(kind, name) else f"{kind.__name__}.{name}"


def _is_pure_builtin(function: object, module: str, name: str) -> bool:
    if module == "builtins":
        return function in _BUILTINS
    return is_pure_module(module, name) or (module, name) == ("time", "sleep")


def _is_pure_type(kind: type, name: str) -> bool:
    """Methods of containers, numbers, text and tensors; of classes of the user's that inherit them, too."""
    owner = next((base for base in kind.__mro__ if name in base.__dict__), kind)
    if owner.__module__ == "datetime":
        return name not in _CLOCKS
    root = library_of(owner.__module__)
    return root in ("torch", "numpy", "vgraph") or root in _PURE_MODULES
