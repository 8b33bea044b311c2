"""Writer: a folder of arrays that is there as a whole or not at all, with a checksum of every file.

Takes: arrays, row by row. Gives: a folder with ``graph.json``. Runs once per partitioned graph.
Files go to a folder beside, which is renamed when all are written.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.distributed.stored.file_names import MANIFEST
from vgraph.distributed.stored.manifest import FileRecord, Manifest, read_manifest
from vgraph.errors import DataError

TRIES = 10  # while other processes rename the same folder
STORED_AS = {torch.bfloat16: torch.int16}  # NumPy has no such numbers


class FolderWriter:
    """Writes arrays below a folder; ``files`` is what the manifest says of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, FileRecord] = {}

    @contextmanager
    def array(self, name: str, dtype: torch.dtype, shape: Sequence[int]) -> Generator[ArrayWriter]:
        """A .npy file to which exactly the rows of ``shape`` are written, in order."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            writer = ArrayWriter(file, dtype, tuple(shape))
            yield writer
            assert writer.num_rows == shape[0], f"{writer.num_rows} of {shape[0]} rows of {name} are written"
            file.flush()
            os.fsync(file.fileno())
        self.files[name] = FileRecord(writer.num_bytes, writer.digest.hexdigest())

    def write(self, name: str, rows: Tensor) -> None:
        """A whole array."""
        with self.array(name, rows.dtype, rows.shape) as writer:
            writer.write(rows)


class ArrayWriter:
    """One .npy file, hashed while it is written."""

    def __init__(self, file: BinaryIO, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        self.file, self.dtype, self.stored = file, dtype, STORED_AS.get(dtype, dtype)
        self.digest, self.num_rows, self.num_bytes = sha256(), 0, 0
        descr = np.lib.format.dtype_to_descr(torch.empty(0, dtype=self.stored).numpy().dtype)
        np.lib.format.write_array_header_1_0(self, {"descr": descr, "fortran_order": False, "shape": shape})

    def write(self, rows: Tensor | NDArray[Any] | bytes) -> None:
        """The next rows, converted to the file's dtype (or bytes of the header)."""
        if isinstance(rows, bytes):
            data = memoryview(rows)
        else:
            found = torch.as_tensor(rows).detach().to("cpu", self.dtype).contiguous()
            self.num_rows += found.shape[0]
            plain: Any = found.view(self.stored).numpy().reshape(-1).view(np.uint8)
            data = memoryview(plain)
        self.digest.update(data)
        self.num_bytes += data.nbytes
        self.file.write(data)


@contextmanager
def written_folder(path: str | Path) -> Generator[FolderWriter]:
    """A writer of a folder that becomes ``path`` when the block ends; an error leaves ``path`` as it was.

    What is at ``path`` may be an empty folder, or a partitioned graph, which is replaced.

    Raises:
        DataError: something else is there, or the files cannot be written.
    """
    target = Path(os.path.realpath(path))
    _refuse_others(target)
    beside = target.with_name(f".{target.name[:50]}.{secrets.token_hex(4)}.tmp")
    began = time.time_ns()
    try:
        beside.mkdir(parents=True)
        yield FolderWriter(beside)
        _put(beside, target, began)
    except OSError as error:
        fact, cure = f"cannot write {path}: {error.strerror or error}", "check the path and the room on the disk"
        raise DataError(fact, cure=cure) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def write_manifest(writer: FolderWriter, manifest: Manifest) -> None:
    """The last file of a folder: it knows all others."""
    with (writer.folder / MANIFEST).open("wb") as file:
        file.write(manifest.text().encode())
        file.flush()
        os.fsync(file.fileno())


def _refuse_others(target: Path) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    try:
        read_manifest(target)
    except DataError as error:
        cure = "name a folder that does not exist, or is empty"
        raise DataError(f"{target} exists, and holds no partitioned graph", cure=cure) from error


def _put(beside: Path, target: Path, began: int) -> None:
    """Renames the folder into place; a graph that is there is moved away before, and removed after.

    Where several processes write the same graph at once, the first one's stays: others may have mapped it already.
    """
    for attempt in range(TRIES):
        if _was_written_meanwhile(beside, target, began):
            return
        previous = beside.with_name(f"{beside.name}.previous-{attempt}")
        with suppress(FileNotFoundError):
            os.rename(target, previous)
        try:
            os.rename(beside, target)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and attempt < TRIES - 1:
                continue  # another process was faster
            if previous.exists() and not target.exists():
                os.rename(previous, target)
            raise
        finally:
            if target.exists():
                shutil.rmtree(previous, ignore_errors=True)
        return


def _was_written_meanwhile(beside: Path, target: Path, began: int) -> bool:
    """Whether another process has put the same graph there since this one began."""
    ours, theirs = beside / MANIFEST, target / MANIFEST
    try:
        return theirs.stat().st_mtime_ns >= began and theirs.read_bytes() == ours.read_bytes()
    except OSError:
        return False
