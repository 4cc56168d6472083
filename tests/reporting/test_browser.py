"""The page in a real browser: sorting, filtering, links, and what is seen first.

Skips where there is no Chromium; continuous integration installs it where it can.
"""

import pytest
from tests.reporting.browser import find_browser, run_in

BROWSER = find_browser()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")


@pytest.fixture
def seen(paper_report, tmp_path):
    def look(script, width=1280):
        found = run_in(BROWSER, paper_report / "index.html", script, tmp_path, width)
        assert "error" not in found, found["error"]
        return found

    return look


def test_page_tables_sort_and_filter(seen):
    found = seen("""
        const table = document.querySelector('#noise_multipliers table.sort');
        const heads = [...table.tHead.rows[0].cells].map(c => c.textContent.trim());
        const column = heads.indexOf('noise multiplier ν');
        const wait = () => new Promise(done => setTimeout(done, 300));
        const values = () => [...table.tBodies[0].rows].map(r => r.cells[column].textContent);
        seen.column = column;
        seen.before = values();
        table.tHead.rows[0].cells[column].click();
        await wait();
        seen.up = values();
        table.tHead.rows[0].cells[column].click();
        await wait();
        seen.down = values();
        const claim = document.getElementById('C10').closest('.dt-container, .scroll');
        const field = claim.querySelector('input');
        field.value = 'Fashion'; field.dispatchEvent(new Event('input', {bubbles: true}));
        field.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}));
        await new Promise(done => setTimeout(done, 1500));
        seen.left = [...claim.querySelectorAll('tbody tr')].map(r => r.cells[0].textContent);
    """)
    assert found["column"] >= 0
    numbers = [float(v) for v in found["up"] if v != "–"]
    assert len(numbers) > 1
    assert numbers == sorted(numbers)
    assert [float(v) for v in found["down"] if v != "–"] == sorted(numbers, reverse=True)
    assert sorted(found["before"]) == sorted(found["up"]) == sorted(found["down"])
    assert 0 < len(found["left"]) < 10
    assert "C4" in found["left"]
    assert "C5" not in found["left"]


def test_page_link_unfolds_target(seen):
    found = seen("""
        const cell = document.querySelector('table.matrix td.open a');
        const target = document.getElementById(cell.hash.slice(1));
        seen.target = target.id;
        seen.hidden = !target.checkVisibility();
        cell.click();
        await new Promise(done => setTimeout(done, 300));
        const box = target.getBoundingClientRect();
        seen.shown = target.checkVisibility() && box.top >= 0 && box.top < innerHeight;
    """)
    assert found["target"] == "mnist-k9-eps9-online"
    assert found["hidden"]
    assert found["shown"]


@pytest.mark.parametrize("width", [1280, 420])
def test_page_first_screen_shows_verdict(seen, width):
    found = seen(
        """
        seen.verdict = document.querySelector('.verdict').getBoundingClientRect().bottom;
        seen.matrix = document.querySelector('table.matrix').getBoundingClientRect().top;
        seen.width = document.documentElement.scrollWidth;
        seen.first = getComputedStyle(document.querySelector('tbody td')).position;
        seen.contents = getComputedStyle(document.querySelector('nav')).position;
        """,
        width,
    )
    assert found["verdict"] < 900
    assert found["matrix"] < 900
    assert found["width"] <= max(width, 500)  # a headless window is no narrower than 500
    assert found["first"] == found["contents"] == "sticky"


def test_page_figures_not_blank(seen):
    found = seen("""
        for (const fold of document.querySelectorAll('details')) fold.open = true;
        const images = [...document.images];
        for (const image of images) image.loading = 'eager';
        await Promise.all(images.map(image => image.decode().catch(() => null)));
        seen.images = images.length;
        seen.blank = images.filter(i => i.naturalWidth === 0).map(i => i.alt);
    """)
    assert found["images"] > 10
    assert found["blank"] == []


def test_page_tables_fit_1280_pixels(seen):
    found = seen("""
        for (const fold of document.querySelectorAll('details')) fold.open = true;
        const boxes = [...document.querySelectorAll('.scroll')];
        seen.count = boxes.length;
        seen.wide = boxes.filter(box => box.scrollWidth > box.clientWidth + 1)
          .map(box => box.parentElement.id);
    """)
    assert found["count"] > 10
    assert found["wide"] == []
