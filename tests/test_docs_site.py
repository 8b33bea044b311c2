"""The site of documentation: its reference has every public name, and its links lead somewhere.

`make docs` builds it with warnings as errors; here is what can be told without Sphinx's minute.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.public_names import PACKAGES

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if not {"_build", "project"} & {*path.relative_to(DOCS).parts})


def test_the_reference_has_every_exported_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS / "_ext")
    pages = import_module("reference").pages()
    shown = {id(public.thing) for things in pages.values() for public in things}
    for package in PACKAGES:
        module = import_module(package)
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if callable(thing) and not isinstance(thing, ModuleType):
                assert id(thing) in shown, f"{package}.{name} is on no page of the reference"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_links_lead_somewhere(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS / "_ext")
    text = path.read_text(encoding="utf-8")
    import_module("project_pages").linked(text, path.parent, DOCS, path.parent)
