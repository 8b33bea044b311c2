"""A Sphinx extension: pages of what lies at the root of the repository, and links that leave the folder of docs.

Takes: Markdown whose links are true in the repository. Gives: the same with links that are true on the site: to a page
where there is one, and none to source files, whose names stay as they are.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

ROOT_PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def linked(text: str, folder: Path, docs: Path, shown_in: Path) -> str:
    """``text``, which lies in ``folder``, with links as they are to stand on a page in ``shown_in``."""

    def on_site(match: re.Match[str]) -> str:
        words, path, anchor = match[1], match[2], match[3] or ""
        if "://" in path or path.startswith("mailto:"):
            return match[0]
        target = Path(os.path.normpath(folder / path))
        if target.parent == docs.parent and target.name in ROOT_PAGES:
            target = docs / "project" / target.name
        if target.is_relative_to(docs):
            return f"[{words}]({os.path.relpath(target, shown_in)}{anchor})"
        if not target.exists():
            raise FileNotFoundError(f"{folder}: a link to {path}, which is not there")
        return words

    return LINK.sub(on_site, text)


def write(app: Sphinx) -> None:
    """Writes pages that have changed."""
    docs = Path(app.srcdir)
    folder = docs / "project"
    folder.mkdir(exist_ok=True)
    for name in ROOT_PAGES:
        text = linked((docs.parent / name).read_text(encoding="utf-8"), docs.parent, docs, folder)
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def relink(app: Sphinx, page: str, source: list[str]) -> None:
    """Puts true links into a page before it is read."""
    docs = Path(app.srcdir)
    if not page.startswith("project/"):
        folder = (docs / page).parent
        source[0] = linked(source[0], folder, docs, folder)


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls to find out what the extension does."""
    app.connect("builder-inited", write)
    app.connect("source-read", relink)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
