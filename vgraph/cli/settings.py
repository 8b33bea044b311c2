"""Sizes and rates of the built-in models: what is not given has these defaults, which their help shows.

Takes: nothing. Gives: settings. Runs once.
"""

from __future__ import annotations

from dataclasses import dataclass

HEADS = 8


@dataclass(frozen=True)
class TreeSettings:
    """Sizes and rates.

    ``token_dropout`` is the part of tokens read as unknown in training, ``cell_dropout`` that of a
    cell's candidate. ``averaging``: what is measured is an average of the weights over about
    1 / (1 - averaging) steps; 0: it is the weights themselves.
    """

    epochs: int
    hidden: int
    embedding: int
    batch_size: int
    lr: float
    dropout: float
    embedding_dropout: float
    token_dropout: float
    cell_dropout: float
    weight_decay: float
    averaging: float = 0.0
    seed: int = 0


SYNTAX = TreeSettings(
    epochs=10, hidden=100, embedding=100, batch_size=32, lr=2e-3, dropout=0.5,
    embedding_dropout=0.3, token_dropout=0.1, cell_dropout=0.0, weight_decay=0.01, averaging=0.99,
)  # fmt: skip
SENTIMENT = TreeSettings(
    epochs=10, hidden=200, embedding=200, batch_size=64, lr=1e-3, dropout=0.5,
    embedding_dropout=0.5, token_dropout=0.1, cell_dropout=0.2, weight_decay=0.05,
)  # fmt: skip
RELATEDNESS = TreeSettings(
    epochs=10, hidden=150, embedding=100, batch_size=25, lr=2e-3, dropout=0.1,
    embedding_dropout=0.3, token_dropout=0.0, cell_dropout=0.0, weight_decay=0.01,
)  # fmt: skip


@dataclass(frozen=True)
class CitationSettings:
    """Kipf and Welling's; ``weight_decay`` is that of the first layer."""

    epochs: int = 200
    hidden: int = 16
    lr: float = 0.01
    dropout: float = 0.5
    weight_decay: float = 5e-4
    seed: int = 0


@dataclass(frozen=True)
class AttentionSettings(CitationSettings):
    """Velickovic et al.'s; ``hidden`` is the width of each of eight heads, ``weight_decay`` of both layers."""

    epochs: int = 300
    hidden: int = 8
    lr: float = 0.005
    dropout: float = 0.6
