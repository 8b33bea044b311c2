"""What is kept of tensors is found by the tensor itself and let go with it."""

import gc

import torch

from vgraph.compat.pyg.by_tensor import ByTensor


def test_tensors_are_told_apart_by_identity() -> None:
    kept = ByTensor[str]()
    one, equal = torch.zeros(2), torch.zeros(2)
    kept[one] = "one"
    assert kept.get(one) == "one" and kept.get(equal) is None
    kept[one] = "again"
    assert kept.get(one) == "again"


def test_what_was_kept_goes_with_the_tensor() -> None:
    kept, held = ByTensor[torch.Tensor](), torch.zeros(3)
    for _ in range(8):  # tensors with the ids of those before them
        tensor = torch.zeros(2)
        assert kept.get(tensor) is None
        kept[tensor] = held
    del tensor
    gc.collect()
    assert not kept._kept


def test_a_tensor_that_python_let_go_of_is_known_again() -> None:
    kept, x = ByTensor[str](), torch.ones(2, requires_grad=True)
    tensor = x * 1
    kept[tensor] = "kept"
    out = tensor.square()  # its backward holds the tensor
    del tensor
    again = out.grad_fn._saved_self  # type: ignore[union-attr]
    assert kept.get(again) == "kept"
