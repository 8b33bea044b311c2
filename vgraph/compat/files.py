"""``dgl.data.utils``: folders, archives and files of tensors.

Takes: paths. Gives: files and what they hold; tempo: once a data set.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vgraph.errors import DataError


def makedirs(path: str | Path) -> None:
    """Makes a folder and those around it, where they are not there."""
    Path(path).mkdir(parents=True, exist_ok=True)


def extract_archive(file: str | Path, target_dir: str | Path, overwrite: bool = False) -> None:
    """Unpacks a .zip, .tar or .tar.gz; where the folder is there and ``overwrite`` is not set, nothing is done.

    Raises:
        DataError: it is no archive.
    """
    if Path(target_dir).exists() and not overwrite:
        return
    options: dict[str, Any] = {} if str(file).endswith(".zip") else {"filter": "data"}
    try:
        shutil.unpack_archive(str(file), str(target_dir), **options)
    except (shutil.ReadError, ValueError, OSError) as error:
        raise DataError(f"{file} cannot be unpacked: {error}", cure="give a .zip or .tar.gz file") from error


def save_tensors(filename: str | Path, tensor_dict: Mapping[str, Tensor]) -> bool:
    """Writes tensors by name."""
    torch.save(dict(tensor_dict), filename)
    return True


def load_tensors(filename: str | Path, return_dgl_ndarray: bool = False) -> dict[str, Tensor]:
    """What ``save_tensors`` wrote; the file runs no code."""
    return torch.load(filename, weights_only=True)
