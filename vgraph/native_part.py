"""The native part: compiled code and memory of this process that all functions share.

Takes: nothing. Gives: what runs loops over frontiers and products, made at first use; room for the tensors of calls.
Runs once per process.
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from functools import cache, partial

from vgraph import config
from vgraph.background import in_background
from vgraph.fusion.cpu.build import FOR_ALL, build_kernels
from vgraph.memory.arena import ArenaPool
from vgraph.runtime.cpu.native import Native, join_native, native_sources
from vgraph.runtime.cpu.products import ChosenProducts
from vgraph.runtime.distributed.groups import is_alone

arenas = ArenaPool()
empty = arenas.empty  # room for a tensor of a call


def load_native() -> Native | None:
    """The compiled part that all functions share; None where it is switched off, or cannot be had, or not yet."""
    native = begin_native()
    if not native.done() and not config.waits_for_kernels():
        return None
    try:
        return native.result()
    except BaseException:
        begin_native.cache_clear()  # what was interrupted is made anew
        raise


@cache
def begin_native() -> Future[Native | None]:
    """``load_native``, on its way."""
    return in_background(build_native)


def _forget_unfinished() -> None:
    if begin_native.cache_info().currsize and not begin_native().done():  # who builds it is another process's
        begin_native.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_unfinished)


def build_native() -> Native | None:
    """``load_native``, made anew."""
    if not config.native_enabled():
        return None
    first, *others = native_sources()
    build = partial(build_kernels, level=FOR_ALL)
    on_their_way = [in_background(build, *source) for source in others]  # beside one another
    built = [build(*first), *[one.result() for one in on_their_way]]
    parts = [part for part in built if part is not None]
    if len(parts) < len(built):
        return None
    measures = config.tunes() and config.products_asked() is None
    choose = ChosenProducts(is_alone) if measures else None
    return join_native(parts, multiplies=measures or config.own_products(), choose=choose, empty=empty)
