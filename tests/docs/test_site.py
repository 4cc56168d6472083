"""The site that `make docs` builds: no warning, no broken link, no request to another site."""

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


def test_every_page_and_link_is_reachable(site: Path) -> None:
    texts = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    anchors = {page: set(re.findall(r'\sid="([^"]+)"', text)) for page, text in texts.items()}
    broken, reached = [], {site / "index.html", site / "404.html"}
    for page, text in texts.items():
        if page.name == "404.html":  # its links are for a server's root
            continue
        for link in re.findall(r'\s(?:href|src)="(?!\w+:|#|//)([^"]+)"', text):
            target, _, anchor = unquote(unescape(link)).partition("#")
            place = (page.parent / target).resolve()
            place = place / "index.html" if place.is_dir() else place
            reached.add(place)
            if not place.exists() or (anchor and anchor not in anchors.get(place, {anchor})):
                broken.append(f"{page.name}: {link}")
    assert broken == []
    assert texts.keys() - reached == set()


def test_every_public_name_has_an_entry(site: Path) -> None:
    library = (site / "api/library.html").read_text(encoding="utf-8")
    for name in oso_dp.__all__:
        assert f'id="oso_dp.{name}"' in library, name
    drop_in = (site / "api/opacus.html").read_text(encoding="utf-8")
    for name in opacus.__all__:
        assert f'id="oso_dp.opacus.{name}"' in drop_in, name


def test_docstring_arguments_become_parameter_tables(site: Path) -> None:
    page = (site / "api/library.html").read_text(encoding="utf-8")
    entry = page.partition('id="oso_dp.train_private"')[2].partition('id="oso_dp.PrivateModel"')[0]
    rows = re.findall(r"<tr class=\"doc-section-item\">.*?<code>(\w+)</code>", entry, re.S)
    assert {"model", "loss", "data", "epsilon", "delta", "microbatch_size"} <= set(rows)


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r'<(?:script|img|iframe|link)\b[^>]*(?:src|href)="(?:https?:)?//[^"]*"')
    for page in site.rglob("*.html"):
        assert fetched.findall(page.read_text(encoding="utf-8")) == [], page.name
