"""The configuration: what is shipped is valid; what is wrong is named in one line."""

import json
from pathlib import Path

import pytest

from oso_dp.errors import OsoError
from oso_dp.study.config import load_config, parse_config
from oso_dp.study.config_schema import json_schema

CONFIG = Path(__file__).parents[2] / "config"
SHIPPED = [
    path.relative_to(CONFIG).with_suffix("").as_posix()
    for path in CONFIG.rglob("*.yaml")
    if not path.is_symlink()
]


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_configurations_are_valid(repo, name) -> None:
    assert load_config(repo / "config" / f"{name}.yaml").name == (
        name.rpartition("/")[2].replace(".", "")
    )


def test_the_schema_file_is_the_models(repo) -> None:
    stored = json.loads((repo / "workflow/schemas/config.schema.json").read_text())
    assert stored == json_schema()


def test_every_key_is_explained_to_people(repo) -> None:
    text = (repo / "config/README.md").read_text()
    schema = json_schema()
    keys = [*schema["properties"]]
    for section in schema["$defs"].values():
        keys += section["properties"]
    missing = [key for key in keys if f"`{key}`" not in text]
    assert not missing


BAD = {
    "unknown key": ({"epsilom": 3}, "epsilom: unknown key"),
    "unknown method": ({"methods": {"onlin": {}}}, "'onlin'; must be one of"),
    "unknown method setting": (
        {"methods": {"online": {"rho": 1}}},
        "methods.online.rho: unknown key",
    ),
    "method setting out of range": (
        {"methods": {"online": {"query_noise_ratio": 1.0}}},
        "methods.online.query_noise_ratio: 1.0; must be greater than 1",
    ),
    "a control that is none": (
        {"methods": {"online_frozen_threshold": {"threshold_rate": 0.1}}},
        "methods.online_frozen_threshold.threshold_rate: 0.1; must be less",
    ),
    "unknown data set": (
        {"datasets": {"cifar": {"model": "cnn", "epsilons": [1], "seconds_per_step": 1}}},
        "datasets.cifar: unknown; must be one of mnist",
    ),
    "a model for other data": (
        {"datasets": {"mnist": {"model": "small_cnn", "epsilons": [1], "seconds_per_step": 1}}},
        "datasets.mnist.model: small_cnn; does not fit this data set; must be cnn",
    ),
    "unknown words of images": (
        "oov_words",
        "skipped",
        "datasets.mnist.oov_words: skipped; only for text",
    ),
    "sum of a class's loss": (
        "loss",
        "sum",
        "datasets.mnist.loss: sum; only for models that return images",
    ),
    "precision of another device": (
        "precision",
        "tf32",
        "datasets.mnist.precision: tf32; must be float32 or bfloat16 on device cpu",
    ),
    "unknown selection": (
        {"search_accounting": "best"},
        "search_accounting: 'best'; must be 'composition',",
    ),
    "epsilon zero": ("epsilons", [0], "0; must be greater than 0"),
    "epsilon infinite": ("epsilons", [float("inf")], "epsilons.0"),
    "epsilon text": ("epsilons", ["three"], "valid number"),
    "epsilon true": ("epsilons", [True], "not true or false"),
    "epsilon twice": ("epsilons", [3, 3.0], "each value may appear only once"),
    "delta one": ({"delta": 1}, "delta: 1; must be less than 1"),
    "batch size too large": ({"batch_size": 60001}, "must be <= 60000"),
    "grid turned round": ({"grid": {"log10_threshold": [2, -2]}}, "low < high"),
    "a seed that no row holds": (
        {"seeds": [2**63]},
        "seeds.0: 9223372036854775808; must be less than 9223372036854776000",
    ),
    "a name that no plan has": ({"name": "a" * 151}, "'; must have at most 150"),
    "a setting of true": (
        {"methods": {"online": {"threshold_rate": True}}},
        "methods.online.threshold_rate: True; must be a number, not true or",
    ),
    "momentum one": ({"momentum": 1}, "momentum: 1; must be less than 1"),
    "name with a slash": ({"name": "../x"}, "name: '../x'; must match pattern '^[a-z0-9_]+$'"),
    "device": ({"device": "tpu"}, "device: 'tpu'; must match pattern '^(cpu|cuda)$'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_values_get_one_line(base, case) -> None:
    *change, message = BAD[case]
    if len(change) == 1:
        base.update(change[0])
    else:
        base["datasets"]["mnist"][change[0]] = change[1]
    with pytest.raises(OsoError) as error:
        parse_config(base, "my.yaml")
    assert message in str(error.value)
    assert str(error.value).startswith("my.yaml: ")
    assert "\n" not in str(error.value)


def test_a_missing_key_is_named(base) -> None:
    del base["seeds"]
    with pytest.raises(OsoError, match="seeds: missing"):
        parse_config(base, "my.yaml")


@pytest.mark.parametrize("text", ["- 1", "just text", "", "a: [1"])
def test_a_file_that_is_no_configuration(tmp_path, text) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(OsoError, match=r"x\.yaml"):
        load_config(path)


def test_a_missing_file(tmp_path) -> None:
    with pytest.raises(OsoError, match=r"none\.yaml: cannot be read"):
        load_config(tmp_path / "none.yaml")


def test_numbers_as_yaml_writes_them(base) -> None:
    """YAML takes 1e-5 for text, because it has no dot."""
    assert parse_config({**base, "delta": "1e-5"}, "x").delta == 1e-5


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("seeds", [0, 0]),
        ("values_per_axis", [9, 5, 9]),
        ("grid", {"quantiles": [0.5, 0.1, 0.5]}),
    ],
)
def test_what_stands_twice_is_refused(base, key, values) -> None:
    with pytest.raises(OsoError, match=rf"^x: {key}.*; each value may appear only once"):
        parse_config({**base, key: values}, "x")


def test_a_method_whose_rule_knows_its_own_steps_takes_no_schedule(repo) -> None:
    values = load_config(repo / "config/extensions/defaults_averaged.yaml").model_dump()
    assert "auto_dog" in values["methods"]
    parse_config(values, "x")
    with pytest.raises(OsoError, match=r"methods\.auto_dog: does not support schedules"):
        parse_config({**values, "schedule": "linear"}, "x")
    others = {name: given for name, given in values["methods"].items() if name != "auto_dog"}
    parse_config({**values, "schedule": "linear", "methods": others}, "x")
