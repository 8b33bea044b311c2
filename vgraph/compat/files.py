"""``dgl.data.utils``: folders, archives and files of tensors.

Takes: paths. Gives: files and what they hold. Runs once per data set.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.atomic_file import atomic_file
from vgraph.compat import ndarray
from vgraph.errors import DataError
from vgraph.files import damage_told, read_archive, read_text, unpack, unreadable


def makedirs(path: str | Path) -> None:
    """Makes a folder and those around it, where they are not there."""
    Path(path).mkdir(parents=True, exist_ok=True)


def extract_archive(file: str | Path, target_dir: str | Path, overwrite: bool = False) -> None:
    """Unpacks a .zip, a .tar or .tar.gz, or the one file that is a .gz into a folder.

    Where the folder is there and ``overwrite`` is not set, nothing is done.

    Raises:
        DataError: it is no archive, holds what would lie outside the folder, or expands beyond what its length makes
            likely; nothing is left of it then.
    """
    target = Path(target_dir)
    if target.exists() and not overwrite:
        return
    makedirs(target.parent)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder:
        unpacked = Path(folder, "unpacked")
        unpacked.mkdir()
        try:
            unpack(Path(file), unpacked)
        except OSError as error:
            raise unreadable(file, error) from error
        if target.exists():
            shutil.copytree(unpacked, target, dirs_exist_ok=True)
        else:
            unpacked.replace(target)


def save_tensors(filename: str | Path, tensor_dict: Mapping[str, Tensor]) -> bool:
    """Writes tensors by name."""
    with atomic_file(filename) as file:
        torch.save(dict(tensor_dict), file)
    return True


def load_tensors(filename: str | Path, return_dgl_ndarray: bool = False) -> Mapping[str, Tensor]:
    """What ``save_tensors`` wrote, on the CPU; the file runs no code.

    Raises:
        DataError: the file is missing or damaged, or holds anything but tensors by name.
    """
    found = read_archive(filename, "write it with save_tensors")
    is_named = isinstance(found, dict) and all(isinstance(name, str) for name in found)
    if not is_named or not all(isinstance(item, Tensor) for item in found.values()):
        raise DataError("it holds no tensors by name", line=str(filename), cure="write it with save_tensors")
    return {name: item.as_subclass(ndarray.NDArray) for name, item in found.items()} if return_dgl_ndarray else found


def loadtxt(path: str | Path, delimiter: str, dtype: object = None) -> NDArray[np.float64 | np.int64]:
    """A table of numbers from text, (lines, columns): whole ones, where all are; DataError: it is none."""
    with damage_told(path, "give numbers, as many in each line", fact="no table can be read"):
        lines = [line for line in read_text(path).split("\n") if line.strip()]
        try:
            return np.loadtxt(lines, np.int64, delimiter=delimiter, ndmin=2)
        except ValueError:
            return np.loadtxt(lines, np.float64, delimiter=delimiter, ndmin=2)
