"""Vectors of the tokens of syntax trees, made of those of their words.

Takes: token ids. Gives: one row a token. Runs at every step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


class TokenEmbedding(nn.Module):
    """A token's vector is the sum of its kind's and of its words' vectors.

    ``Attribute:get_option`` is Attribute + get + option, so that what is learnt of ``getOption``,
    or of ``arg:option``, is known of it too.

    >>> TokenEmbedding(["<unknown>", "Return", "arg:option", "Name:getOption"], 5)
    TokenEmbedding(4 tokens of 6 words, 5)
    """

    words: Tensor
    offsets: Tensor

    def __init__(self, tokens: Sequence[str], size: int, *, std: float = 1.0) -> None:
        super().__init__()
        parts = [split_token(token) for token in tokens]
        number = {word: i for i, word in enumerate(dict.fromkeys(w for own in parts for w in own))}
        self.weight = nn.Parameter(torch.randn(len(number), size) * std)
        flat = torch.tensor([number[word] for own in parts for word in own])
        lengths = torch.tensor([0, *map(len, parts)])
        self.register_buffer("words", flat, persistent=False)
        self.register_buffer("offsets", lengths.cumsum(0)[:-1], persistent=False)

    def forward(self, token: Tensor) -> Tensor:
        table = F.embedding_bag(self.words, self.weight, self.offsets, mode="sum")
        return F.embedding(token, table)

    def extra_repr(self) -> str:
        count, size = self.weight.shape
        return f"{len(self.offsets)} tokens of {count} words, {size}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"


def split_token(token: str) -> list[str]:
    """The kind of a token, and its words in lower case.

    >>> split_token("Attribute:get_HTTPOption"), split_token("Return")
    (['Attribute:', 'get', 'http', 'option'], ['Return:'])
    """
    kind, _, name = token.partition(":")
    return [f"{kind}:", *(word.lower() for word in WORD.findall(name))]
