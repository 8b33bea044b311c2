"""Features that stay on disk: only the rows that are asked for are read.

Takes: a .npy file. Gives: a tensor over it. Runs once.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from vgraph.files import map_array


def open_features(path: str | Path) -> Tensor:
    """A tensor whose rows are read from a .npy file when they are indexed; what is written to it stays in memory.

    The file has to stay as it is: where somebody cuts it short later, reading ends the process (as with every map).

    Args:
        path: a .npy file.

    Returns:
        A tensor of the file's shape and dtype over a private map of it.

    Raises:
        DataError: the file is missing, or no array that can be mapped.

    Source: NumPy, ``numpy.load`` with ``mmap_mode="c"``.

    Example:
        >>> import numpy as np, tempfile, vgraph
        >>> from vgraph.sampling import open_features
        >>> file = tempfile.NamedTemporaryFile(suffix=".npy")
        >>> np.save(file.name, np.ones((3, 4), np.float32))
        >>> g = vgraph.graph(([0, 1], [1, 2]))
        >>> g.ndata["feat"] = open_features(file.name)
        >>> g.ndata["feat"][1].tolist()
        [1.0, 1.0, 1.0, 1.0]
    """
    return map_array(path)
