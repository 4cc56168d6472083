"""Mirrors that break, hang, drip or lie: another one is used, and only the right file is stored."""

import gzip
import hashlib
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest

from oso_dp.data import download as module
from oso_dp.data.download import DatasetSource, SourceFile, obtain
from oso_dp.errors import OsoError

from . import server
from .conftest import contents, kept
from .server import serving

# pooch leaves it to the garbage collector to close a broken connection.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
CONTENT = np.random.default_rng(0).bytes(200_000)
FILE = SourceFile("big", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
BAD = [
    *(server.silent_after_the_head, server.silent_in_the_middle, server.cut_in_the_middle),
    *(server.cut_between_chunks, server.too_short_by_its_length, server.huge_by_its_length),
    *(server.wrong, server.dripping, server.endless, server.no_http),
    *(server.status(code) for code in (204, 404, 416, 500, 503)),
    *(server.redirected_in_circles, server.redirected_to_a_file),
]


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(module, "SPEED_SECONDS", 0.2)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 512)


def source_at(*mirrors, suffix=""):
    return DatasetSource("some", (FILE,), mirrors, suffix)


@pytest.mark.parametrize("bad", BAD)
def test_obtain_bad_mirror_uses_next(bad, tmp_path, caplog):
    with (
        serving(CONTENT, bad, server.sound) as mirrors,
        caplog.at_level(logging.INFO, "oso_dp.data"),
    ):
        fetched = obtain(source_at(*mirrors.urls), None, tmp_path)
    assert contents(fetched) == kept(tmp_path) == {"big": CONTENT}
    first, second = (f"{url}/big" for url in mirrors.urls)
    assert [caplog.messages[0], caplog.messages[-1]] == [
        f"downloading {u}" for u in (first, second)
    ]
    assert re.match(rf"{first}: \S", caplog.messages[1])


@pytest.mark.parametrize("bad", [server.status(404), server.wrong, server.silent_after_the_head])
def test_obtain_only_bad_mirrors_raises(bad, tmp_path):
    with serving(CONTENT, bad, bad) as mirrors, pytest.raises(OsoError) as caught:
        obtain(source_at(*mirrors.urls), None, tmp_path)
    message = str(caught.value)
    assert message.startswith(f"some: cannot download big ({mirrors.urls[0]}: ")
    for part in (*mirrors.urls, "big.gz", "data_dir", "OSO_DATA_DIR"):
        assert part in message
    assert "\n" not in message
    assert sorted(mirrors.asked) == [0, 0, 1, 1]
    assert kept(tmp_path) == {}


REASONS = [(server.dripping, "too slow"), (server.endless, "longer"), (server.status(404), "404")]


@pytest.mark.parametrize(("bad", "says"), REASONS)
def test_obtain_bad_mirror_reason_stated(bad, says, tmp_path):
    tracemalloc.start()
    try:
        with serving(CONTENT, bad) as mirrors, pytest.raises(OsoError, match=says):
            obtain(source_at(*mirrors.urls), None, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("served", "suffix", "stored"),
    [(gzip.compress(CONTENT), ".gz", "big.gz"), (CONTENT, ".gz", "big"), (CONTENT, "", "big")],
    ids=["packed", "unpacked on the way", "plain"],
)
def test_obtain_downloaded_file_stored_unchanged(served, suffix, stored, tmp_path, opened):
    with serving(served, server.sound) as mirrors:
        source = source_at(f"{mirrors.urls[0]}/", suffix=suffix)
        for _ in range(2):  # the second call downloads nothing
            assert contents(obtain(source, None, tmp_path)) == {"big": CONTENT}
    assert kept(tmp_path) == {stored: served}
    assert opened == [f"{mirrors.urls[0]}/big{suffix}"]


@pytest.mark.parametrize(
    "served",
    [gzip.compress(bytes(1 << 26), 1), gzip.compress(b"") * 999, gzip.compress(CONTENT)[:-9]],
)
def test_obtain_damaged_archive_not_stored(served, tmp_path):
    with serving(served, server.sound) as mirrors:
        tracemalloc.start()
        try:
            with pytest.raises(OsoError, match=r"wrong file|truncated"):
                obtain(source_at(*mirrors.urls), None, tmp_path)
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()
    assert kept(tmp_path) == {}


def test_obtain_full_disk_raises(tmp_path, monkeypatch):
    def full(self, count):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module._Limit, "update", full)
    with (
        serving(CONTENT, server.sound) as mirrors,
        pytest.raises(OsoError, match=rf"^{tmp_path}: cannot write big \(No space left"),
    ):
        obtain(source_at(*mirrors.urls), None, tmp_path)
    assert mirrors.asked == [0]


def test_obtain_concurrent_calls_download_once(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 30.0)  # the machine may be busy
    with serving(CONTENT, server.slow) as mirrors:
        results = []
        source = source_at(*mirrors.urls)
        callers = [
            threading.Thread(target=lambda: results.append(obtain(source, None, tmp_path)))
            for _ in range(3)
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert [contents(result) for result in results] == [{"big": CONTENT}] * 3
    assert mirrors.asked == [0]
    assert kept(tmp_path) == {"big": CONTENT}


CHILD = """
import sys
from pathlib import Path
from oso_dp.data.download import DatasetSource, SourceFile, obtain
name, size, digest, mirror, cache = sys.argv[1:]
file = SourceFile(name, int(size), digest)
obtain(DatasetSource("some", (file,), (mirror,), ""), None, Path(cache))
"""


def test_obtain_killed_download_restarted(tmp_path):
    behaviours = iter([server.silent_in_the_middle, server.sound])
    with serving(CONTENT, lambda answer: next(behaviours)(answer)) as mirrors:
        given = [FILE.name, str(FILE.size), FILE.sha256, mirrors.urls[0], str(tmp_path)]
        child = subprocess.Popen([sys.executable, "-c", CHILD, *given], env=os.environ)
        try:
            while not any(path.stat().st_size for path in tmp_path.glob(".download-*/*")):
                assert child.poll() is None
                time.sleep(0.01)
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
        assert not (tmp_path / "big").exists()
        assert contents(obtain(source_at(*mirrors.urls), None, tmp_path)) == {"big": CONTENT}
    assert kept(tmp_path) == {"big": CONTENT}
