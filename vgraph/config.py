"""Settings read from the environment, once, when first asked for.

Takes: VGRAPH_* variables. Gives: cache folder, log topics, switches.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


def cache_dir() -> Path:
    """The folder for everything that vgraph keeps on disk; ``VGRAPH_CACHE_DIR`` moves it."""
    chosen = os.environ.get("VGRAPH_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "vgraph"


def kernels_enabled() -> bool:
    """Whether groups of ops become compiled loops; with ``VGRAPH_KERNELS=0`` all are torch's operators."""
    return os.environ.get("VGRAPH_KERNELS", "1") == "1"


def waits_for_kernels() -> bool:
    """Whether a first call waits for its kernels; with ``VGRAPH_WAIT=0`` torch's operators serve until they are there.

    Both give the same numbers but for the last places of a sum.
    """
    return os.environ.get("VGRAPH_WAIT", "1") != "0"


def sanitizes() -> bool:
    """Whether kernels check their own memory and arithmetic (GCC's sanitizers): ``VGRAPH_SANITIZE=1``, for developers.

    The sanitizer must be loaded before Python is: see ``make sanitize``.
    """
    return os.environ.get("VGRAPH_SANITIZE", "0") == "1"


def hoists() -> bool:
    """Whether what depends on one end of an edge runs over vertices; ``VGRAPH_HOIST=0`` runs it over edges."""
    return os.environ.get("VGRAPH_HOIST", "1") == "1"


def native_enabled() -> bool:
    """Whether loops over frontiers may run as native code (with kernels): ``VGRAPH_NATIVE=0`` says no."""
    return os.environ.get("VGRAPH_NATIVE", "1") != "0"


def checks_captures() -> bool:
    """Whether every call that guards accept is recorded again and compared: ``VGRAPH_CAPTURE=check``."""
    return os.environ.get("VGRAPH_CAPTURE", "") == "check"


def looks_up_captures() -> bool:
    """Whether no guard is trusted: ``VGRAPH_CAPTURE=lookup`` runs every function's Python at every call (ADR 0026)."""
    return os.environ.get("VGRAPH_CAPTURE", "") == "lookup"


def checks_ranks() -> bool:
    """Whether every collective on parts of a graph is announced and compared first: ``VGRAPH_CHECK_RANKS=1``."""
    return os.environ.get("VGRAPH_CHECK_RANKS", "0") == "1"


def walks() -> bool:
    """Whether a GPU runs all frontiers of a loop in one launch where it can: ``VGRAPH_WALK=1`` says yes."""
    return os.environ.get("VGRAPH_WALK", "0") == "1"


def streams() -> bool:
    """Whether what runs once does so on a second stream of a GPU, beside loops: ``VGRAPH_STREAMS=1`` says yes."""
    return os.environ.get("VGRAPH_STREAMS", "0") == "1"


def graphs() -> bool:
    """Whether calls whose form comes again are recorded as CUDA graphs: ``VGRAPH_GRAPHS=1`` says yes."""
    return os.environ.get("VGRAPH_GRAPHS", "0") == "1"


def leaves_enabled() -> bool:
    """Whether vertices without in-edges run code of their own: ``VGRAPH_LEAVES=0`` says no."""
    return os.environ.get("VGRAPH_LEAVES", "1") != "0"


def is_eager() -> bool:
    """Whether what no frontier feeds runs once before them: ``VGRAPH_EAGER=0`` runs it with every frontier."""
    return os.environ.get("VGRAPH_EAGER", "1") != "0"


def is_lazy() -> bool:
    """Whether what feeds no frontier, parameter gradients too, runs once after them: ``VGRAPH_LAZY=0`` says no."""
    return os.environ.get("VGRAPH_LAZY", "1") != "0"


def degrees_enabled() -> bool:
    """Whether graphs whose vertices have one in-degree run code of their own: ``VGRAPH_DEGREES=0`` says no."""
    return leaves_enabled() and os.environ.get("VGRAPH_DEGREES", "1") != "0"


def joins_products() -> bool:
    """Whether products of the same rows within a loop become one: ``VGRAPH_SIBLINGS=0`` says no."""
    return os.environ.get("VGRAPH_SIBLINGS", "1") != "0"


def windows_enabled() -> bool:
    """Whether what feeds loops alone is made for some frontiers at a time: ``VGRAPH_WINDOWS=0`` says no."""
    return os.environ.get("VGRAPH_WINDOWS", "1") != "0"


def tunes() -> bool:
    """Whether choices are measured where they are first made (ADR 0035); ``VGRAPH_TUNE=0`` takes fixed ones."""
    return os.environ.get("VGRAPH_TUNE", "1") != "0"


def products_asked() -> bool | None:
    """Whether phases that run once use vgraph's matrix products: ``VGRAPH_PRODUCTS=1`` or ``0``; None: not said."""
    asked = os.environ.get("VGRAPH_PRODUCTS", "")
    return asked == "1" if asked else None


def own_products() -> bool:
    """Whether they do where nothing was measured.

    They do if it is asked for, else where torch's library is known not to use the widest vectors (MKL on other makes
    than its own).
    """
    asked = products_asked()
    return not _is_processor_of_mkl() if asked is None else asked


@cache
def _is_processor_of_mkl() -> bool:
    info = Path("/proc/cpuinfo")
    return not info.exists() or "AuthenticAMD" not in info.read_text()


@cache
def log_topics() -> frozenset[str]:
    """The stages whose values are printed: ``VGRAPH_LOG=program,schedule,memory,kernels``."""
    asked = os.environ.get("VGRAPH_LOG", "")
    return frozenset(word.strip() for word in asked.split(",") if word.strip())
