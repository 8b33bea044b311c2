"""The Stanford Sentiment Treebank as graphs: an edge from every part of a sentence to the whole that it is in.

Takes: a folder as DGL's archive has it. Gives: a data set of graphs. Runs once per set.
Source: Socher et al. 2013.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vgraph.compat.data import dgl_url
from vgraph.compat.datasets.kinds import ManyGraphs, Transform, graph_of
from vgraph.data import parse_ptb
from vgraph.data.sst import SENTIMENTS
from vgraph.errors import DataError
from vgraph.files import read_lines, read_text


class SSTDataset(ManyGraphs):
    """Trees from ``train.txt``, ``dev.txt``, ``test.txt`` and ``vocab.txt``; the root is node 0.

    ``ndata``: ``x`` (the number of a word, -1 at inner nodes and for unknown words), ``y`` (the sentiment), ``mask``
    (1 at words). ``pretrained_emb``: a row for each word where ``glove_embed_file`` is given.
    """

    PAD_WORD = UNK_WORD = -1
    num_classes = 5
    modes = ("train", "dev", "test", "tiny")

    def __init__(
        self,
        mode: str = "train",
        glove_embed_file: str | None = None,
        vocab_file: str | None = None,
        raw_dir: str | None = None,
        force_reload: bool = False,
        verbose: bool = False,
        transform: Transform | None = None,
    ) -> None:
        if mode not in self.modes:
            raise DataError(f"the treebank has no part {mode!r}", cure=f"name one of {', '.join(self.modes)}")
        self.mode, self._vocab_file = mode, vocab_file
        self._glove_embed_file = glove_embed_file if mode == "train" else None
        url = dgl_url("dataset/sst.zip")
        super().__init__("sst", url, raw_dir, force_reload=force_reload, verbose=verbose, transform=transform)

    def read(self, folder: Path) -> None:
        words = read_text(self._vocab_file or folder / "vocab.txt").removesuffix("\n").split("\n")
        self.vocab = {word.strip(): number for number, word in enumerate(words)}
        path = folder / f"{self.mode}.txt"
        forest = parse_ptb(read_text(path), classes=SENTIMENTS, path=path)
        numbers = np.array([self.vocab.get(word.lower(), self.UNK_WORD) for word in forest.tokens], np.int64)
        is_word = forest.features["word"] >= 0
        x = np.where(is_word, numbers[forest.features["word"]], self.PAD_WORD)
        y, mask = forest.features["label"], is_word.astype(np.int64)
        self.graphs = []
        for first, end in zip(forest.ptr[:-1], forest.ptr[1:], strict=True):
            g = graph_of(np.arange(1, end - first), forest.parent[first + 1 : end], int(end - first))
            for name, values in (("x", x), ("y", y), ("mask", mask)):
                g.ndata[name] = torch.tensor(values[first:end])
            self.graphs.append(g)
        self._trees = self.graphs
        self.pretrained_emb = self._embedding()

    def _embedding(self) -> Tensor | None:
        """Vectors of words; those that the file lacks are drawn from a uniform distribution."""
        path = self._glove_embed_file
        if path is None or not Path(path).exists():
            return None
        wanted = {word.lower() for word in self.vocab}
        known: dict[str, list[float]] = {}
        for line in read_lines(path):
            word, *numbers = line.split(" ")
            if word.lower() in wanted:
                known[word.lower()] = [float(number) for number in numbers]
        width = len(next(iter(known.values()))) if known else 300
        rows = [known.get(word.lower()) or np.random.uniform(-0.05, 0.05, width) for word in self.vocab]
        return torch.from_numpy(np.stack(rows))

    @property
    def vocab_size(self) -> int:
        return len(self.vocab)


SST = SSTDataset
