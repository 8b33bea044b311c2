"""Kept: what compilers made, on disk, safe with several processes at once.

Takes: bytes and a name. Gives: the same bytes later, or None. Runs once per function.
A file is renamed into place and ends with its own checksum, so that nobody reads half of one; the folder is
private, and refused where others can write to it.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

from vgraph import config
from vgraph.atomic_file import atomic_file
from vgraph.forks import held_by_forks

logger = logging.getLogger("vgraph")
_DIGEST = hashlib.sha256().digest_size
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_saying = held_by_forks(threading.Lock())


@cache
def tell(line: str, level: int) -> None:
    """A line in the log, once."""
    logger.log(level, "%s", line)


def say(line: str, level: int = logging.INFO) -> None:
    """Each line once: what ails one kernel ails them all."""
    with _saying:  # kernels are compiled side by side
        tell(line, level)


def warn(line: str) -> None:
    """As ``say``, where torch's operators run in the place of kernels: few would look for the cause at ``INFO``."""
    say(line, logging.WARNING)


@cache
def cache_folder() -> Path | None:
    """A private folder for kernels; a temporary one where the usual one cannot be trusted or written."""
    try:
        folder = config.cache_dir() / "kernels"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _refuse_shared(folder)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except (OSError, RuntimeError) as error:  # RuntimeError: nobody's home
        return _temporary_folder(error)
    return folder


def _refuse_shared(folder: Path) -> None:
    """PermissionError: others can write there, or put another folder in its place."""
    if not hasattr(os, "getuid"):  # a system whose modes do not say who may write
        return
    own, above = folder.stat(), folder.parent.stat()
    if own.st_mode & _OTHERS_WRITE or own.st_uid != os.getuid():
        raise PermissionError(f"others can write to {folder}")
    if above.st_mode & _OTHERS_WRITE and not above.st_mode & stat.S_ISVTX:
        raise PermissionError(f"others can write to {folder.parent}")


def _temporary_folder(why: Exception) -> Path | None:
    try:
        folder = Path(tempfile.mkdtemp(prefix="vgraph-kernels-"))
    except OSError as error:
        warn(f"kernels have no place, in the cache ({why}) or elsewhere ({error}): torch's operators run instead")
        return None
    say(f"kernels are kept for this process alone: the cache cannot be used ({why})")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def put_whole(content: bytes, kept: Path) -> Path | None:
    """The content in the cache, under a name that no reader sees before it is whole; None: there is no room."""
    try:
        with atomic_file(kept, durable=False, mode=0o600) as file:  # what a power cut damages is built again
            file.write(content + _digest(content, kept.name))
    except OSError as error:
        say(f"kernels are kept for this process alone: {kept.parent} cannot be written ({error.strerror})")
        return None
    return kept


def _digest(content: bytes, name: str) -> bytes:
    """Of the content under its name: another kernel that was put there is not what its name says."""
    return hashlib.sha256(name.encode() + b"\0" + content).digest()


def read_whole(kept: Path) -> bytes | None:
    """What was put there; None where there is nothing, or what is there is damaged (it is removed)."""
    try:
        content = kept.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        say(f"{kept.parent} holds kernels that cannot be read ({error.strerror}), which are built again")
        return None
    if _digest(content[:-_DIGEST], kept.name) == content[-_DIGEST:]:
        return content[:-_DIGEST]
    say(f"{kept.parent} holds damaged kernels, which are built again")
    with suppress(OSError):  # in a folder that cannot be written it stays, and nobody loads it
        kept.unlink()
    return None
