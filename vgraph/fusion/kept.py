"""Kept: what compilers made, on disk, safe with several processes at once.

Takes: bytes and a name. Gives: the same bytes later, or None; tempo: once a function.
A file is renamed into place and ends with its own checksum, so that nobody reads half of one; the folder is
private, and refused where others can write to it.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from vgraph import config

logger = logging.getLogger("vgraph")
_DIGEST = hashlib.sha256().digest_size


@cache
def say(line: str) -> None:
    """Each line once: what ails one kernel ails them all."""
    logger.info("%s", line)


@cache
def cache_folder() -> Path | None:
    """A private folder for kernels; a temporary one where the usual one cannot be trusted or written."""
    try:
        folder = config.cache_dir() / "kernels"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        stat = folder.stat()
        if stat.st_mode & 0o022 or stat.st_uid != os.getuid():
            raise PermissionError(f"others can write to {folder}")
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except (OSError, RuntimeError) as error:  # RuntimeError: nobody's home
        return _temporary_folder(error)
    return folder


def _temporary_folder(why: Exception) -> Path | None:
    try:
        folder = Path(tempfile.mkdtemp(prefix="vgraph-kernels-"))
    except OSError as error:
        say(f"kernels have no place, in the cache ({why}) or elsewhere ({error}): torch's operators run instead")
        return None
    say(f"kernels are kept for this process alone: the cache cannot be used ({why})")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def put_whole(content: bytes, kept: Path) -> Path | None:
    """The content in the cache, under a name that no reader sees before it is whole; None: there is no room."""
    part = None
    try:
        handle, part = tempfile.mkstemp(suffix=".part", dir=kept.parent)
        with open(handle, "wb") as file:
            file.write(content + hashlib.sha256(content).digest())
        os.replace(part, kept)
    except OSError as error:
        if part is not None:
            Path(part).unlink(missing_ok=True)
        say(f"kernels are kept for this process alone: {kept.parent} cannot be written ({error})")
        return None
    return kept


def read_whole(kept: Path) -> bytes | None:
    """What was put there; None where there is nothing, or what is there is damaged (it is removed)."""
    try:
        content = kept.read_bytes()
    except FileNotFoundError:
        return None
    if hashlib.sha256(content[:-_DIGEST]).digest() == content[-_DIGEST:]:
        return content[:-_DIGEST]
    say(f"{kept} is damaged and is built again")
    kept.unlink(missing_ok=True)
    return None
