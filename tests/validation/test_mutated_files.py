"""Whatever becomes of a valid file: a command succeeds, or says in one line what is wrong with it.

Each example changes one configuration, plan or part at some place, in a way that files do change:
a value replaced, left out, doubled, moved; a byte lost. The command may not fail otherwise, and may
not change any file but what it was told to write.
"""

import json
import shutil

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.mutations import HOW, TEXTS, VALUES, changed, places

from oso_dp.data import prepare_dataset
from oso_dp.results.read import read_results
from oso_dp.results.schema import SCHEMAS

from .conftest import COHORT, STUDY, content, read, write

EXAMPLES = settings(
    max_examples=8,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def answers_well(outcome, *named: str) -> None:
    status, _, error = outcome
    assert status in (0, 2), outcome
    if status == 2:
        assert error.startswith("oso: error: "), error
        assert error.count("\n") == 1, error
        assert any(name in error for name in named), error
        assert len(error) < 1500, error


@pytest.fixture(scope="module")
def folder(valid, tmp_path_factory):
    """One for all examples of a property; what they spoil is a file of their own."""
    folder = tmp_path_factory.mktemp("mutations") / "place"
    shutil.copytree(valid, folder)
    return folder


CONFIGURATION = yaml.safe_load(STUDY)


@EXAMPLES
@given(
    place=st.sampled_from(places(CONFIGURATION)),
    how=HOW,
    other=VALUES,
    as_json=st.booleans(),
    command=st.sampled_from(["plan", "calibrate"]),
)
def test_config_mutated_accepted_or_rejected(
    place, how, other, as_json, command, folder, oso, monkeypatch
) -> None:
    monkeypatch.chdir(folder)
    spoiled = changed(CONFIGURATION, place, how, other)
    text = json.dumps(spoiled) if as_json else yaml.safe_dump(spoiled)
    (folder / "bad.yaml").write_text(text, encoding="utf-8")
    before = content(folder)
    answers_well(oso(command, "--config", "bad.yaml"), "bad.yaml")
    assert content(folder) == before


READERS = {
    "train": ["train", "--cohort", COHORT, "--data", "bad.json.npz", "--output", "new"],
    "account": ["account", "nothing"],
    "collect": ["collect", "nothing", "--store", "store"],
}


@EXAMPLES
@given(data=st.data(), how=HOW, other=VALUES, reader=st.sampled_from(sorted(READERS)))
def test_read_plan_mutated_file_rejected(
    data, how, other, reader, folder, oso, monkeypatch
) -> None:
    monkeypatch.chdir(folder)
    plan = json.loads((folder / "plan.json").read_text())
    place = data.draw(st.sampled_from(places(plan)))
    spoiled = changed(plan, place, how, other)
    (folder / "bad.json").write_text(json.dumps(spoiled))
    before = content(folder)
    outcome = oso(*READERS[reader], "--plan", "bad.json")
    assert outcome[0] == 2
    if json.loads((folder / "bad.json").read_text()) != plan:
        answers_well(outcome, "bad.json")
        assert "nothing" not in outcome[2]
    assert content(folder) == before


# What fits the type of a column, likely or not.
CELLS = {
    "string": st.one_of(st.none(), TEXTS),
    "int64": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(-2, 20)),
    "double": st.one_of(st.none(), st.floats(), st.floats(-2, 2)),
}
CELLS["list<item: double>"] = st.one_of(st.none(), st.lists(CELLS["double"], max_size=4))


@EXAMPLES
@given(data=st.data(), kind=st.sampled_from(sorted(SCHEMAS)), how=HOW)
def test_collect_mutated_rows_accepted_or_rejected(
    data, kind, how, folder, oso, monkeypatch
) -> None:
    monkeypatch.chdir(folder)
    shutil.rmtree(folder / "bad", ignore_errors=True)
    shutil.rmtree(folder / "new", ignore_errors=True)
    shutil.copytree(folder / "part", folder / "bad")
    rows = read(folder / "part", kind)
    row = data.draw(st.integers(0, len(rows) - 1))
    field = data.draw(st.sampled_from(list(SCHEMAS[kind])))
    if how == "replace":
        rows[row][field.name] = data.draw(CELLS[str(field.type)])
    elif how == "drop":
        del rows[row]
    else:
        rows.append(rows[row])
    write(folder / "bad", kind, rows)
    before = content(folder)
    outcome = oso("collect", "bad", "--store", "new")
    answers_well(outcome, "bad/", "new, with these shards: ")
    if outcome[0] == 2:
        assert content(folder) == before
    else:
        assert len(read_results(folder / "new").runs) == len(read(folder / "bad", "runs"))
        shutil.rmtree(folder / "new")
    for reader in ("account", "summary"):
        looked = oso(reader, "bad")
        answers_well(looked, "bad/", "bad: ", COHORT.split(".")[0])
        assert looked[0] == outcome[0], looked  # what one refuses, so do the others
        assert content(folder) == before


ARRAYS = ("train_inputs", "train_targets", "test_inputs", "test_targets")


@pytest.fixture(scope="module")
def prepared(folder):
    prepare_dataset("glyphs", folder / "glyphs.npz")
    return folder / "glyphs.npz"


@EXAMPLES
@given(data=st.data(), how=st.sampled_from(["value", "rows", "type", "shape", "bytes", "said"]))
def test_train_mutated_data_accepted_or_rejected(
    data, how, prepared, folder, oso, monkeypatch
) -> None:
    monkeypatch.chdir(folder)
    shutil.rmtree(folder / "new", ignore_errors=True)
    bad = folder / "bad.npz"
    if how == "bytes":
        whole = prepared.read_bytes()
        at = data.draw(st.integers(0, len(whole) - 1))
        bad.write_bytes(whole[:at] + data.draw(st.binary(max_size=9)) + whole[at + 9 :])
    else:
        with np.load(prepared, allow_pickle=False) as file:
            entries = dict(file)
        name = data.draw(st.sampled_from(ARRAYS))
        array = entries[name].copy()
        if how == "value":
            place = data.draw(st.integers(0, array.size - 1))
            likely = st.floats(width=32) if array.dtype.kind == "f" else st.integers(-2, 12)
            array.reshape(-1)[place] = data.draw(likely)
        elif how == "rows":
            array = array[: data.draw(st.integers(0, len(array) - 1))]
        elif how == "type":
            array = array.astype(data.draw(st.sampled_from(["f8", "i4", "u1", "bool"])))
        elif how == "shape":
            array = array.reshape(1, *array.shape)
        else:
            said = st.sampled_from(["", "{", "[]", "{}", '{"dataset": 3}', '{"dataset": "mnist"}'])
            entries["provenance"] = np.array(data.draw(said))
        np.savez(bad, allow_pickle=False, **(entries | {name: array}))
    before = content(folder)
    train = ["train", "--plan", "plan.json", "--cohort", COHORT, "--data", "bad.npz"]
    outcome = oso(*train, "--output", "new")
    answers_well(outcome, "bad.npz")
    if outcome[0] == 0:
        assert how in ("value", "bytes")
        assert len(read_results(folder / "new").runs) == 2
    else:
        assert not list((folder / "new").rglob("*.parquet"))
    shutil.rmtree(folder / "new", ignore_errors=True)
    assert content(folder) == before
