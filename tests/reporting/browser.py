"""A real browser, headless: Chromium, as Debian and others package it."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from uuid import uuid4

from tests.debian import apt_install

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


def install() -> None:
    """Debian's package, where there is no browser yet and apt is there."""
    if find_browser() is None:
        apt_install("chromium")


def run_in(browser: str, page: Path, script: str, folder: Path, width: int = 1280) -> dict:
    """What `script` puts into the object `seen`, run in the loaded page at this width.

    folder: for a copy of the page with the script at its end, and for the browser's own files.
    """
    # Beside it, so that relative links lead where they did.
    copy = page.with_name(f"tried-{uuid4().hex}.html")
    source = page.read_text(encoding="utf-8")
    tried = (
        "<script>addEventListener('load', async () => { const seen = {};"
        f"try {{ {script} }} catch (error) {{ seen.error = String(error); }}"
        "const out = document.createElement('pre'); out.id = 'seen';"
        "out.textContent = JSON.stringify(seen); document.body.append(out); });</script></body>"
    )
    copy.write_text(source.replace("</body>", tried), encoding="utf-8")
    try:
        found = subprocess.run(
            [
                *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
                *("--disable-background-networking", f"--user-data-dir={folder}"),
                *(f"--window-size={width},900", "--virtual-time-budget=20000", "--dump-dom"),
                copy.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    finally:
        copy.unlink()
    seen = re.search(r'<pre id="seen">(.*?)</pre>', found.stdout, re.S)
    assert seen, found.stderr[-2000:]
    return json.loads(html.unescape(seen[1]))
