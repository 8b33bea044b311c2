"""Returns: what a model returns: tensors in a nest of tuples, lists, dicts and dataclasses, one of them the loss.

Takes: what a recorded call returned; later the tensors of a step. Gives: the nest with a number for each tensor, and
the nest with tensors in it again. Runs once per recording, and at every step.
Source: the outputs of a module in PyTorch, which may be any nest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from vgraph.capture.step.arguments import map_nest
from vgraph.errors import ModelError

_ROOT = "output"


class Returned(int):
    """Stands for one tensor in what a model returns: its number."""


def tensors_of(nest: object) -> dict[str, Tensor]:
    """Every tensor of a nest by its path, such as ``output['loss']``."""
    found: dict[str, Tensor] = {}

    def leaf(path: str, item: object) -> None:
        if isinstance(item, Tensor):
            found[path] = item

    map_nest(nest, leaf, _ROOT)
    return found


def numbered(nest: object, order: Sequence[str]) -> object:
    """The nest with each tensor replaced by its place in ``order``, which has the path of every tensor."""
    places = {path: Returned(number) for number, path in enumerate(order)}
    return map_nest(nest, lambda path, item: places.get(path, item), _ROOT)


def restored(nest: object, tensors: Sequence[Tensor]) -> object:
    """The nest with tensors again."""
    return map_nest(nest, lambda _, item: tensors[item] if isinstance(item, Returned) else item, _ROOT)


def find_loss(nest: object, found: Mapping[str, Tensor], model: str) -> str:
    """The path of the loss among a nest's tensors: the one scalar that depends on parameters, or of several ``loss``.

    Raises:
        ModelError: there is none, or it cannot be told which.
    """
    scalars = [path for path, tensor in found.items() if tensor.dim() == 0 and tensor.requires_grad]
    named = [path for path in scalars if path.endswith((".loss", "['loss']"))]
    for paths in (scalars, named):
        if len(paths) == 1:
            return paths[0]
    if scalars:
        raise ModelError(
            f"{model} returns {len(scalars)} scalars that depend on parameters, and not one of them is called loss",
            cure="return the one to be minimised alone, or as 'loss' of a dict or a dataclass",
        )
    raise ModelError(
        f"{model} returns {_what(nest, found)}",
        cure="return the scalar loss, alone or beside other results: wrap the model in a module that computes it from "
        "the batch; or make a plan of model.eval(), which needs none",
    )


def _what(nest: object, found: Mapping[str, Tensor]) -> str:
    if not found:
        return f"a {type(nest).__name__}"
    if any(tensor.dim() == 0 for tensor in found.values()):
        return "a loss that depends on no parameter"
    shapes = [f"a tensor of shape {tuple(tensor.shape)}" for tensor in found.values()]
    return shapes[0] if len(shapes) == 1 else f"{len(shapes)} tensors, and no scalar"
