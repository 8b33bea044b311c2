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
    """Whether groups of ops become compiled loops: ``VGRAPH_KERNELS=1``; else all are torch's operators."""
    return os.environ.get("VGRAPH_KERNELS", "0") == "1"


def hoists() -> bool:
    """Whether what depends on one end of an edge runs over vertices; ``VGRAPH_HOIST=0`` runs it over edges."""
    return os.environ.get("VGRAPH_HOIST", "1") == "1"


@cache
def log_topics() -> frozenset[str]:
    """The stages whose values are printed: ``VGRAPH_LOG=program,schedule,memory,kernels``."""
    asked = os.environ.get("VGRAPH_LOG", "")
    return frozenset(word.strip() for word in asked.split(",") if word.strip())
