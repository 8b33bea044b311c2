"""Mapped arrays: .npy files whose rows are read when they are touched, and shared by the processes of a machine.

Takes: a path. Gives: a tensor over the file. Runs once per file. The header is compared with the file's length.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vgraph.files.arrays import check_header
from vgraph.files.content import damage_told, unreadable

CURE = "write it with numpy.save"


def map_array(path: str | Path, cure: str = CURE) -> Tensor:
    """The tensor of a .npy file, of which no page is read yet and of which no file stays open.

    What is written to it stays in this process (pages are copied then); pages that are only read belong to the
    system's cache, once for all processes. Truth values are read at once: a byte of 7 is no bool, and counts as
    true once.

    Raises:
        DataError: the file is missing, or no array of plain numbers that can be mapped.
    """
    try:
        with Path(path).open("rb") as file, damage_told(path, cure, fact="no array can be mapped"):
            length = Path(path).stat().st_size
            dtype, shape, is_fortran, offset = check_header(file, length, "it")
            raw = torch.from_file(str(path), shared=False, size=length, dtype=torch.uint8)[offset:]
            return _typed(raw, dtype, shape, is_fortran)
    except OSError as error:
        raise unreadable(path, error) from error


def _typed(raw: Tensor, dtype: np.dtype[Any], shape: tuple[int, ...], is_fortran: bool) -> Tensor:
    if dtype != dtype.newbyteorder("="):
        raise ValueError(f"its numbers are {dtype}, in the order of bytes of other machines")
    if dtype.kind == "b":
        elements = raw != 0
    else:
        elements = raw.view(torch.from_numpy(np.empty(0, dtype)).dtype)
    return elements.view(shape[::-1]).permute(*range(len(shape))[::-1]) if is_fortran else elements.view(shape)
