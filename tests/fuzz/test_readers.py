"""Whatever bytes a reader is given: it returns values, or refuses them in one line."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.mutations import ODD, spoiled, spoiled_values

from oso_dp.analysis.search_costs import KEY, read_costs
from oso_dp.analysis.side_measurements import (
    ADAPTATION_SIGNS,
    COSINES,
    STEP_TIMES,
    read_vocabulary_coverage,
)
from oso_dp.data.ag_news import parse_news
from oso_dp.data.arrays import Arrays, is_arrays_file, load_arrays, read_provenance, save_arrays
from oso_dp.data.glove import parse_vectors
from oso_dp.data.mnist import parse_idx
from oso_dp.data.validation import check_provenance
from oso_dp.privacy.ledger import Ledger, SumQuery
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.results.vocabulary_coverage import store_coverage
from oso_dp.scheduler.priorities import read_priorities
from oso_dp.study.config import parse_config
from oso_dp.study.plan import is_plan, make_plan_with_noise, read_plan, write_plan
from oso_dp.study.strict_yaml import read_yaml

from .rounds import inputs, read_or_refused

JSON = st.one_of(
    st.sampled_from(ODD),
    st.lists(st.sampled_from(ODD), max_size=3),
    st.dictionaries(st.sampled_from(["glyphs", "known_words", "a"]), st.sampled_from(ODD)),
)


# Raw data

IDX = [
    struct.pack(">BBBBII", 0, 0, 8, 2, 3, 4) + bytes(range(12)),
    struct.pack(">BBBBI", 0, 0, 0x0E, 1, 2) + struct.pack(">dd", 1.5, float("nan")),
    struct.pack(">BBBBIIII", 0, 0, 0x0B, 4, 0, 2**32 - 1, 2**32 - 1, 7),
    bytes([0, 0, 8, 65]) + struct.pack(">65I", *[1] * 65) + b"x",
]


@inputs(short=100, long=20_000)
@given(content=st.one_of(spoiled(*IDX), st.binary(max_size=40)))
def test_parse_idx_damage_never_crashes(content):
    array = read_or_refused(parse_idx, content, "some-file")
    assert array is None or array.nbytes <= len(content)


NEWS = [
    b'"3","Wall St. Bears","Short-sellers, ""dwindling"" band"\n"1","a","b\nc"\r\n',
    b'"4","\xc3\xa9","x"\n',
]


@inputs(short=100, long=15_000)
@given(content=st.one_of(spoiled(*NEWS), st.text(alphabet='"1234,ab\n\r\0').map(str.encode)))
def test_parse_news_damage_never_crashes(content):
    read_or_refused(parse_news, content, "some-file")


GLOVE = [
    b"".join(word + b" " + b" ".join([number] * 50) + b"\n" for word, number in words)
    for words in ([(b"the", b"0.5"), (b",", b"-1e-3")], [(b"\xc3\xa9", b"1e38")])
]


@inputs(short=100, long=15_000)
@given(content=spoiled(*GLOVE))
def test_parse_vectors_damage_never_crashes(content):
    vectors = read_or_refused(parse_vectors, content, "some-file")
    assert vectors is None or np.isfinite(vectors.values).all()


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder for files that are written over again and again."""
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def npz(place) -> bytes:
    inputs, targets = np.zeros((2, 1, 2, 2), np.float32), np.array([0, 1])
    save_arrays(place / "a.npz", Arrays(inputs, targets, inputs, targets), {"dataset": "glyphs"})
    return (place / "a.npz").read_bytes()


@inputs(short=60, long=5_000)
@given(data=st.data())
def test_load_arrays_damage_never_crashes(npz, place, data):
    path = place / "b.npz"
    path.write_bytes(data.draw(spoiled(npz)))
    read_or_refused(load_arrays, path)
    read_or_refused(read_provenance, path)
    is_arrays_file(path, of="glyphs")
    read_or_refused(store_coverage, place / "store", [path])


# What people write

STUDY = (
    b"name: mini\nresults: store\nreport: report\ndatasets:\n  glyphs: &a\n    model: small_cnn\n"
    b"    epsilons: [3, 1e-1]\n    seconds_per_step: 0.005\nmethods:\n  online: {}\n  no_dp: {}\n"
    b"values_per_axis: [2]\nseeds: [0]\nbatch_size: 600\nepochs: 1\n# a comment\n"
)
YAML_PIECES = [
    *("a", "b", ": ", ":", "\n", "  ", "- ", "[", "]", "{", "}", ",", "&x ", "*x", "<<: *x", "|"),
    *("!!int ", "!!python/object/apply:os.system ", "!<", ">", "'", '"', "%", "---", "1", "1_0"),
    *("2001-01-01", "2001-13-99", "1e5", ".nan", "\0", "\t", "?", "=", "~", "@"),
]
YAML_TEXT = st.lists(st.sampled_from(YAML_PIECES), max_size=25).map("".join)


def configuration(text):
    return parse_config(read_yaml(text, "some-file"), "some-file")


@inputs(short=80, long=10_000)
@given(content=st.one_of(spoiled(STUDY).map(lambda b: b.decode("latin-1")), YAML_TEXT, st.text()))
def test_parse_config_damaged_text_never_crashes(content):
    read_or_refused(configuration, content)


@inputs(short=60, long=5_000)
@given(value=st.one_of(spoiled_values(yaml.safe_load(STUDY)), JSON))
def test_parse_config_changed_values_never_crash(value):
    read_or_refused(parse_config, value, "some-file")


PRIORITIES = b'[[first]]\nplan = ["mini"]\nmethod = "online"\nseed = [0, 1]\nepsilon = 3.0\n'


@inputs(short=80, long=3_000)
@given(content=spoiled(PRIORITIES))
def test_read_priorities_damage_never_crashes(content, place):
    path = place / "priorities.toml"
    path.write_bytes(content)
    read_or_refused(read_priorities, path, [])


# What this project writes

LEDGER = Ledger(
    PoissonSampling(0.01), [((SumQuery("gradient", 1.0), SumQuery("count", 7.0)), 9)]
).to_json()


@inputs(short=100, long=12_000)
@given(content=st.one_of(spoiled(LEDGER.encode()).map(lambda b: b.decode("latin-1")), st.text()))
def test_ledger_damaged_text_never_crashes(content):
    ledger = read_or_refused(Ledger.from_json, content)
    if ledger is not None:
        assert all(nu >= 0 and count > 0 for nu, count in ledger.releases())
        assert ledger.event() is not None


@inputs(short=100, long=6_000)
@given(value=spoiled_values(json.loads(LEDGER)))
def test_ledger_changed_values_never_crash(value):
    ledger = read_or_refused(Ledger.from_json, json.dumps(value))
    if ledger is not None:
        ledger.event()


MADE = {
    "dataset": "ag_news",
    "preparation": {"words": 15, "oov_words": "zeros"},
    "known_words": {"train": 0.9, "test": 0.97},
    "vectors": {"words": 3, "sha256": "0", "complete": True},
}


@inputs(short=60, long=2_000)
@given(value=spoiled_values(MADE))
def test_load_arrays_changed_provenance_never_crashes(value, place):
    inputs, targets = np.zeros((2, 1, 2, 2), np.float32), np.array([0, 1])
    save_arrays(place / "c.npz", Arrays(inputs, targets, inputs, targets), value)
    made = read_or_refused(load_arrays, place / "c.npz")
    if made is not None:
        read_or_refused(check_provenance, "c.npz", made[1], "ag_news", MADE["preparation"])
    read_or_refused(store_coverage, place / "store", [place / "c.npz"])
    is_arrays_file(place / "c.npz", of="ag_news")


@pytest.fixture(scope="module")
def plan(place) -> bytes:
    config = configuration(STUDY.decode())
    write_plan(
        make_plan_with_noise(
            config, {"glyphs.online.k2.eps3": 1.0, "glyphs.online.k2.eps0.1": 9.0}
        ),
        place / "plan.json",
    )
    return (place / "plan.json").read_bytes()


@inputs(short=60, long=5_000)
@given(data=st.data())
def test_read_plan_damaged_text_never_crashes(plan, place, data):
    path = place / "other.json"
    path.write_bytes(data.draw(spoiled(plan)))
    read_or_refused(read_plan, path)
    is_plan(path)


@inputs(short=60, long=4_000)
@given(data=st.data())
def test_read_plan_changed_values_never_crash(plan, place, data):
    path = place / "other.json"
    path.write_text(json.dumps(data.draw(spoiled_values(json.loads(plan)))))
    read_or_refused(read_plan, path)


FACTS = {"ag_news": {"known_words": {"test": 0.97}, "vectors": {"words": 3}}}


@inputs(short=100, long=4_000)
@given(value=st.one_of(spoiled_values(FACTS), JSON), content=spoiled(json.dumps(FACTS).encode()))
def test_read_vocabulary_coverage_damage_never_crashes(value, content, place):
    (place / "vocabulary_coverage.json").write_bytes(content)
    read_or_refused(read_vocabulary_coverage, place)
    (place / "vocabulary_coverage.json").write_text(json.dumps(value))
    read_or_refused(read_vocabulary_coverage, place)


# Tables

TABLES = {
    "signs": (
        ADAPTATION_SIGNS.read,
        ADAPTATION_SIGNS.columns,
        "mnist,online,9,9.0,r1,{i},0.1,1.0,1,-1,1,1,.5,.5,1,.5",
    ),
    "cosine": (COSINES.read, COSINES.columns, "mnist,online,9,9.0,1.0,0.8,{i},0.1,0.1,9,1,1,1,1"),
    "times": (STEP_TIMES.read, STEP_TIMES.columns, "mnist,cnn,cpu,float32,online,x,9,1.1,1,1.2"),
    "prices": (read_costs, [*KEY, "noise_multiplier"], ",".join(["1"] * len(KEY) + ["{i}.5"])),
}


@inputs(short=100, long=12_000)
@given(data=st.data(), kind=st.sampled_from(sorted(TABLES)))
def test_csv_readers_damage_never_crashes(place, data, kind):
    read, columns, row = TABLES[kind]
    lines = [",".join(columns), *(row.format(i=i) for i in range(3))]
    path = place / f"{kind}.csv"
    path.write_bytes(data.draw(spoiled("\n".join(lines).encode())))
    read_or_refused(read, path)


@pytest.mark.parametrize("kind", sorted(TABLES))
def test_csv_readers_sound_tables_read(place, kind):
    read, columns, row = TABLES[kind]
    path = place / f"{kind}.csv"
    path.write_text("\n".join([",".join(columns), *(row.format(i=i) for i in range(3))]))
    assert len(read(path)) == (1 if kind == "prices" else 3)
