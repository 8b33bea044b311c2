"""``dgl.optim``: optimizers of the rows of ``NodeEmbedding`` that a step has used, and of no others.

Takes: embeddings. Gives: changed rows. Runs at every step; each process of a group changes a share of the rows.
Source: DGL 1.1, ``dgl.optim``; Kingma and Ba 2015 (Adam), Duchi et al. 2011 (Adagrad).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

import vgraph.distributed as vd
from vgraph.compat.node_embedding import NodeEmbedding
from vgraph.errors import DTypeError, FunctionError
from vgraph.runtime.distributed.ranks import current_ranks

State = Mapping[str, object]


class SparseGradOptimizer(ABC):
    """Applies what came together in rows of embeddings since the last step; a row's gradients are averaged."""

    def __init__(self, params: Sequence[object], lr: float) -> None:
        self._params = [one for one in params if isinstance(one, NodeEmbedding)]
        if not params or len(self._params) < len(params):
            fact = f"{type(self).__name__} is given {[type(one).__name__ for one in params] or 'nothing'}"
            raise FunctionError(fact, cure="pass a list of dgl.nn.NodeEmbedding; torch.optim has the others")
        self._lr, self._forgets = lr, False
        for embedding in self._params:
            embedding.set_optm_state(self.remembered(embedding))

    @abstractmethod
    def remembered(self, embedding: NodeEmbedding) -> tuple[Tensor, ...]:
        """What is remembered of each row, at the beginning."""

    @abstractmethod
    def update(self, idx: Tensor, grad: Tensor, emb: NodeEmbedding) -> None:
        """Changes rows ``idx`` (k,), each once, by their gradients (k, width)."""

    @property
    @abstractmethod
    def param_groups(self) -> list[dict[str, object]]:
        """The numbers that the optimizer was made with, as torch's optimizers have them."""

    def step(self) -> None:
        """Changes the rows that were used; all processes of a group call it."""
        for embedding in self._params:
            ids, grad = _own(embedding, *_collected(embedding))
            found, inverse, counts = torch.unique(ids, return_inverse=True, return_counts=True)
            total = grad.new_zeros(found.shape[0], grad.shape[1]).index_add_(0, inverse, grad)
            if len(found):
                self.update(found, total / counts.unsqueeze(1), embedding)
            embedding.meet()
            if self._forgets:
                embedding.reset_trace()
        self._forgets = False

    def zero_grad(self) -> None:
        """The next step forgets what came before its end."""
        self._forgets = True

    def state_dict(self, **kwargs: object) -> dict[str, object]:
        """What is remembered, by the embeddings' names, and the numbers that the optimizer was made with."""
        state = {one.name: tuple(part.cpu().clone() for part in one.optm_state or ()) for one in self._params}
        return {"state": state, "param_groups": self.param_groups}

    def load_state_dict(self, state_dict: Mapping[str, object], **kwargs: object) -> None:
        """Goes on from what ``state_dict`` gave; all processes of a group call it.

        Raises:
            FunctionError: it is of other embeddings, or of another optimizer.
        """
        state, groups = state_dict.get("state"), state_dict.get("param_groups")
        if not isinstance(state, Mapping) or not isinstance(groups, list):
            raise FunctionError("the state has no 'state' and 'param_groups'", cure="pass what state_dict() gave")
        own = [(one.name, one.optm_state or ()) for one in self._params]
        for name, parts in own:
            shapes = [tuple(part.shape) for part in state.get(name, ())]
            if shapes != [tuple(part.shape) for part in parts]:
                fact = (
                    f"the state of {name!r} has arrays of {shapes}, where {[tuple(p.shape) for p in parts]} are needed"
                )
                raise FunctionError(fact, cure="load the state of an optimizer of the same kind and embeddings")
        for embedding, (name, parts) in zip(self._params, own, strict=True):
            for part, saved in zip(parts, state[name], strict=True) if embedding.rank <= 0 else ():
                part.copy_(saved)
            embedding.meet()
        for number in self.param_groups[0]:  # each is an attribute behind an underscore
            setattr(self, f"_{number}", groups[0][number])


def _collected(embedding: NodeEmbedding) -> tuple[Tensor, Tensor]:
    """Ids and gradients of all rows that have one, on the embedding's device."""
    device = embedding.weight.device
    kept = [(ids, rows.grad) for ids, rows in embedding.trace if rows.grad is not None]
    ids = torch.cat(
        [torch.zeros(0, dtype=torch.int64, device=device), *(i.reshape(-1).to(device).long() for i, _ in kept)]
    )
    width = embedding.embedding_dim
    grad = torch.cat([torch.zeros(0, width, device=device), *(g.reshape(-1, width).to(device) for _, g in kept)])
    return ids, grad


def _own(embedding: NodeEmbedding, ids: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Of all processes' ids and gradients those that this one is to apply: every so manieth row."""
    size = embedding.world_size
    if size < 2:
        return ids, grad
    owner = ids % size
    order, counts = owner.argsort(stable=True), owner.bincount(minlength=size)
    told = vd.gather_rows(counts.unsqueeze(0))[:, embedding.rank].tolist()
    ranks = current_ranks()
    parts = [
        ranks.all_to_all(part[order].contiguous(), counts.tolist(), told, "gradients of embeddings")
        for part in (ids, grad)
    ]
    return parts[0], parts[1]


class SparseAdagrad(SparseGradOptimizer):
    """Adagrad of rows that are used."""

    def __init__(self, params: Sequence[NodeEmbedding], lr: float, eps: float = 1e-10) -> None:
        self._eps = eps
        super().__init__(params, lr)

    def remembered(self, embedding: NodeEmbedding) -> tuple[Tensor, ...]:
        """The sums of squares."""
        return (embedding.shared("_sum", (embedding.num_embeddings, embedding.embedding_dim), torch.float32),)

    def update(self, idx: Tensor, grad: Tensor, emb: NodeEmbedding) -> None:
        """Changes rows ``idx`` (k,), each once, by their gradients (k, width)."""
        assert emb.optm_state is not None
        (squares,) = emb.optm_state
        total = squares[idx] + grad * grad
        squares[idx] = total
        emb.weight[idx] -= self._lr * grad / (total + self._eps).sqrt()

    @property
    def param_groups(self) -> list[dict[str, object]]:
        """The numbers that the optimizer was made with."""
        return [{"lr": self._lr, "eps": self._eps}]


class SparseAdam(SparseGradOptimizer):
    """Adam of rows that are used; each row counts its own steps.

    ``use_uva`` has no effect; what is remembered is kept as ``dtype``, float32 or float16.

    Raises:
        DTypeError: ``dtype`` is another.
    """

    def __init__(
        self,
        params: Sequence[NodeEmbedding],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        use_uva: bool | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if dtype not in (torch.float32, torch.float16):
            raise DTypeError(f"dtype is {dtype}", cure="pass torch.float32 or torch.float16")
        self._betas, self._eps, self._dtype = betas, eps, dtype
        super().__init__(params, lr)

    def remembered(self, embedding: NodeEmbedding) -> tuple[Tensor, ...]:
        """How many steps each row was used in, and the averages of gradients and of their squares."""
        count, shape = embedding.num_embeddings, (embedding.num_embeddings, embedding.embedding_dim)
        return (
            embedding.shared("_step", (count,), torch.float32),
            embedding.shared("_mean", shape, self._dtype),
            embedding.shared("_square", shape, self._dtype),
        )

    def update(self, idx: Tensor, grad: Tensor, emb: NodeEmbedding) -> None:
        """Changes rows ``idx`` (k,), each once, by their gradients (k, width)."""
        assert emb.optm_state is not None
        steps, means, squares = emb.optm_state
        first, second = self._betas
        steps[idx] += 1
        count = steps[idx].unsqueeze(1)
        mean = first * means[idx].to(grad.dtype) + (1 - first) * grad
        square = second * squares[idx].to(grad.dtype) + (1 - second) * grad * grad
        means[idx], squares[idx] = mean.to(self._dtype), square.to(self._dtype)
        width = (square / (1 - second**count)).sqrt() + self._eps
        emb.weight[idx] -= self._lr * mean / (1 - first**count) / width

    @property
    def param_groups(self) -> list[dict[str, object]]:
        """The numbers that the optimizer was made with."""
        return [{"lr": self._lr, "betas": self._betas, "eps": self._eps}]
