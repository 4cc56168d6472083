"""The configuration: what is shipped is valid; what is wrong is named in one line."""

import json
from pathlib import Path

import pytest

from oso_dp.errors import OsoError
from oso_dp.methods import PAPER_METHODS, method_names
from oso_dp.study.config import StudyConfig, load_config, parse_config
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


def test_what_the_paper_lacks_is_off_in_its_study_and_on_in_another(repo) -> None:
    paper = load_config(repo / "config/paper.yaml")
    beyond = load_config(repo / "config/extensions/other_methods.yaml")
    assert set(paper.methods) == set(PAPER_METHODS)
    controls = load_config(repo / "config/ablations/controls.yaml")
    alone = load_config(repo / "config/extensions/defaults.yaml")
    falling = load_config(repo / "config/extensions/defaults_linear_decay.yaml")
    every = {*paper.methods, *beyond.methods, *controls.methods, *alone.methods}
    averaged = load_config(repo / "config/extensions/defaults_averaged.yaml")
    every |= {*falling.methods, *averaged.methods}
    assert every == set(method_names())
    assert set(alone.methods) == {"online", "adam_wosm"}
    assert set(falling.methods) == {"auto_s", "auto_wosm"}
    assert set(averaged.methods) == {"auto_s", "auto_dog"}
    assert not set(paper.methods) & (set(beyond.methods) | set(controls.methods))
    assert not set(beyond.methods) & set(controls.methods)
    # The same grids under the same budgets, so that their rows stand beside the paper's.
    same = (
        "datasets",
        "values_per_axis",
        "seeds",
        "grid",
        "delta",
        "batch_size",
        "epochs",
        "momentum",
    )
    assert all(getattr(beyond, key) == getattr(paper, key) for key in same)


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


def test_the_papers_constants_are_the_defaults(repo) -> None:
    config = load_config(repo / "config/paper.yaml")
    online = config.method("online").options
    assert (config.batch_size, config.epochs, config.evaluate_every) == (512, 10, 50)
    assert (config.delta, config.momentum) == (1e-5, 0.9)
    assert (online.threshold_rate, online.learning_rate_rate) == (2.5e-3, 2.5e-3)
    assert (online.initial_threshold, online.query_noise_ratio) == (0.1, 7.124)


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
    "a rate that could turn a sign": (
        {"methods": {"online_scale_invariant": {"threshold_rate": 1.0}}},
        "methods.online_scale_invariant.threshold_rate: 1.0; must be less",
    ),
    "a stabiliser that bounds nothing": (
        {"methods": {"auto_s": {"stabiliser": 0.0}}},
        "methods.auto_s.stabiliser: 0.0; must be greater than or equal to",
    ),
    "unknown data set": (
        {"datasets": {"cifar": {"model": "cnn", "epsilons": [1], "seconds_per_step": 1}}},
        "datasets.cifar: unknown; must be one of mnist",
    ),
    "a model for other data": (
        {"datasets": {"mnist": {"model": "small_cnn", "epsilons": [1], "seconds_per_step": 1}}},
        "datasets.mnist.model: small_cnn; does not fit this data set; must be cnn",
    ),
    "words that the network does not take": (
        {
            "datasets": {
                "mnist": {"model": "bag_of_words_25", "epsilons": [1], "seconds_per_step": 1}
            }
        },
        "datasets.mnist.model: bag_of_words_25; does not fit this data set; must be cnn",
    ),
    "a network for images on texts": (
        {"datasets": {"ag_news": {"model": "cnn", "epsilons": [1], "seconds_per_step": 1}}},
        "datasets.ag_news.model: cnn; does not fit this data set; must be bag_of_words or",
    ),
    "unknown words of images": (
        "oov_words",
        "skipped",
        "datasets.mnist.oov_words: skipped; only for text",
    ),
    "unknown words otherwise": (
        "oov_words",
        "mean",
        "datasets.mnist.oov_words: 'mean'; must be 'zeros' or 'skipped'",
    ),
    "sum of a class's loss": (
        "loss",
        "sum",
        "datasets.mnist.loss: sum; only for models that return images",
    ),
    "precision otherwise": (
        "precision",
        "float16",
        "datasets.mnist.precision: 'float16'; must be 'float32', 'tf32' or",
    ),
    "precision of another device": (
        "precision",
        "tf32",
        "datasets.mnist.precision: tf32; must be float32 or bfloat16 on device cpu",
    ),
    "loss otherwise": ("loss", "max", "datasets.mnist.loss: 'max'; must be 'mean' or 'sum'"),
    "no data set": ({"datasets": {}}, "datasets: {}; must have at least 1 item"),
    "unknown selection": (
        {"search_accounting": "best"},
        "search_accounting: 'best'; must be 'composition',",
    ),
    "unknown shape": (
        {"stopping_distribution": 0.5},
        "stopping_distribution: 0.5; must be 'logarithmic', 'geometric' or",
    ),
    "no method": ({"methods": {}}, "methods: {}; must have at least 1 item"),
    "epsilon zero": ("epsilons", [0], "0; must be greater than 0"),
    "epsilon negative": (
        "epsilons",
        [3, -1],
        "datasets.mnist.epsilons.1: -1; must be greater than 0",
    ),
    "epsilon infinite": ("epsilons", [float("inf")], "epsilons.0"),
    "epsilon not a number": ("epsilons", [float("nan")], "epsilons.0"),
    "epsilon text": ("epsilons", ["three"], "valid number"),
    "epsilon true": ("epsilons", [True], "not true or false"),
    "no epsilon": ("epsilons", [], "at least 1 item"),
    "epsilon twice": ("epsilons", [3, 3.0], "each value may appear only once"),
    "delta zero": ({"delta": 0}, "delta: 0; must be greater than 0"),
    "delta one": ({"delta": 1}, "delta: 1; must be less than 1"),
    "batch size zero": ({"batch_size": 0}, "batch_size: 0; must be greater than or equal to 1"),
    "batch size half": ({"batch_size": 0.5}, "batch_size: 0.5; must be a valid integer"),
    "batch size too large": ({"batch_size": 60001}, "must be <= 60000"),
    "batch size text": ({"batch_size": "many"}, "batch_size: 'many'; must be a valid integer"),
    "empty grid": ({"values_per_axis": []}, "values_per_axis: []; must have at least 1 item"),
    "grid of zero": (
        {"values_per_axis": [0]},
        "values_per_axis.0: 0; must be greater than or equal to 1",
    ),
    "grid turned round": ({"grid": {"log10_threshold": [2, -2]}}, "low < high"),
    "quantile one": ({"grid": {"quantiles": [1.0]}}, "grid.quantiles.0: 1.0; must be less than 1"),
    "no quantile": ({"grid": {"quantiles": []}}, "grid.quantiles: []; must have at least 1"),
    "a seed that no row holds": (
        {"seeds": [2**63]},
        "seeds.0: 9223372036854775808; must be less than 9223372036854776000",
    ),
    "a name that no plan has": ({"name": "a" * 151}, "'; must have at most 150"),
    "a setting of true": (
        {"methods": {"online": {"threshold_rate": True}}},
        "methods.online.threshold_rate: True; must be a number, not true or",
    ),
    "no seed": ({"seeds": []}, "seeds: []; must have at least 1 item"),
    "momentum one": ({"momentum": 1}, "momentum: 1; must be less than 1"),
    "momentum negative": ({"momentum": -0.1}, "momentum: -0.1; must be greater than or equal to 0"),
    "momentum text": ({"momentum": "heavy"}, "momentum: 'heavy'; must be a valid number"),
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


def test_a_configuration_survives_its_json(base) -> None:
    config = parse_config(base, "x")
    assert StudyConfig(**json.loads(config.model_dump_json())) == config


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("seeds", [0, 0]),
        ("seeds", [3, 1, 3]),
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
