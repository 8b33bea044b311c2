"""``dgl.data``: data sets as DGL's programs name them, from files that are there; nothing is downloaded.

Takes: a folder. Gives: data sets of graphs. Runs once per file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import vgraph
from vgraph import load_graphs, save_graphs
from vgraph.atomic_file import atomic_file
from vgraph.data import load_planetoid
from vgraph.errors import DataError
from vgraph.files import read_archive, read_bytes

__all__ = [
    "CiteseerGraphDataset",
    "CoraGraphDataset",
    "DGLBuiltinDataset",
    "DGLDataset",
    "check_sha1",
    "download",
    "get_download_dir",
    "load_graphs",
    "load_info",
    "save_graphs",
    "save_info",
]


def get_download_dir() -> str:
    """The folder of data sets: ``DGL_DOWNLOAD_DIR``, else ``~/.dgl``; it is not made here."""
    return os.environ.get("DGL_DOWNLOAD_DIR") or str(Path("~/.dgl").expanduser())


def download(
    url: str,
    path: str | None = None,
    overwrite: bool = True,
    sha1_hash: str | None = None,
    retries: int = 5,
    verify_ssl: bool = True,
    log: bool = True,
) -> str:
    """The file that a program would download, where it is there already.

    Raises:
        DataError: it is not there (vgraph downloads nothing), or has another ``sha1_hash``.
    """
    name = Path(url.rpartition("/")[2])
    target = name if path is None else Path(path) / name if Path(path).is_dir() else Path(path)
    if not target.is_file():
        raise DataError(f"{target} is not there, and vgraph downloads nothing", cure=f"put {url} there")
    if sha1_hash is not None and not check_sha1(target, sha1_hash):
        raise DataError(f"{target} has another SHA-1 than {sha1_hash}", cure=f"put {url} there, unchanged")
    return str(target)


def check_sha1(filename: str | Path, sha1_hash: str) -> bool:
    """Whether a file has this SHA-1; DataError: it cannot be read."""
    return hashlib.sha1(read_bytes(filename), usedforsecurity=False).hexdigest() == sha1_hash


def save_info(path: str | Path, info: Mapping[str, object]) -> None:
    """Writes numbers, text, lists, dicts and tensors by name."""
    with atomic_file(path) as file:
        torch.save(dict(info), file)


def load_info(path: str | Path) -> dict[str, Any]:
    """What ``save_info`` wrote, tensors on the CPU; the file runs no code.

    Raises:
        DataError: the file is missing or damaged, or holds objects of other kinds.
    """
    found = read_archive(path, "write it with save_info")
    if not isinstance(found, dict):
        raise DataError("it holds nothing by name", line=str(path), cure="write it with save_info")
    return found


class DGLDataset:
    """The base of a program's own data sets: ``process`` is called once, or ``load`` where ``has_cache`` says so."""

    def __init__(
        self,
        name: str,
        url: str | None = None,
        raw_dir: str | None = None,
        save_dir: str | None = None,
        hash_key: tuple[object, ...] = (),
        force_reload: bool = False,
        verbose: bool = False,
        transform: Callable[[vgraph.Graph], vgraph.Graph] | None = None,
    ) -> None:
        self._name, self._url, self._hash_key = name, url, hash_key
        self._raw_dir = get_download_dir() if raw_dir is None else raw_dir
        self._save_dir = self._raw_dir if save_dir is None else save_dir
        self._force_reload, self._verbose, self._transform = force_reload, verbose, transform
        self._load()

    def _load(self) -> None:
        if not self._force_reload and self.has_cache():
            self.load()
            return
        if self._url is not None and not Path(self.raw_path).exists():
            self.download()
        self.process()
        self.save()

    def download(self) -> None:
        """Called where ``raw_path`` is not there; raises DataError unless a subclass knows better."""
        fact = f"{self.raw_path} is not there, and vgraph downloads nothing"
        raise DataError(fact, cure=f"put what {self._url} gives there")

    def process(self) -> None:
        """Makes the graphs."""
        raise NotImplementedError

    def has_cache(self) -> bool:
        """Whether ``load`` can read what ``save`` wrote."""
        return False

    def save(self) -> None:
        """Writes the graphs to ``save_path``."""

    def load(self) -> None:
        """Reads the graphs from ``save_path``."""

    def __getitem__(self, idx: int) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def name(self) -> str:
        return self._name

    @property
    def url(self) -> str | None:
        return self._url

    @property
    def raw_dir(self) -> str:
        return self._raw_dir

    @property
    def raw_path(self) -> str:
        return str(Path(self._raw_dir) / self._name)

    @property
    def save_dir(self) -> str:
        return self._save_dir

    @property
    def save_path(self) -> str:
        return str(Path(self._save_dir) / self._name)

    @property
    def verbose(self) -> bool:
        return self._verbose


class DGLBuiltinDataset(DGLDataset):
    """A data set with an address, from which nothing is downloaded."""

    def __init__(
        self,
        name: str,
        url: str | None,
        raw_dir: str | None = None,
        hash_key: tuple[object, ...] = (),
        force_reload: bool = False,
        verbose: bool = False,
        transform: Callable[[vgraph.Graph], vgraph.Graph] | None = None,
    ) -> None:
        super().__init__(
            name, url, raw_dir, hash_key=hash_key, force_reload=force_reload, verbose=verbose, transform=transform
        )


class _Citation(DGLDataset):
    """One graph of ``name.npz`` in ``raw_dir``."""

    file = ""

    def __init__(
        self,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = True,
        reverse_edge: bool = True,
        transform: Callable[[vgraph.Graph], vgraph.Graph] | None = None,
        reorder: bool = False,
    ) -> None:
        super().__init__(self.file, raw_dir=raw_dir, force_reload=force_reload, verbose=verbose, transform=transform)

    def process(self) -> None:
        found = load_planetoid(f"{self.raw_path}.npz")
        self._graph, self.num_classes = found.graph, found.num_classes
        self.num_labels = self.num_classes

    def __getitem__(self, idx: int) -> vgraph.Graph:
        if idx != 0:
            raise IndexError(f"{self.name} has one graph")
        return self._graph if self._transform is None else self._transform(self._graph)

    def __len__(self) -> int:
        return 1


class CoraGraphDataset(_Citation):
    """Cora, from ``cora.npz``."""

    file = "cora"


class CiteseerGraphDataset(_Citation):
    """CiteSeer, from ``citeseer.npz``."""

    file = "citeseer"


class PubmedGraphDataset(_Citation):
    """PubMed, from ``pubmed.npz``."""

    file = "pubmed"
