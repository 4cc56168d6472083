"""`oso data` says on the screen whom it asks, and nothing else."""

import dataclasses

import pytest
from tests.data import server

from oso_dp.data import download, mnist, sources


@pytest.fixture
def mirrors(monkeypatch):
    """MNIST's mirrors: one without the file, and one that refuses."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("OSO_DATA_DIR", raising=False)
    monkeypatch.setattr(download, "ROUNDS", 1)
    with server.serving(b"", server.status(404), server.status(503)) as mirrors:
        source = dataclasses.replace(sources.MNIST, mirrors=mirrors.urls)
        monkeypatch.setattr(mnist.build, "__defaults__", (source,))
        yield mirrors


def test_a_line_for_each_mirror_and_one_for_the_end(oso, mirrors, tmp_path):
    for _ in range(2):  # the second call does not say it twice
        status, output, error = oso("data", "mnist", "--output", tmp_path / "x.npz")
        assert (status, output) == (2, "")
        *lines, end = error.splitlines()
        files = [f"{url}/train-images-idx3-ubyte.gz" for url in mirrors.urls]
        assert lines == [
            f"downloading {files[0]}",
            f"{files[0]}: HTTP status 404",
            f"downloading {files[1]}",
            f"{files[1]}: HTTP status 503",
        ]
        assert end.startswith("oso: error: mnist: cannot download train-images-idx3-ubyte.gz (http")
        assert all(url in end for url in mirrors.urls)
    assert not (tmp_path / "x.npz").exists()
