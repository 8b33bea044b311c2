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
from vgraph import load_graphs, load_labels
from vgraph.atomic_file import atomic_file
from vgraph.compat.datasets.planetoid import read_planetoid
from vgraph.compat.files import extract_archive, makedirs
from vgraph.compat.names import save_graphs
from vgraph.data import load_planetoid
from vgraph.errors import DataError
from vgraph.files import read_archive, read_bytes

__all__ = [
    "CitationGraphDataset",
    "CiteseerGraphDataset",
    "CoraGraphDataset",
    "DGLBuiltinDataset",
    "DGLDataset",
    "check_sha1",
    "download",
    "get_download_dir",
    "load_graphs",
    "load_info",
    "load_labels",
    "save_graphs",
    "save_info",
]


def get_download_dir() -> str:
    """The folder of data sets, which is made if it is not there: ``DGL_DOWNLOAD_DIR``, else ``~/.dgl``."""
    folder = os.environ.get("DGL_DOWNLOAD_DIR") or str(Path("~/.dgl").expanduser())
    makedirs(folder)
    return folder


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


def dgl_url(file_url: str) -> str:
    """Where DGL keeps a file: below ``DGL_REPO``, if that is set."""
    return os.environ.get("DGL_REPO", "https://data.dgl.ai/").rstrip("/") + f"/{file_url}"


_get_dgl_url = dgl_url  # as DGL calls it


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
        if not Path(self.raw_path).exists():
            self.download()
        self.process()
        self.save()

    def _changed(self, g: vgraph.Graph) -> vgraph.Graph:
        """What ``transform`` makes of a graph; the features that it sets are not set in the graph that is kept."""
        return g if self._transform is None else self._transform(g.local_var())

    def download(self) -> None:
        """Called where ``raw_path`` is not there; without a ``url`` it does nothing, unless a subclass knows better.

        Raises:
            DataError: there is a ``url``.
        """
        if self._url is not None:
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

    def __repr__(self) -> str:
        return f'Dataset("{self.name}", num_graphs={len(self)}, save_path={self.save_path})'

    @property
    def name(self) -> str:
        return self._name

    @property
    def url(self) -> str | None:
        return self._url

    @property
    def hash(self) -> str:
        """Eight letters that tell ``hash_key``s apart."""
        return short_hash(self._hash_key)

    @property
    def raw_dir(self) -> str:
        return self._raw_dir

    @property
    def raw_path(self) -> str:
        return self._place_in(self._raw_dir)

    @property
    def save_dir(self) -> str:
        return self._save_dir

    @property
    def save_path(self) -> str:
        return self._place_in(self._save_dir)

    def _place_in(self, folder: str) -> str:
        """The set's folder as DGL calls it, with a hash of the address; one called by the name alone will do."""
        plain = Path(folder) / self._name
        hashed = plain if self._url is None else plain.with_name(f"{plain.name}_{short_hash(self._url)}")
        return str(plain if plain.exists() and not hashed.exists() else hashed)

    @property
    def verbose(self) -> bool:
        return self._verbose


def short_hash(key: object) -> str:
    """Eight letters that tell keys apart, as DGL makes them."""
    return hashlib.sha1(str(key).encode(), usedforsecurity=False).hexdigest()[:8]


class DGLBuiltinDataset(DGLDataset):
    """A data set whose archive, ``raw_dir/name.zip``, is unpacked where it was put there; nothing is downloaded."""

    suffix = ".zip"

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

    def download(self) -> None:
        """Unpacks the archive to ``raw_path``; DataError: there is none."""
        if self._url is None:
            return
        archive = Path(self._raw_dir) / f"{self._name}{self.suffix}"
        if not archive.is_file():
            raise self.absent(str(archive), f"neither the folder {self.raw_path} nor the file ")
        extract_archive(archive, self.raw_path)

    def absent(self, path: str, before: str = "") -> DataError:
        """The error for a file that is not there, which says where to put it."""
        fact = f"{before}{path} is {'' if before else 'not '}there, and vgraph downloads nothing"
        return DataError(fact, cure=f"put {self._url} there as {path}")


class CitationGraphDataset(DGLBuiltinDataset):
    """One graph, from ``name.npz`` in ``raw_dir`` (as ``load_planetoid`` reads it) or from DGL's archive."""

    def __init__(
        self,
        name: str,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = True,
        reverse_edge: bool = True,
        transform: Callable[[vgraph.Graph], vgraph.Graph] | None = None,
        reorder: bool = False,
    ) -> None:
        word = name.lower()
        if word not in ("cora", "citeseer", "pubmed"):
            raise DataError(f"there is no citation graph {name!r}", cure="name cora, citeseer or pubmed")
        self.reverse_edge, self._reorder, self._arrays = reverse_edge, reorder, f"{word}.npz"
        kept = "cora_v2" if word == "cora" else word
        url = dgl_url(f"dataset/{kept}.zip")
        super().__init__(kept, url, raw_dir, force_reload=force_reload, verbose=verbose, transform=transform)

    def download(self) -> None:
        if not self._stored_arrays.exists():
            super().download()

    @property
    def _stored_arrays(self) -> Path:
        return Path(self._raw_dir) / self._arrays

    def process(self) -> None:
        if self._stored_arrays.exists():
            found = load_planetoid(self._stored_arrays)
            self._graph, self.num_classes = found.graph, found.num_classes
            if not self.reverse_edge:
                self._graph = _in_one_direction(self._graph)
        else:
            folder = Path(self.raw_path)
            self._graph, self.num_classes = read_planetoid(folder, self.name, reverse_edge=self.reverse_edge)
        self.num_labels = self.num_classes
        if self._reorder:
            self._graph = vgraph.reorder_graph(self._graph, "rcmk", "dst", store_ids=False)

    def __getitem__(self, idx: int) -> vgraph.Graph:
        if idx != 0:
            raise IndexError(f"{self.name} has one graph")
        return self._changed(self._graph)

    def __len__(self) -> int:
        return 1


def _in_one_direction(g: vgraph.Graph) -> vgraph.Graph:
    """One edge for each pair of nodes that an edge of a graph joins, from the lower id to the higher."""
    src, dst = g.edges()
    ends = torch.stack([torch.minimum(src, dst), torch.maximum(src, dst)])
    made = vgraph.graph(tuple(ends.unique(dim=1)), num_nodes=g.num_nodes())
    made.ndata.update(g.ndata)
    return made


class _Citation(CitationGraphDataset):
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
        super().__init__(self.file, raw_dir, force_reload, verbose, reverse_edge, transform, reorder)


class CoraGraphDataset(_Citation):
    """Cora, from ``cora.npz`` or DGL's ``cora_v2.zip``."""

    file = "cora"


class CiteseerGraphDataset(_Citation):
    """CiteSeer, from ``citeseer.npz`` or DGL's ``citeseer.zip``."""

    file = "citeseer"


class PubmedGraphDataset(_Citation):
    """PubMed, from ``pubmed.npz`` or DGL's ``pubmed.zip``."""

    file = "pubmed"
