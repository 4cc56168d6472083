"""`prepare_dataset`, from downloads and from a folder of the user's."""

import dataclasses
import gzip
from importlib import import_module

import pytest

from oso_dp import data
from oso_dp.data import DATASETS, dataset_info, mnist, prepare_dataset
from oso_dp.data.download import obtain
from oso_dp.errors import OsoError

from .conftest import contents


def test_datasets_entries_have_builders():
    for name, info in DATASETS.items():
        assert info.name == name
        module, function = info.builder.split(".")
        assert callable(getattr(import_module(f"oso_dp.data.{module}"), function))


def test_prepare_dataset_unknown_name_rejected(tmp_path):
    for call in (dataset_info, lambda name: prepare_dataset(name, tmp_path / "new" / "x.npz")):
        with pytest.raises(
            OsoError, match=r"'imagenet'.* must be one of mnist, mnist_writers, .*ag_"
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"examples": 6}, "training examples: 5; must be 6"),
        ({"test_examples": 3}, "test examples: 2; must be 3"),
        ({"input_shape": (4, 3)}, r"input shape: \(1, 4, 3\); must be \(4, 3\)"),
        ({"classes": 9}, "largest target: 9; must be 8"),
    ],
)
def test_prepare_dataset_unexpected_arrays_rejected(
    tiny_mnist, monkeypatch, tmp_path, change, message
):
    monkeypatch.setitem(DATASETS, "mnist", dataclasses.replace(DATASETS["mnist"], **change))
    with pytest.raises(OsoError, match=message):
        prepare_dataset("mnist", tmp_path / "x.npz", tiny_mnist)
    assert not (tmp_path / "x.npz").exists()


def test_prepare_dataset_failure_keeps_output(tiny_mnist, tmp_path):
    output = tmp_path / "x.npz"
    prepare_dataset("mnist", output, tiny_mnist)
    before = output.read_bytes()
    (tiny_mnist / "t10k_images.gz").write_bytes(b"cut")
    with pytest.raises(OsoError, match=r"t10k_images\.gz: truncated"):
        prepare_dataset("mnist", output, tiny_mnist)
    assert output.read_bytes() == before


def test_prepare_dataset_overwrites_only_own_output(tiny_mnist, tmp_path):
    output = tmp_path / "x.npz"
    prepare_dataset("mnist", output, tiny_mnist)
    prepare_dataset("mnist", output, tiny_mnist)
    other = tmp_path / "thesis.txt"
    other.write_text("years of work")
    for path in (other, tmp_path):
        with pytest.raises(OsoError, match=f"^{path}: exists and is not a data file"):
            prepare_dataset("mnist", path, tiny_mnist)
    assert other.read_text() == "years of work"


def test_prepare_dataset_unwritable_folder_rejected_early(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "import_module", lambda name: pytest.fail("work was begun"))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OsoError, match=f"^{tmp_path / 'file'}: cannot create folder") as caught:
        prepare_dataset("glyphs", tmp_path / "file" / "x.npz")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr("os.access", lambda *args: False)  # root may write anywhere
    with pytest.raises(OsoError, match=f"^{tmp_path}: no permission to write"):
        prepare_dataset("glyphs", tmp_path / "x.npz")


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("subfolder", ["", "tiny"])
def test_obtain_local_files_found(tiny, tmp_path, compressed, subfolder, opened):
    folder = tiny.write(tmp_path / "local" / subfolder, compressed)
    before = snapshot(tmp_path)
    fetched = obtain(tiny.source, tmp_path / "local", tmp_path / "cache")
    assert contents(fetched) == tiny.content
    assert all(str(folder) in file.origin for file in fetched.values())
    assert snapshot(tmp_path) == before
    assert opened == []


def flipped(content, at=None, to=None):
    changed = bytearray(content)
    at = len(content) // 2 if at is None else at
    changed[at] = changed[at] ^ 1 if to is None else to
    return bytes(changed)


# What stands in place of a file of this content; None: a folder.
DAMAGES = {
    "cut": lambda content: gzip.compress(content)[:-9],
    "content cut": lambda content: gzip.compress(content[:-1]),
    "more": lambda content: gzip.compress(content + b"\0"),
    "bit": lambda content: gzip.compress(flipped(content)),
    "bit of gzip": lambda content: flipped(gzip.compress(content)),
    "no such block": lambda content: flipped(gzip.compress(content), 10, 0xFF),
    "empty": lambda content: b"",
    "folder": None,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("place", ["data_dir", "cache"])
def test_obtain_damaged_file_rejected_and_kept(tiny, make_tiny, tmp_path, damage, place, opened):
    mirror = tiny.write(tmp_path / "mirror")  # sound, and not to be used instead
    source = make_tiny(mirrors=(f"http://127.0.0.1:1/{mirror}",)).source
    folder = tiny.write(tmp_path / place)
    spoiled = folder / "t10k_images.gz"
    spoiled.unlink()
    if DAMAGES[damage] is None:
        spoiled.mkdir()
    else:
        spoiled.write_bytes(DAMAGES[damage](tiny.content["t10k_images"]))
    before = snapshot(tmp_path)
    data_dir = folder if place == "data_dir" else None
    with pytest.raises(OsoError) as caught:
        obtain(source, data_dir, tmp_path / "cache")
    message = str(caught.value)
    assert message.startswith(str(folder / "t10k_images.gz"))
    assert "\n" not in message
    assert snapshot(tmp_path) == before
    assert opened == []


def test_obtain_missing_local_file_not_downloaded(tiny, make_tiny, tmp_path, opened):
    mirror = tiny.write(tmp_path / "mirror")
    folder = tiny.write(tmp_path / "local")
    (folder / "train_labels.gz").unlink()
    source = make_tiny(mirrors=(f"http://127.0.0.1:1/{mirror}",)).source
    with pytest.raises(OsoError, match=r"local/train_labels\.gz: missing"):
        obtain(source, folder, tmp_path / "cache")
    assert opened == []


@pytest.mark.parametrize("exists", [True, False])
def test_obtain_folder_without_files_rejected(tiny, tmp_path, exists):
    folder = tmp_path / "local"
    if exists:
        folder.mkdir()
    with pytest.raises(OsoError) as caught:
        obtain(tiny.source, folder, tmp_path / "cache")
    assert str(folder) in str(caught.value)
    assert all(f"{name}.gz" in str(caught.value) for name in tiny.content)
