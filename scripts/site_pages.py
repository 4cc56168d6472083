"""For mkdocs: the site's pages from outside docs/, and links that leave docs/.

A link to such a page leads to it. A link to another file or folder of the repository becomes its
path in code: the site holds one version, and knows no address of a repository.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

REPO = Path(__file__).resolve().parents[1]
PAGES = {  # place in the repository: place in the site
    "config/README.md": "configuration.md",
    "results/README.md": "results.md",
    "benchmarks/README.md": "benchmarks.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
LINK = re.compile(r"(?<!!)\[(?P<text>[^]]*)]\((?P<target>(?!\w+:|#)[^)#\s]+)(?P<anchor>#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    for place, page in PAGES.items():
        files.append(File.generated(config, page, content=(REPO / place).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    uri = page.file.src_uri
    here = {page: place for place, page in PAGES.items()}.get(uri, f"docs/{uri}")

    def rewrite(link: re.Match[str]) -> str:
        place = posixpath.normpath(posixpath.join(posixpath.dirname(here), link["target"]))
        target = PAGES.get(place, place.removeprefix("docs/"))
        if target == place:  # outside the site
            name = link["text"].strip("`")
            return f"`{place}`" if name in (place, Path(place).name) else f"{name} (`{place}`)"
        relative = posixpath.relpath(target, posixpath.dirname(uri) or ".")
        return f"[{link['text']}]({relative}{link['anchor'] or ''})"

    return LINK.sub(rewrite, markdown)
