"""Whatever is moved or renamed in vgraph: a dozen models become the same Programs, plans and code as before."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.golden_prints.models import MODELS
from tests.golden_prints.pipeline import make_all
from tests.golden_prints.printing import _texts, prints
from vgraph.fusion.cpu import compilers


def test_nothing_is_kept_of_other_models() -> None:
    kept = Path(__file__).parent.parent / "golden" / "prints"
    assert {folder.name for folder in kept.iterdir()} == MODELS.keys()


@pytest.mark.parametrize("name", MODELS)
def test_golden_prints(name: str, golden: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")  # vectors as long on any machine
    texts = prints(make_all(MODELS[name]))
    differences = [golden(f"prints/{name}/{kind}", text) for kind, text in texts.items()]
    assert not any(differences), "\n\n".join(filter(None, differences))  # a Program tells why its kernels are others


@pytest.mark.parametrize("name", MODELS)
def test_what_is_printed_is_c(name: str, tmp_path: Path) -> None:
    """What no compiler takes runs on torch's operators, with a line to say so: a comparison would not see it."""
    compiler = compilers.find_compiler()
    if compiler is None:
        pytest.skip("no C++ compiler")
    texts = {_texts(made.targets["cpu"]) for made in make_all(MODELS[name]) if made.is_paired}
    sources = [source for text in texts for source in re.split(r"(?m)^(?=#include \"prelude\.h\")", text)[1:]]
    assert sources
    for source in sources:
        path = tmp_path / "kernel.cpp"
        path.write_text(source)
        words = (*compilers.flags(compiler, asked=False), "-fsyntax-only")
        done = compilers.run_on(compiler, path, tmp_path / "kernel.so", words)
        assert done.returncode == 0, done.stderr
