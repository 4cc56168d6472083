import gzip
import http.server
import threading
import tracemalloc
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from urllib.error import URLError

import pytest

from oso_dp.data import fetch
from oso_dp.data.fetch import obtain
from oso_dp.errors import OsoError


def contents(fetched):
    return {name: file.content for name, file in fetched.items()}


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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


# A local folder


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("subfolder", ["", "tiny"])
def test_local_files_in_every_allowed_place(tiny, tmp_path, compressed, subfolder, opened):
    folder = tiny.write(tmp_path / "local" / subfolder, compressed)
    before = snapshot(tmp_path)
    fetched = obtain(tiny.source, tmp_path / "local", tmp_path / "cache")
    assert contents(fetched) == tiny.content
    assert all(str(folder) in file.origin for file in fetched.values())
    assert snapshot(tmp_path) == before
    assert opened == []


def test_a_recompressed_copy_and_a_misnamed_plain_one_are_fine(tiny, tmp_path):
    folder = tiny.write(tmp_path)
    content = tiny.content["train_images"]
    with gzip.GzipFile("other name", "wb", 1, open(folder / "train_images.gz", "wb"), 7) as file:
        file.write(content)
        inner = file.fileobj
    inner.close()
    (folder / "t10k_images.gz").write_bytes(tiny.content["t10k_images"])
    assert contents(obtain(tiny.source, folder, tmp_path / "cache")) == tiny.content


def test_the_subfolder_of_the_data_set_comes_before_the_folder_itself(tiny, make_tiny, tmp_path):
    tiny.write(tmp_path / "tiny")
    for name in tiny.content:  # say, another data set whose files are called the same
        (tmp_path / f"{name}.gz").write_bytes(b"something else")
    assert contents(obtain(tiny.source, tmp_path, tmp_path / "cache")) == tiny.content


def damage_truncate_gzip(path, content):
    path.write_bytes(gzip.compress(content)[:-9])


def damage_truncate_content(path, content):
    path.write_bytes(gzip.compress(content[:-1]))


def damage_append(path, content):
    path.write_bytes(gzip.compress(content + b"\0"))


def damage_flip(path, content):
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 1
    path.write_bytes(gzip.compress(bytes(flipped)))


def damage_flip_gzip(path, content):
    flipped = bytearray(gzip.compress(content))
    flipped[len(flipped) // 2] ^= 1
    path.write_bytes(bytes(flipped))


def damage_gzip_block(path, content):
    broken = bytearray(gzip.compress(content))
    broken[10] = 0xFF  # the first block's type, one that does not exist
    path.write_bytes(bytes(broken))


def damage_empty(path, content):
    path.write_bytes(b"")


def damage_folder(path, content):
    path.unlink()
    path.mkdir()


DAMAGES = [value for name, value in list(globals().items()) if name.startswith("damage_")]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("place", ["data_dir", "cache"])
def test_a_damaged_file_is_refused_by_name_and_left_untouched(
    tiny, make_tiny, tmp_path, damage, place, opened
):
    mirror = tiny.write(tmp_path / "mirror")  # sound, and not to be used instead
    source = make_tiny(mirrors=(mirror.as_uri(),)).source
    folder = tiny.write(tmp_path / place)
    damage(folder / "t10k_images.gz", tiny.content["t10k_images"])
    before = snapshot(tmp_path)
    data_dir = folder if place == "data_dir" else None
    with pytest.raises(OsoError) as caught:
        obtain(source, data_dir, tmp_path / "cache")
    message = str(caught.value)
    assert message.startswith(str(folder / "t10k_images.gz"))
    assert "\n" not in message
    assert snapshot(tmp_path) == before
    assert opened == []


def test_the_message_says_how_much_of_a_truncated_file_is_there(tiny, tmp_path):
    folder = tiny.write(tmp_path, compressed=False)
    (folder / "train_images").write_bytes(tiny.content["train_images"][:30])
    with pytest.raises(OsoError, match=r"train_images: truncated file \(30 of 76 bytes\)"):
        obtain(tiny.source, folder, tmp_path / "cache")


def test_a_bomb_is_not_unpacked(tiny, tmp_path):
    folder = tiny.write(tmp_path)
    (folder / "train_images.gz").write_bytes(gzip.compress(bytes(1 << 25)))
    tracemalloc.start()
    try:
        with pytest.raises(OsoError, match=r"train_images.gz: wrong file \(longer than 76 bytes\)"):
            obtain(tiny.source, folder, tmp_path / "cache")
        assert tracemalloc.get_traced_memory()[1] < 1 << 21
    finally:
        tracemalloc.stop()


def test_a_missing_file_is_named_and_not_downloaded_behind_ones_back(
    tiny, make_tiny, tmp_path, opened
):
    mirror = tiny.write(tmp_path / "mirror")
    folder = tiny.write(tmp_path / "local")
    (folder / "train_labels.gz").unlink()
    source = make_tiny(mirrors=(mirror.as_uri(),)).source
    with pytest.raises(OsoError, match=r"local/train_labels\.gz: missing"):
        obtain(source, folder, tmp_path / "cache")
    assert opened == []


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_without_the_files_is_named_with_what_it_is_to_hold(tiny, tmp_path, exists):
    folder = tmp_path / "local"
    if exists:
        folder.mkdir()
    with pytest.raises(OsoError) as caught:
        obtain(tiny.source, folder, tmp_path / "cache")
    assert str(folder) in str(caught.value)
    assert all(f"{name}.gz" in str(caught.value) for name in tiny.content)


def test_a_check_sees_a_local_file_before_its_checksum_is_taken(tiny, tmp_path):
    folder, seen = tiny.write(tmp_path), []

    def check(content, name):
        seen.append(name)
        if content.endswith(b"!"):
            raise OsoError(f"{name}: ends in !")

    assert contents(obtain(tiny.source, folder, tmp_path / "cache", check)) == tiny.content
    assert seen == [str(folder / f"{name}.gz") for name in tiny.content]
    labels = gzip.compress(tiny.content["t10k_labels"] + b"!")
    (folder / "t10k_labels.gz").write_bytes(labels)
    with pytest.raises(OsoError, match=r"t10k_labels\.gz: ends in !"):
        obtain(tiny.source, folder, tmp_path / "cache", check)


# Mirrors


def test_a_source_without_mirrors_is_not_waited_for(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch.time, "sleep", lambda seconds: pytest.fail("it was waited for"))
    with pytest.raises(OsoError, match=r"tiny: cannot download train_images\.gz \(no mirror\)"):
        obtain(tiny.source, None, tmp_path / "cache")


def test_mirrors_may_call_their_files_without_gz(tiny, make_tiny, tmp_path, opened):
    mirror = tiny.write(tmp_path / "mirror", compressed=False)
    source = replace(make_tiny(mirrors=(mirror.as_uri(),)).source, suffix="")
    assert contents(obtain(source, None, tmp_path / "cache")) == tiny.content
    assert {path.name for path in (tmp_path / "cache").iterdir()} == set(tiny.content)


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
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == {
        path.name: path.read_bytes() for path in good.iterdir()
    }
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
    assert {path.name for path in (tmp_path / "cache").iterdir()} == set(tiny.content)


def test_a_passing_failure_is_tried_again(tiny, make_tiny, tmp_path, monkeypatch):
    mirror = tiny.write(tmp_path / "mirror").as_uri()
    source = make_tiny(mirrors=(mirror,)).source
    real, failed = fetch.open_url, set()

    def flaky(url, timeout):
        assert 0 < timeout < 120
        if url not in failed:
            failed.add(url)
            raise TimeoutError("timed out")
        return real(url, timeout)

    monkeypatch.setattr(fetch, "open_url", flaky)
    assert contents(obtain(source, None, tmp_path / "cache")) == tiny.content


def test_an_endless_answer_is_cut_off(tiny, make_tiny, tmp_path, monkeypatch):
    read = []

    class Endless:
        def __enter__(self):
            return self

        def __exit__(self, *args):
            pass

        def read(self, n):
            read.append(n)
            return bytes(n)

    monkeypatch.setattr(fetch, "open_url", lambda url, timeout: Endless())
    monkeypatch.setattr(fetch, "TRIES", 1)
    with pytest.raises(OsoError, match="cannot download"):
        obtain(make_tiny(mirrors=("file:///x",)).source, None, tmp_path / "cache")
    assert sum(read) < 1 << 21


def test_a_dripping_answer_is_given_up(make_tiny, tmp_path, monkeypatch):
    mirror = make_tiny().write(tmp_path / "mirror").as_uri()
    monkeypatch.setattr(fetch, "PATIENCE", -1.0)
    with pytest.raises(OsoError, match="not finished after"):
        obtain(make_tiny(mirrors=(mirror,)).source, None, tmp_path / "cache")


def test_no_network_gives_one_line_that_says_what_to_put_where(make_tiny, tmp_path, monkeypatch):
    asked = []

    def offline(url, timeout):
        asked.append(url)
        raise URLError(OSError(-2, "Name or service\nnot known"))

    monkeypatch.setattr(fetch, "open_url", offline)
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
    assert not (tmp_path / "cache").exists()


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
