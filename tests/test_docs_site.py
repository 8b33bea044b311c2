"""The site of documentation: its reference has every public name, and its links lead somewhere.

`make docs` builds it with warnings as errors; here is what can be told without Sphinx's minute.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.public_names import PACKAGES

DOCS = Path(__file__).resolve().parent.parent / "docs"
WRITTEN = (path for path in DOCS.rglob("*.md") if not {"_build", "project"} & {*path.relative_to(DOCS).parts})
PAGES = sorted([*WRITTEN, *DOCS.parent.glob("*.md")])
DECISION = re.compile(r"^\| \[(\d{4})\]\([^)]*\) \| (.+) \| (.+) \|$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)#?([^)\s]*)\)")


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


def anchors(text: str) -> set[str]:
    """What a link may name behind ``#``: the headings of a page, in small letters with dashes."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(text: str, folder: Path) -> list[str]:
    """Links and pictures of a page in ``folder`` that lead to no file, or to no heading of it."""
    broken: list[str] = []
    for path, anchor in LINK.findall(text):
        if "://" in path or path.startswith("mailto:"):
            continue
        target = folder / path
        if not target.exists():
            broken.append(path)
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
            broken.append(f"{path}#{anchor}")
    return broken


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS.parent)))
def test_links_lead_somewhere(path: Path) -> None:
    assert broken_links(path.read_text(encoding="utf-8"), path.parent) == []


def test_the_table_of_decisions_says_what_their_pages_say() -> None:
    table = (DOCS / "adr" / "README.md").read_text(encoding="utf-8")
    told = {number: (title, status) for number, title, status in DECISION.findall(table)}
    written: dict[str, tuple[str, str]] = {}
    for page in (DOCS / "adr").glob("0*.md"):
        found = re.match(r"# (\d{4}): (.+)\n\nStatus: (.+)\n", page.read_text(encoding="utf-8"))
        assert found is not None, f"{page.name} does not begin as the template does"
        written[found[1]] = (
            found[2],
            re.sub(r",[^;]*", "", found[3]),
        )  # what an amendment changed stands behind a comma
    assert told == written


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A title, long\n", encoding="utf-8")
    text = "[a](there.md#a-title-long) [b](gone.md) ![c](gone.svg) [d](there.md#gone) [e](https://example.org)"
    assert broken_links(text, tmp_path) == ["gone.md", "gone.svg", "there.md#gone"]


def test_links_on_the_site_lead_to_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS / "_ext")
    linked = import_module("project_pages").linked
    text = "[How](../ARCHITECTURE.md#the-rooms), [Limits](limits.md), [code](../vgraph/compiler.py)"
    assert linked(text, DOCS, DOCS, DOCS) == "[How](project/ARCHITECTURE.md#the-rooms), [Limits](limits.md), code"


def test_the_notebooks_are_the_tutorials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS / "_ext")
    notebooks = import_module("notebooks")
    made = {page.stem: notebooks.notebook(page.read_text(encoding="utf-8")) for page in notebooks.PAGES}
    there = {path.stem: path.read_text(encoding="utf-8") for path in (DOCS / "start").glob("*.ipynb")}
    assert made == there, "python docs/_ext/notebooks.py writes them"
