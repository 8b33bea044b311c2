"""Whatever is moved or renamed in vgraph: a dozen models become the same Programs, plans and code as before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.golden_prints.models import MODELS
from tests.golden_prints.pipeline import make_all
from tests.golden_prints.printing import prints


def test_nothing_is_kept_of_other_models() -> None:
    kept = Path(__file__).parent.parent / "golden" / "prints"
    assert {folder.name for folder in kept.iterdir()} == MODELS.keys()


@pytest.mark.parametrize("name", MODELS)
def test_golden_prints(name: str, golden: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")  # vectors as long on any machine
    texts = prints(make_all(MODELS[name]))
    differences = [golden(f"prints/{name}/{kind}", text) for kind, text in texts.items()]
    assert not any(differences), "\n\n".join(filter(None, differences))  # a Program tells why its kernels are others
