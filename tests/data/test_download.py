"""Mirrors: another is tried, only the right file is stored, and a failure says what to do."""

import gzip
import http.server
import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from urllib.error import URLError

import pytest

from oso_dp.data import fetch, transfer
from oso_dp.data.fetch import obtain
from oso_dp.errors import OsoError

from .conftest import contents, kept


@contextmanager
def served(folder):
    """Serve a folder over HTTP on this machine and yield its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_source_without_mirrors_is_not_waited_for(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch.time, "sleep", lambda seconds: pytest.fail("it was waited for"))
    with pytest.raises(OsoError, match=r"tiny: cannot download train_images\.gz \(no mirror\)"):
        obtain(tiny.source, None, tmp_path / "cache")


def test_mirrors_may_call_their_files_without_gz(tiny, make_tiny, tmp_path, opened):
    mirror = tiny.write(tmp_path / "mirror", compressed=False)
    source = replace(make_tiny(mirrors=(mirror.as_uri(),)).source, suffix="")
    assert contents(obtain(source, None, tmp_path / "cache")) == tiny.content
    assert set(kept(tmp_path / "cache")) == set(tiny.content)


@pytest.mark.parametrize(
    "garbage",
    [b"<html>please log in</html>", gzip.compress(b"no", mtime=0), b""],
    ids=["a page", "another archive", "nothing"],
)
def test_the_mirror_after_one_with_garbage_is_used(tiny, make_tiny, tmp_path, garbage, opened):
    good = tiny.write(tmp_path / "good")
    bad = tmp_path / "bad"
    bad.mkdir()
    for name in tiny.content:
        (bad / f"{name}.gz").write_bytes(garbage)
    cache = tmp_path / "cache"
    with served(good) as good_url, served(bad) as bad_url:
        source = make_tiny(mirrors=(bad_url, good_url + "/")).source
        assert contents(obtain(source, None, cache)) == tiny.content
    asked = len(opened)
    assert asked == 2 * len(tiny.content)
    # What is stored is what was verified, without leftovers; it serves the next time.
    assert kept(cache) == kept(good)
    assert contents(obtain(source, None, cache)) == tiny.content
    assert len(opened) == asked


def test_only_what_the_cache_lacks_is_downloaded(tiny, make_tiny, tmp_path, opened):
    mirror = tiny.write(tmp_path / "mirror")
    cache = tiny.write(tmp_path / "cache")
    (cache / "t10k_labels.gz").unlink()
    source = make_tiny(mirrors=(mirror.as_uri(),)).source
    assert contents(obtain(source, None, cache)) == tiny.content
    assert [url.rsplit("/", 1)[1] for url in opened] == ["t10k_labels.gz"]


def test_a_file_that_was_unpacked_on_the_way_is_stored_under_its_plain_name(
    tiny, make_tiny, tmp_path
):
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    for name, content in tiny.content.items():
        (mirror / f"{name}.gz").write_bytes(content)
    source = make_tiny(mirrors=(mirror.as_uri(),)).source
    assert contents(obtain(source, None, tmp_path / "cache")) == tiny.content
    assert set(kept(tmp_path / "cache")) == set(tiny.content)


def test_a_passing_failure_is_tried_again(tiny, make_tiny, tmp_path, monkeypatch):
    mirror = tiny.write(tmp_path / "mirror").as_uri()
    source = make_tiny(mirrors=(mirror,)).source
    real, failed = transfer.open_url, set()

    def flaky(url, timeout, start=0):
        if url not in failed:
            failed.add(url)
            raise TimeoutError("timed out")
        return real(url, timeout, start)

    monkeypatch.setattr(transfer, "open_url", flaky)
    assert contents(obtain(source, None, tmp_path / "cache")) == tiny.content


def test_no_network_gives_one_line_that_says_what_to_put_where(make_tiny, tmp_path, monkeypatch):
    asked = []

    def offline(url, timeout, start):
        asked.append(url)
        raise URLError(OSError(-2, "Name or service\nnot known"))

    monkeypatch.setattr(transfer, "open_url", offline)
    tiny = make_tiny(mirrors=("https://a.example/x", "https://b.example"))
    with pytest.raises(OsoError) as caught:
        obtain(tiny.source, None, tmp_path / "cache")
    message = str(caught.value)
    assert "\n" not in message
    assert "https://a.example/x: Name or service not known; https://b.example: Name" in message
    assert all(f"{name}.gz" in message for name in tiny.content)
    assert "data_dir" in message
    assert "OSO_DATA_DIR" in message
    # Both mirrors, a few times, and no further file once the first cannot be had.
    assert asked == ["https://a.example/x/train_images.gz", "https://b.example/train_images.gz"] * 3
    assert kept(tmp_path / "cache") == {}


def test_a_mirror_without_the_file_is_reported_with_its_status(make_tiny, tmp_path):
    (tmp_path / "empty").mkdir()
    with (
        served(tmp_path / "empty") as url,
        pytest.raises(OsoError, match=f"{url}: HTTP status 404"),
    ):
        obtain(make_tiny(mirrors=(url,)).source, None, tmp_path / "cache")


def test_a_cache_that_cannot_be_written_gives_one_line(tiny, make_tiny, tmp_path):
    mirror = tiny.write(tmp_path / "mirror").as_uri()
    (tmp_path / "file").write_text("in the way")
    cache = tmp_path / "file" / "cache"
    with pytest.raises(OsoError, match=f"^{cache}: cannot make this folder .*Not a directory"):
        obtain(make_tiny(mirrors=(mirror,)).source, None, cache)
    assert (tmp_path / "file").read_text() == "in the way"
