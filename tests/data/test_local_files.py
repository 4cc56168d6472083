"""Files of a local folder: taken if whole and right, else named and left as they are."""

import gzip
import tracemalloc

import pytest

from oso_dp.data.download import obtain
from oso_dp.errors import OsoError

from .conftest import contents


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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
    source = make_tiny(mirrors=(f"http://127.0.0.1:1/{mirror}",)).source
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
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


def test_a_missing_file_is_named_and_not_downloaded_behind_ones_back(
    tiny, make_tiny, tmp_path, opened
):
    mirror = tiny.write(tmp_path / "mirror")
    folder = tiny.write(tmp_path / "local")
    (folder / "train_labels.gz").unlink()
    source = make_tiny(mirrors=(f"http://127.0.0.1:1/{mirror}",)).source
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
