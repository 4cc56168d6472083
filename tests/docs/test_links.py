"""Every link of every page leads to a file that is there, and to a heading that is on it."""

import re
from pathlib import Path

from tests.docs.pages import pages

LINK = re.compile(r"\]\((?!\w+:)(?P<target>[^)#\s]*)(?:#(?P<anchor>[^)]*))?\)")


def anchors(page: Path) -> set[str]:
    """As both GitHub and the site derive them from headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"\s", "-", text) for text in plain}


def test_links_lead_somewhere(repo: Path) -> None:
    astray, followed = [], 0
    for page in pages(repo):
        for link in LINK.finditer(page.read_text(encoding="utf-8")):
            followed += 1
            target = page.parent / link["target"] if link["target"] else page
            if not target.exists() or (link["anchor"] and link["anchor"] not in anchors(target)):
                astray.append(f"{page.relative_to(repo)}: {link[0]}")
    assert astray == []
    assert followed > 100
