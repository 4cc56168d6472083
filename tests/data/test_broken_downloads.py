"""Downloads that break, hang, drip or lie: continued or refused, never taken, and soon."""

import hashlib
import logging
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oso_dp.data import fetch, transfer
from oso_dp.data.fetch import Source, SourceFile, obtain
from oso_dp.data.transfer import BrokenError
from oso_dp.errors import OsoError

from . import server
from .conftest import contents, kept
from .server import serving

CONTENT = np.random.default_rng(0).bytes(200_000)
FILE = SourceFile("big", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
PAUSE = fetch.PAUSE  # of users: tests do not wait
HALF = len(CONTENT) // 2
NO_ANSWER = [server.silent, server.dripping_head, server.silent_after_the_head]
HANGS = [*NO_ANSWER, server.silent_in_the_middle, server.silent_in_the_middle_without_ranges]
BAD = [
    *HANGS,
    server.cut_without_ranges,
    server.cut_without_a_length,
    server.cut_between_chunks,
    server.too_short_by_its_length,
    server.too_long_by_its_length,
    server.huge_by_its_length,
    server.wrong,
    server.dripping,
    *(server.status(code) for code in (204, 404, 416, 500, 503)),
    server.redirected_in_circles,
    server.redirected_to_no_address,
    server.redirected_to_a_file,
    server.no_http,
    server.a_part_unasked,
    server.endless,
]
LIES_ABOUT_THE_REST = [
    server.another_part,
    server.another_part_under_the_right_name,
    server.a_part_of_no_number,
]


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    monkeypatch.setattr(transfer, "WINDOW", 0.1)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(fetch, "SILENCE", 0.3)


def source_at(*mirrors):
    return Source("some", (FILE,), mirrors, suffix="")


@pytest.mark.parametrize("bad", BAD + LIES_ABOUT_THE_REST)
def test_a_bad_mirror_alone_is_refused_in_one_line_and_nothing_is_taken(bad, tmp_path, impatient):
    with serving(CONTENT, bad) as mirrors, pytest.raises(OsoError) as caught:
        obtain(source_at(*mirrors.urls), None, tmp_path)
    assert f"some: cannot download big ({mirrors.urls[0]}: " in str(caught.value)
    assert "data_dir" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert all(name.startswith(".") for name in kept(tmp_path))


@pytest.mark.parametrize("bad", BAD + LIES_ABOUT_THE_REST)
def test_after_a_bad_mirror_a_good_one_is_used_and_no_part_is_left(bad, tmp_path, monkeypatch):
    real = fetch.transfer
    monkeypatch.setattr(
        fetch,
        "transfer",
        lambda url, path, limit, silence: real(url, path, limit, 0.2 if "/0/" in url else silence),
    )
    with serving(CONTENT, bad, server.sound) as mirrors:
        fetched = obtain(source_at(*mirrors.urls), None, tmp_path)
    assert contents(fetched) == kept(tmp_path) == {"big": CONTENT}
    # In any order: whom a client no longer waits for may note its question late.
    assert mirrors.asked.count((1, 0)) == 1
    assert mirrors.asked[0][0] == 0


# Resumed


def only_some(source, cache):
    """What a call leaves behind that was cut off."""
    with pytest.raises(OsoError):
        obtain(source, None, cache)
    (part,) = kept(cache).values()
    return part


def test_what_was_cut_off_is_continued_and_asked_for_once(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "TRIES", 1)
    behaviours = iter([server.cut_in_the_middle, server.cut_in_the_middle, server.sound])
    with serving(CONTENT, lambda answer: next(behaviours)(answer)) as mirrors:
        source = source_at(*mirrors.urls)
        assert only_some(source, tmp_path) == CONTENT[:HALF]
        assert only_some(source, tmp_path) == CONTENT[: HALF + HALF // 2]
        assert contents(obtain(source, None, tmp_path)) == kept(tmp_path) == {"big": CONTENT}
    assert mirrors.asked == [(0, 0), (0, HALF), (0, HALF + HALF // 2)]


def test_each_round_gets_further(tmp_path):
    """Seven eighths in three rounds."""
    with serving(CONTENT, server.cut_in_the_middle) as mirrors:
        assert len(only_some(source_at(*mirrors.urls), tmp_path)) == len(CONTENT) * 7 // 8


def test_a_server_that_begins_anew_is_followed(tmp_path):
    behaviours = iter([server.cut_in_the_middle, server.without_ranges])
    with serving(CONTENT, lambda answer: next(behaviours)(answer)) as mirrors:
        fetched = obtain(source_at(*mirrors.urls), None, tmp_path)
    assert contents(fetched) == kept(tmp_path) == {"big": CONTENT}
    assert mirrors.asked == [(0, 0), (0, HALF)]


@pytest.mark.parametrize("lie", LIES_ABOUT_THE_REST)
def test_after_a_wrong_rest_nothing_of_it_is_used(lie, tmp_path):
    behaviours = iter([lie, lie, server.sound])
    with serving(CONTENT, lambda answer: next(behaviours)(answer)) as mirrors:
        fetched = obtain(source_at(*mirrors.urls), None, tmp_path)
    assert contents(fetched) == kept(tmp_path) == {"big": CONTENT}
    assert mirrors.asked == [(0, 0), (0, HALF), (0, 0)]


@pytest.mark.parametrize(
    ("part", "starts"),
    [
        (CONTENT[:9], [9]),
        (CONTENT, [len(CONTENT)]),  # killed before the file got its name: 416
        (b"x" * 9, [9, 0]),  # of an earlier version of the file, say
        (bytes(len(CONTENT)), [len(CONTENT), 0]),
        (CONTENT + b"x", [len(CONTENT) + 1, 0]),
    ],
)
def test_whatever_part_is_there(part, starts, tmp_path):
    with serving(CONTENT, server.sound) as mirrors:
        fetch.partial_path(tmp_path, FILE, f"{mirrors.urls[0]}/big").write_bytes(part)
        fetched = obtain(source_at(*mirrors.urls), None, tmp_path)
    assert contents(fetched) == kept(tmp_path) == {"big": CONTENT}
    assert [start for _, start in mirrors.asked] == starts


# Clocks


@pytest.mark.parametrize("hangs", NO_ANSWER)
@pytest.mark.parametrize("count", [1, 3])
def test_mirrors_that_all_hang_are_given_up_together(hangs, count, tmp_path, impatient):
    with serving(CONTENT, *[hangs] * count) as mirrors:
        began = time.monotonic()
        with pytest.raises(OsoError) as caught:
            obtain(source_at(*mirrors.urls), None, tmp_path)
        took = time.monotonic() - began
    assert fetch.SILENCE <= took < fetch.SILENCE + 5
    assert all(f"{url}: no byte for" in str(caught.value) for url in mirrors.urls)
    assert len(mirrors.asked) == count


WAITS = st.lists(st.floats(0, 30), min_size=12, max_size=12)


@given(count=st.integers(1, 4), waits=WAITS)
def test_no_byte_in_20_seconds_whichever_mirror_hangs_or_refuses_how_late(
    count, waits, tmp_path_factory
):
    """Of the true clocks, in pretended time."""
    spent, later = [], iter(waits)

    def pretend(url, path, limit, silence):
        error = BrokenError("no")
        error.waited = min(next(later), silence)
        spent.append(error.waited)
        raise error

    mirrors = [f"http://127.0.0.1/{number}" for number in range(count)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch, "transfer", pretend)
        patch.setattr(fetch, "PAUSE", PAUSE)
        patch.setattr(fetch.time, "sleep", spent.append)
        with pytest.raises(OsoError, match="cannot download"):
            obtain(source_at(*mirrors), None, tmp_path_factory.mktemp("cache"))
    assert sum(spent) <= 19
    assert len(spent) >= count


def test_a_slow_and_steady_mirror_may_take_its_time(tmp_path, monkeypatch):
    """Longer than the silence that ends a download, and than the window of its speed."""
    monkeypatch.setattr(fetch, "SILENCE", 0.5)
    began = time.monotonic()
    with serving(CONTENT, server.slow) as mirrors:
        assert contents(obtain(source_at(*mirrors.urls), None, tmp_path)) == {"big": CONTENT}
    assert time.monotonic() - began > max(fetch.SILENCE, transfer.WINDOW)
    assert mirrors.asked == [(0, 0)]


def test_a_dripping_mirror_is_left_for_its_speed(tmp_path):
    with serving(CONTENT, server.dripping) as mirrors, pytest.raises(OsoError, match="too slow"):
        obtain(source_at(*mirrors.urls), None, tmp_path)


# Hostile


@pytest.mark.parametrize("content", [server.packed(bytes(1 << 27)), server.packed(b"") * 999])
def test_a_bomb_is_not_unpacked_to_its_end(content, tmp_path):
    with serving(content, server.sound) as mirrors:
        tracemalloc.start()
        try:
            with pytest.raises(OsoError, match=r"wrong file|truncated"):
                obtain(source_at(*mirrors.urls), None, tmp_path)
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()


def test_an_endless_answer_takes_neither_memory_nor_disk(tmp_path):
    with serving(CONTENT, server.endless) as mirrors:
        tracemalloc.start()
        try:
            with pytest.raises(OsoError, match=r"wrong file \(longer than"):
                obtain(source_at(*mirrors.urls), None, tmp_path)
            assert tracemalloc.get_traced_memory()[1] < 16 << 20
        finally:
            tracemalloc.stop()
    assert kept(tmp_path) == {}


def test_a_full_disk_is_no_mirrors_fault(tmp_path, monkeypatch):
    full = partial(open, "/dev/full", "ab")
    monkeypatch.setattr(transfer, "open", lambda *names: full(), raising=False)
    with (
        serving(CONTENT, server.sound) as mirrors,
        pytest.raises(OsoError, match=rf"^{tmp_path}/\.big.* cannot write .*No space left"),
    ):
        obtain(source_at(*mirrors.urls), None, tmp_path)
    assert mirrors.asked == [(0, 0)]


# Several processes, and kills


def test_two_at_once_download_a_file_once(tmp_path):
    with serving(CONTENT, server.slow) as mirrors:
        results = []
        callers = [
            threading.Thread(
                target=lambda: results.append(obtain(source_at(*mirrors.urls), None, tmp_path))
            )
            for _ in range(3)
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert [contents(result) for result in results] == [{"big": CONTENT}] * 3
    assert mirrors.asked == [(0, 0)]
    assert kept(tmp_path) == {"big": CONTENT}


CHILD = """
import sys
from pathlib import Path
from oso_dp.data.fetch import Source, SourceFile, obtain
name, size, digest, mirror, cache = sys.argv[1:]
obtain(Source("some", (SourceFile(name, int(size), digest),), (mirror,), ""), None, Path(cache))
"""


def test_a_killed_download_is_continued_by_the_next_call(tmp_path):
    behaviours = iter([server.silent_in_the_middle, server.sound])
    with serving(CONTENT, lambda answer: next(behaviours)(answer)) as mirrors:
        given = [FILE.name, str(FILE.size), FILE.sha256, mirrors.urls[0], str(tmp_path)]
        child = subprocess.Popen([sys.executable, "-c", CHILD, *given])
        try:
            while not any(path.stat().st_size > HALF // 2 for path in tmp_path.glob(".big*")):
                assert child.poll() is None
                time.sleep(0.01)
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
        held = sum(path.stat().st_size for path in tmp_path.glob(".big*"))
        assert contents(obtain(source_at(*mirrors.urls), None, tmp_path)) == {"big": CONTENT}
    assert mirrors.asked == [(0, 0), (0, held)]
    assert kept(tmp_path) == {"big": CONTENT}


def test_each_try_is_logged_with_what_became_of_it(tmp_path, caplog):
    behaviours = iter([server.cut_in_the_middle, server.status(503), server.sound])
    with (
        serving(CONTENT, lambda answer: next(behaviours)(answer), server.status(404)) as mirrors,
        caplog.at_level(logging.INFO, "oso_dp.data"),
    ):
        obtain(source_at(*mirrors.urls), None, tmp_path)
    first, second = (f"{url}/big" for url in mirrors.urls)
    assert caplog.messages == [
        f"downloading {first}",
        f"{first}: cut off after {HALF} of {len(CONTENT)} bytes",
        f"downloading {second}",
        f"{second}: HTTP status 404",
        f"downloading {first}, from byte {HALF} on",
        f"{first}: HTTP status 503",
        f"downloading {second}",
        f"{second}: HTTP status 404",
        f"downloading {first}, from byte {HALF} on",
    ]
