"""For mkdocs: pages and files of the site that lie outside of docs/, and links that lead to them.

In the sources each link leads to a file of the repository, as a reader of the repository needs it.
In the site a link to a page leads to that page, one to a file leads to a copy of it, and one to a
folder becomes its name: the site is about one version, and knows no address of a repository.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

REPO = Path(__file__).resolve().parents[1]
# Pages from elsewhere, by their place in the repository.
PAGES = {
    "config/README.md": "configuration.md",
    "results/README.md": "results-store.md",
    "workflow/profiles/README.md": "cluster.md",
    "benchmarks/README.md": "benchmarks.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
COPIES = "files"  # the folder of the site in which files from elsewhere are
LINK = re.compile(
    r"(?P<image>!?)\[(?P<text>[^]]*)]\((?P<target>(?!\w+:|#)[^)#\s]+)(?P<anchor>#[^)]*)?\)"
)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages, and whatever file they or those of docs/ link to."""
    for place, page in PAGES.items():
        files.append(File.generated(config, page, content=(REPO / place).read_text("utf-8")))
    for file in list(files.documentation_pages()):
        here = _place(file.src_uri)
        for link in LINK.finditer((REPO / here).read_text("utf-8")):
            place = _aim(here, link["target"])
            if (
                place not in PAGES
                and not place.startswith("docs/")
                and (REPO / place).is_file()
                and files.get_file_from_path(f"{COPIES}/{place}") is None
            ):
                content = (REPO / place).read_bytes()
                files.append(File.generated(config, f"{COPIES}/{place}", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead each link to where its target is in the site."""
    here, uri = _place(page.file.src_uri), page.file.src_uri

    def led(link: re.Match[str]) -> str:
        place = _aim(here, link["target"])
        if (REPO / place).is_dir():
            name = link["text"].strip("`")
            return f"`{place}`" if name in (place, Path(place).name) else f"{name} (`{place}`)"
        aim = _uri(place)
        target = posixpath.relpath(aim, posixpath.dirname(uri) or ".")
        return f"{link['image']}[{link['text']}]({target}{link['anchor'] or ''})"

    return LINK.sub(led, markdown)


def _place(uri: str) -> str:
    """Where in the repository a page of the site comes from."""
    outside = {page: place for place, page in PAGES.items()}
    return outside.get(uri, f"docs/{uri}")


def _uri(place: str) -> str:
    """Where in the site a file of the repository is; a missing one is where mkdocs will miss it."""
    if place in PAGES:
        return PAGES[place]
    return place.removeprefix("docs/") if place.startswith("docs/") else f"{COPIES}/{place}"


def _aim(here: str, target: str) -> str:
    """What a link of a file leads to, from the repository's root."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
