"""Atomic files: a file on disk is what it was before, or what it is to become, and never in between.

Takes: a path and what to write. Gives: that file, whole. Runs once per file that vgraph writes.

The content goes to a temporary file in the same folder, reaches the disk, and is renamed into place. A writer
holds a lock on its temporary file, so that a later writer can tell what a killed process left behind (nobody
holds it: it is removed) from what another process is writing now (it is left alone).
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_NUM_NAMES = 32  # of temporary files that vgraph looks for: as many processes may write one file at once
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


@contextmanager
def atomic_file(
    path: str | Path, *, previous: str | Path | None = None, durable: bool = True, mode: int = 0o666
) -> Generator[BinaryIO]:
    """A binary file to write to, which becomes ``path`` when the block ends; an error leaves ``path`` as it was.

    The new file has the permissions of the one that it replaces, or those that the umask gives. Where ``path`` is a
    symbolic link, what it leads to is replaced. What is no regular file, such as ``/dev/stdout``, is written in place.

    Args:
        path: the file to write.
        previous: a name in the same folder that the file which is replaced is kept under, where files can be linked.
        durable: whether to wait until the disk has the content, so that it outlives a power cut.
        mode: the permissions of a new file, before the umask.

    Raises:
        OSError: the file cannot be written.
    """
    target = _target_of(path)
    if target is None:
        with open(path, "wb") as file:
            yield file
        return
    try:
        temporary, descriptor = _claim(target, mode)
    except OSError as error:
        raise _failed_write(error, path) or error from None
    with os.fdopen(descriptor, "wb") as file:
        try:
            yield file
            _finish(file, temporary, target, durable)
            if fcntl is None:  # pragma: no cover - Windows renames no file that is open
                file.close()
            _put(temporary, target, previous)
        except BaseException as error:
            _remove_own(temporary, file)
            with suppress(OSError):  # what could not be written cannot be flushed either
                file.close()
            told = _failed_write(error, path)
            if told is None:
                raise
            raise told from error
    if durable:
        _sync_folder(target.parent)


def write_text(path: str | Path, text: str) -> None:
    """Writes text in UTF-8, as a whole or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    with atomic_file(path) as file:
        file.write(text.encode())


def _target_of(path: str | Path) -> Path | None:
    """The regular file that is or will be there; None: something else is there, which is written in place."""
    try:
        found = os.stat(path)
    except FileNotFoundError:  # also a link to what does not exist yet
        return Path(os.path.realpath(path))
    if not stat.S_ISREG(found.st_mode):
        return None
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return Path(os.path.realpath(path))


# ---------------------------------------------------------------- temporary files
def _claim(target: Path, mode: int) -> tuple[Path, int]:
    """A temporary file that this writer alone has; what killed writers left is removed."""
    claimed = None
    for number in range(_NUM_NAMES) if fcntl is not None else ():
        place = _beside(target, f"{number}")
        _remove_abandoned(place)
        if claimed is None and not os.path.lexists(place):
            claimed = _create(place, mode)
    while claimed is None:
        claimed = _create(_beside(target, secrets.token_hex(8)), mode)
    return claimed


def _beside(target: Path, mark: str) -> Path:
    """A hidden name in the same folder; a long one is cut, for names have a limit."""
    return target.with_name(f".{target.name[:50]}.{mark}.tmp")


def _create(place: Path, mode: int) -> tuple[Path, int] | None:
    """A new file, locked; None: another writer was faster."""
    try:
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, mode)
    except FileExistsError:
        return None
    if _lock(descriptor) is not False and _is_still_there(place, descriptor):
        return place, descriptor
    os.close(descriptor)
    return None


def _remove_abandoned(place: Path) -> None:
    """Removes a temporary file that no process is writing; what cannot be opened is not ours."""
    try:
        descriptor = os.open(place, os.O_RDWR | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return
    try:
        if _lock(descriptor) and _is_still_there(place, descriptor):
            with suppress(OSError):
                os.unlink(place)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """Whether this writer has the file now; None: this file system knows no locks."""
    if fcntl is None:  # pragma: no cover - Windows
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_still_there(place: Path, descriptor: int) -> bool:
    """Whether the name still leads to this file: another writer may have removed or renamed it meanwhile."""
    try:
        return os.path.samestat(os.lstat(place), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_own(temporary: Path, file: BinaryIO) -> None:
    """Removes the temporary file, unless its name is another writer's by now."""
    with suppress(OSError, ValueError):  # ValueError: it is closed
        if _is_still_there(temporary, file.fileno()):
            os.unlink(temporary)


def _failed_write(error: BaseException, path: str | Path) -> OSError | None:
    """What the system said of a write that failed, with the name that the user knows; torch's archives hide it."""
    found = error.__context__ if isinstance(error, RuntimeError) else error
    if not isinstance(found, OSError) or found.errno is None:
        return None
    return OSError(found.errno, found.strerror, str(path))


# ---------------------------------------------------------------- into place
def _finish(file: BinaryIO, temporary: Path, target: Path, durable: bool) -> None:
    """The whole content, with the permissions of the file that is replaced, on the disk."""
    file.flush()
    with suppress(FileNotFoundError):
        os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
    if durable:
        os.fsync(file.fileno())


def _put(temporary: Path, target: Path, previous: str | Path | None) -> None:
    """Renames the file into place; the one that was there has a second name before, so that none is ever missing."""
    kept = None if previous is None else target.with_name(Path(previous).name)
    second = None if kept is None else _second_name(target, kept)
    os.replace(temporary, target)
    if kept is not None and second is not None:
        os.replace(second, kept)


def _second_name(target: Path, previous: Path) -> Path | None:
    """Another name of the file that is to be replaced; None: there is no file, or this file system has no links."""
    second = _beside(previous, "link")
    try:
        second.unlink(missing_ok=True)
        os.link(target, second)
    except OSError:
        return None
    return second


def _sync_folder(folder: Path) -> None:
    """The renaming, too, is to outlive a power cut; some file systems cannot be asked for that."""
    if fcntl is None:  # pragma: no cover - Windows opens no folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
