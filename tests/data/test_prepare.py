"""The catalogue and `prepare`, which holds data sets against it."""

import dataclasses
import subprocess
import sys
from importlib import import_module

import pytest

from oso_dp import data
from oso_dp.data import DATASETS, dataset_info, mnist, prepare_dataset, sources
from oso_dp.data.arrays import load_arrays
from oso_dp.errors import OsoError

from .conftest import kept, served


def test_every_data_set_can_be_both_planned_and_made():
    for name, info in DATASETS.items():
        assert info.name == name
        assert callable(import_module(f"oso_dp.data.{data.MODULES.get(name, name)}").build)


def test_glyphs_says_that_it_is_not_mnist():
    assert "not MNIST" in DATASETS["glyphs"].title


def test_planning_imports_nothing_heavy():
    code = "import oso_dp.data, sys; print({'numpy', 'matplotlib', 'torch'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "set()", result.stderr


def test_an_unknown_data_set_is_refused_with_the_allowed_ones(tmp_path):
    for call in (dataset_info, lambda name: prepare_dataset(name, tmp_path / "new" / "x.npz")):
        with pytest.raises(
            OsoError, match=r"'imagenet'.* must be one of mnist, fashion_mnist, ag_"
        ):
            call("imagenet")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def tiny_mnist(tiny, monkeypatch, tmp_path):
    """The tiny source in MNIST's place, and a folder that holds it."""
    info = dataclasses.replace(
        DATASETS["mnist"], examples=5, test_examples=2, input_shape=(1, 4, 3)
    )
    monkeypatch.setitem(DATASETS, "mnist", info)
    monkeypatch.setattr(mnist.build, "__defaults__", (tiny.source,))
    return tiny.write(tmp_path / "raw")


def test_the_file_says_which_data_set_it_holds(tiny_mnist, tmp_path):
    prepare_dataset("mnist", tmp_path / "out" / "x.npz", tiny_mnist)
    arrays, provenance = load_arrays(tmp_path / "out" / "x.npz")
    assert arrays.test_targets.tolist() == [9, 2]
    assert provenance["dataset"] == "mnist"


def test_downloads_go_beside_the_output(tiny, make_tiny, tiny_mnist, monkeypatch, tmp_path):
    with served(tiny_mnist) as url:
        source = make_tiny(mirrors=(url,)).source
        monkeypatch.setattr(mnist.build, "__defaults__", (source,))
        prepare_dataset("mnist", tmp_path / "out" / "x.npz")
    cached = tmp_path / "out" / "downloads" / "mnist"
    assert set(kept(cached)) == {f"{name}.gz" for name in tiny.content}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"examples": 6}, "training examples: 5; must be 6"),
        ({"test_examples": 3}, "test examples: 2; must be 3"),
        ({"input_shape": (4, 3)}, r"input shape: \(1, 4, 3\); must be \(4, 3\)"),
        ({"classes": 9}, "largest target: 9; must be 8"),
    ],
)
def test_arrays_that_the_study_did_not_plan_with_are_not_written(
    tiny_mnist, monkeypatch, tmp_path, change, message
):
    monkeypatch.setitem(DATASETS, "mnist", dataclasses.replace(DATASETS["mnist"], **change))
    with pytest.raises(OsoError, match=message):
        prepare_dataset("mnist", tmp_path / "x.npz", tiny_mnist)
    assert not (tmp_path / "x.npz").exists()


def test_a_failure_leaves_the_earlier_output(tiny_mnist, tmp_path):
    output = tmp_path / "x.npz"
    prepare_dataset("mnist", output, tiny_mnist)
    before = output.read_bytes()
    (tiny_mnist / "t10k_images.gz").write_bytes(b"cut")
    with pytest.raises(OsoError, match=r"t10k_images\.gz: truncated"):
        prepare_dataset("mnist", output, tiny_mnist)
    assert output.read_bytes() == before


def test_an_earlier_output_is_made_anew_but_no_other_file_is_overwritten(tiny_mnist, tmp_path):
    output = tmp_path / "x.npz"
    prepare_dataset("mnist", output, tiny_mnist)
    prepare_dataset("mnist", output, tiny_mnist)
    other = tmp_path / "thesis.txt"
    other.write_text("years of work")
    for path in (other, tmp_path):
        with pytest.raises(OsoError, match=f"^{path}: exists and is not a data file"):
            prepare_dataset("mnist", path, tiny_mnist)
    assert other.read_text() == "years of work"


def test_a_closed_output_folder_is_named_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "import_module", lambda name: pytest.fail("work was begun"))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OsoError, match=f"^{tmp_path / 'file'}: cannot create folder") as caught:
        prepare_dataset("glyphs", tmp_path / "file" / "x.npz")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr("os.access", lambda *args: False)  # root may write anywhere
    with pytest.raises(OsoError, match=f"^{tmp_path}: no permission to write"):
        prepare_dataset("glyphs", tmp_path / "x.npz")


# What was published, and which of it cannot be had here: name, bytes, sha256.
PUBLISHED = {
    "train.csv": (29_470_338, "76a0a2d2f92b286371fe4d4044640910a04a803fdd2538e0f3f29a5c6f6b672e"),
    "test.csv": (1_857_427, "521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699"),
    "glove.6B.zip": (
        *(862_182_613, "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb"),
    ),
    "glove.6B.50d.txt": (
        *(171_350_079, "d8f717f8dd4b545cb7f418ef9f3d0c3e6e68a6f48b97d32f8b7aae40cb31f96f"),
    ),
}


def test_files_that_nobody_has_here_are_those_that_were_published():
    files = [*sources.AG_NEWS.files, *sources.GLOVE_ARCHIVE.files, sources.GLOVE_TEXT]
    assert {file.name: (file.size, file.sha256) for file in files} == PUBLISHED
    assert sources.AG_NEWS.mirrors == (
        "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv",
    )
    assert sources.GLOVE_ARCHIVE.mirrors == (
        "https://nlp.stanford.edu/data",
        "https://downloads.cs.stanford.edu/nlp/data",
    )
    sizes = {name: (info.examples, info.test_examples) for name, info in DATASETS.items()}
    assert sizes == {
        "mnist": (60_000, 10_000),
        "fashion_mnist": (60_000, 10_000),
        "ag_news": (120_000, 7_600),
        "ag_news_partial": (66_994, 7_600),
        "glyphs": (6_000, 1_000),
    }
