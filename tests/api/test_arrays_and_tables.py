"""Arrays of any number type, files that are mapped to memory, and tables."""

import re
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from tests.api.conftest import flat
from torch import nn

from oso_dp import OsoError
from oso_dp.api.datasets import make_examples
from oso_dp.training.user_model import UserModel

CPU = torch.device("cpu")
SEEDED = {"randomness": "seeded", "seed": 1, "batch_size": 400, "epochs": 2}
ROWS = torch.tensor([[3, 0, 7], [7, 11, 2]])
DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DTYPES += ["float16", "float32", "float64"]


class Floats(nn.Sequential):
    """Converts its inputs, as models of images do."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs.float())


def converted(array: np.ndarray) -> torch.Tensor:
    tensor = torch.from_numpy(array.copy())
    return tensor.float() if array.dtype.kind == "f" else tensor.long()


def rows_of(examples) -> tuple[torch.Tensor, torch.Tensor]:
    inputs, targets, absent = examples.batch(ROWS)
    assert absent is None
    assert [one.dtype for one in examples.empty()] == [inputs.dtype, targets.dtype]
    return inputs, targets


def numbers(dtype: str, shape=(12, 5)) -> np.ndarray:
    """Also the extreme ones of a whole type that int64 has."""
    found = np.random.default_rng(3).integers(0, 2, shape).astype(dtype)
    if found.dtype.kind in "iu":
        found[3, 0] = min(np.iinfo(dtype).max, 2**63 - 1)
        found[7, 0] = np.iinfo(dtype).min
    return found + np.asarray(0.3, dtype) if found.dtype.kind == "f" else found


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_make_examples_batch_equals_converted_array(dtype: str, as_tensor: bool) -> None:
    array = numbers(dtype)
    given = torch.from_numpy(array) if as_tensor else array
    inputs, targets = rows_of(make_examples((given, given[:, 0]), CPU))
    assert torch.equal(inputs, converted(array)[ROWS])
    assert torch.equal(targets, converted(array[:, 0])[ROWS])
    assert inputs.dtype == converted(array).dtype


@pytest.mark.parametrize("dtype", DTYPES)
def test_make_examples_array_shares_memory(dtype: str) -> None:
    array = numbers(dtype)
    examples = make_examples((array, array[:, 0]), CPU)
    assert examples.inputs.data_ptr() == array.ctypes.data
    assert examples.targets.data_ptr() == array.ctypes.data


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float16", "float64"])
def test_train_private_mapped_file_matches_tensors(
    dtype: str, train, model, data, tmp_path
) -> None:
    inputs = (data[0] * 10 + 40).numpy().astype(dtype)
    targets = data[1].numpy().astype("uint8")
    for name, array in (("inputs", inputs), ("targets", targets)):
        array.tofile(tmp_path / name)
    mapped = (
        np.memmap(tmp_path / "inputs", dtype=dtype, mode="r", shape=inputs.shape),
        np.memmap(tmp_path / "targets", dtype="uint8", mode="r", shape=targets.shape),
    )
    made = [
        train(model=Floats(*model), data=given, **SEEDED)
        for given in (mapped, (converted(inputs), data[1]))
    ]
    assert torch.equal(flat(made[0]), flat(made[1]))
    assert made[0].statement.types == made[1].statement.types


def anonymous_megabytes() -> float:
    """Memory that is not of a file: a mapped file's pages leave it when others need them."""
    text = Path("/proc/self/status").read_text()
    return int(re.search(r"^RssAnon:\s+(\d+)", text, re.MULTILINE)[1]) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells it")
@pytest.mark.parametrize("dtype", ["uint8", "float64"])
def test_train_private_mapped_file_not_copied(dtype: str, train, tmp_path) -> None:
    """A copy of the 200 MB would need 100 MB (float64 to float32) or 1600 MB (uint8 to int64)."""
    width = 500
    count = 200 * 10**6 // width // np.dtype(dtype).itemsize
    with (tmp_path / "inputs").open("wb") as file:
        file.truncate(200 * 10**6)  # zeros, which need no space
    inputs = np.memmap(tmp_path / "inputs", dtype=dtype, mode="r", shape=(count, width))
    targets = np.arange(count) % 2
    before, peak, is_done = anonymous_megabytes(), [0.0], threading.Event()

    def watch() -> None:
        while not is_done.is_set():
            peak.append(anonymous_megabytes())
            time.sleep(0.002)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        model = Floats(nn.Linear(width, 2))
        train(model=model, data=(inputs, targets), batch_size=256, epochs=3 * 256 / count)
    finally:
        is_done.set()
        thread.join()
    assert max(peak) - before < 60


def as_reversed(array: np.ndarray) -> np.ndarray:
    return array[::-1].copy()[::-1]


def as_swapped(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder())


def as_column_order(array: np.ndarray) -> np.ndarray:
    return np.asfortranarray(array)


def as_field(array: np.ndarray) -> np.ndarray:
    """A field of records, whose steps are no whole numbers of it."""
    records = np.zeros(array.shape, dtype=[("flag", "u1"), ("number", array.dtype)])
    records["number"] = array
    return records["number"]


def as_read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "lay_out", [as_reversed, as_swapped, as_column_order, as_field, as_read_only]
)
@pytest.mark.parametrize("dtype", ["float64", "int16"])
def test_make_examples_layout_has_no_effect(lay_out, dtype: str) -> None:
    array = numbers(dtype)
    given = lay_out(array)
    inputs, targets = rows_of(make_examples((given, given[:, 0]), CPU))
    assert torch.equal(inputs, converted(array)[ROWS])
    assert torch.equal(targets, converted(array[:, 0])[ROWS])


@pytest.mark.parametrize("row", [0, 2_500_000])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 1e300])
def test_make_examples_nonfinite_number_rejected(odd: float, row: int) -> None:
    array = np.zeros((2_500_001, 1))
    array[row] = odd
    with pytest.raises(OsoError, match=r"^data: inputs contain NaN or infinity; must be finite$"):
        make_examples((array, np.zeros(len(array), dtype="uint8")), CPU)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int64"])
def test_check_inputs_unknown_word_rejected(dtype: str) -> None:
    words = np.zeros((1_300_000, 1), dtype=dtype)
    words[1_200_000] = 10
    model = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(4, 2))
    examples = make_examples((words, words[:, 0]), CPU)
    with pytest.raises(OsoError, match="data: inputs are integers from 0 to 10, and the model"):
        UserModel(model).check_inputs(examples)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_train_private_unknown_class_rejected(dtype: str, train) -> None:
    targets = np.zeros(1_200_000, dtype=dtype)
    targets[1_100_000] = 7
    with pytest.raises(OsoError, match="data: targets contain 7; must be 0 to 1, for this"):
        train(data=(np.zeros((1_200_000, 6), dtype="float16"), targets))


TABLE = pd.DataFrame(
    {"age": [30, 41, 25], "income": [1.5, 2.0, 0.5], "member": [True, False, True]}
)
WANTED = torch.tensor([[30, 1.5, 1], [41, 2.0, 0], [25, 0.5, 1]])


@pytest.mark.parametrize(
    "table",
    [
        TABLE,
        TABLE.astype({"age": "Int64", "income": "Float64", "member": "boolean"}),
        TABLE.astype("float64"),
        pa.Table.from_pandas(TABLE),
        pa.RecordBatch.from_pandas(TABLE),
    ],
    ids=["pandas", "nullable", "of one type", "arrow", "record batch"],
)
@pytest.mark.parametrize(
    "targets",
    [pd.Series([1, 0, 1]), pa.chunked_array([[1, 0], [1]]), pa.array([True, False, True])],
    ids=["series", "chunked", "array"],
)
def test_make_examples_numeric_table_accepted(table, targets) -> None:
    inputs, found, _ = make_examples((table, targets), CPU).batch(torch.arange(3)[None])
    assert torch.equal(inputs[0], WANTED)
    assert found.tolist() == [[1, 0, 1]]


OTHERS = {"city": ["Rome", "Oslo", "Rome"], "day": pd.to_datetime(["2020"] * 3)}
MIXED = TABLE.assign(**OTHERS, group=pd.Categorical(["a", "b", "a"]))


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (MIXED, r"'city' \(str\), 'day' \(datetime64\[\w+\]\), 'group' \(category\); "),
        (MIXED[["age", "group"]], r"'group' \(category\); "),
        (MIXED.assign(income=["x", 1, 2.0])[["income"]], r"'income' \(object\); "),
        (
            pa.Table.from_pandas(MIXED),
            r"'city' \(\w+\), 'day' \(timestamp\[\w+\]\), 'group' \(dictionary<.*>\); ",
        ),
        (pd.DataFrame([["x"] * 7] * 3), r"0 \(str\), .*, 4 \(str\) and 2 more; "),
    ],
)
def test_train_private_nonnumeric_columns_rejected(table, named: str, train) -> None:
    start, end = "^data: inputs have columns that are not numbers: ", "drop them, or encode them as"
    with pytest.raises(OsoError, match=start + named + end) as error:
        train(data=(table, np.arange(3) % 2), batch_size=2)
    assert not any(value in str(error.value) for value in ("Rome", "2020", "\n"))


@pytest.mark.parametrize("table", [TABLE.assign(age=[1, None, 2]), pa.table({"a": [1, None, 2]})])
def test_train_private_missing_value_rejected(table, train) -> None:
    with pytest.raises(OsoError, match="data: inputs contain NaN or infinity; must be finite"):
        train(data=(table, np.arange(3) % 2), batch_size=2)


@pytest.mark.parametrize("table", [TABLE, pa.Table.from_pandas(TABLE)])
def test_train_private_table_without_targets_rejected(table, train) -> None:
    kind = type(table).__name__
    with pytest.raises(OsoError, match=rf"^data: {kind}; must be \(inputs, targets\): the columns"):
        train(data=table)
