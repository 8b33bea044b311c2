"""Packed folders (.zip, .tar, .tar.gz) and files (.gz), of which nothing lands outside and nothing grows without end.

Takes: an archive, an empty folder. Gives: the files in it. Runs once per archive.
"""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import IO

from vgraph.files.content import Bounded, damage_told, most_expanded, refuse_expansion

CURE = "give a .zip, .tar, .tar.gz or .gz file"


def unpack(path: Path, folder: Path) -> None:
    """Writes what an archive holds below ``folder``; what its name says is one compressed file, ``x.gz``, as ``x``.

    Raises:
        DataError: it is no archive, is damaged, names paths outside, or expands to far more than it is long.
        OSError: it cannot be read, or the folder not be written.
    """
    length = path.stat().st_size
    with path.open("rb") as file:
        begin = file.read(4)
        file.seek(0)
        # whatever is wrong with the archive is a DataError, but where this machine cannot read or write
        with damage_told(path, CURE, fact="it cannot be unpacked"):
            if begin[:2] == b"\x1f\x8b":
                content = Bounded(gzip.GzipFile(fileobj=file), most_expanded(length))
                if path.suffix == ".gz" and not path.stem.endswith(".tar"):
                    with (folder / path.stem).open("wb") as found:
                        shutil.copyfileobj(content, found)
                else:
                    _write_tar(content, folder)
            elif begin[:2] == b"PK":
                _write_zip(path, file, length, folder)
            else:
                _write_tar(Bounded(file, length), folder)


def _write_zip(path: Path, file: IO[bytes], length: int, folder: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        refuse_expansion(path, sum(info.file_size for info in archive.infolist()), length)
        for info in archive.infolist():
            # what leads out of the folder is left out by zipfile, silently; here it is told
            parts = Path(info.filename.replace("\\", "/")).parts
            if ".." in parts or Path(info.filename).is_absolute():
                raise ValueError(f"{info.filename!r} lies outside the folder")
            archive.extract(info, folder)


def _write_tar(file: Bounded, folder: Path) -> None:
    with tarfile.open(fileobj=file, mode="r:") as archive:
        sparse = next((member.name for member in archive if member.issparse()), None)
        if sparse is not None:
            raise ValueError(f"{sparse!r} says that it is larger than what is stored")
        archive.extractall(folder, filter="data")
