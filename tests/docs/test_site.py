"""The site as `make docs` builds it: no warning, no link astray, nothing fetched from elsewhere."""

import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

import oso_dp
from oso_dp import opacus


@pytest.fixture(scope="module")
def site(repo: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    done = subprocess.run(command, cwd=repo, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_reached_and_every_link_leads_somewhere(site: Path) -> None:
    texts = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    anchors = {page: set(re.findall(r'\sid="([^"]+)"', text)) for page, text in texts.items()}
    astray, reached = [], {site / "index.html", site / "404.html"}
    for page, text in texts.items():
        if page.name == "404.html":  # its links are for a server's root
            continue
        for link in re.findall(r'\s(?:href|src)="(?!\w+:|#|//)([^"]+)"', text):
            target, _, anchor = unquote(unescape(link)).partition("#")
            place = (page.parent / target).resolve()
            place = place / "index.html" if place.is_dir() else place
            reached.add(place)
            if not place.exists() or (anchor and anchor not in anchors.get(place, {anchor})):
                astray.append(f"{page.name}: {link}")
    assert astray == []
    assert texts.keys() - reached == set()


def test_every_public_name_has_its_entry_with_its_docstring(site: Path) -> None:
    library = (site / "api/library.html").read_text(encoding="utf-8")
    for name in oso_dp.__all__:
        assert f'id="oso_dp.{name}"' in library, name
    drop_in = (site / "api/opacus.html").read_text(encoding="utf-8")
    for name in opacus.__all__:
        assert f'id="oso_dp.opacus.{name}"' in drop_in, name
    # An argument of a docstring, and a comment at a field.
    assert "<li><code>loss</code>: outputs and targets of B examples to B losses" in library
    assert "<p>What this model's own training released, sum by sum.</p>" in library


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r'<(?:script|img|iframe|link)\b[^>]*(?:src|href)="(?:https?:)?//[^"]*"')
    for page in site.rglob("*.html"):
        assert fetched.findall(page.read_text(encoding="utf-8")) == [], page.name
