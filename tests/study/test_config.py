"""The configuration: what is shipped is valid and the paper's; what is wrong is named."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from oso_dp.errors import OsoError
from oso_dp.methods import PAPER_METHODS, find_method, method_names
from oso_dp.paper.tables import PAPER_EPOCHS, SEEDS, paper_results, paper_setups
from oso_dp.study.config import GridSection, StudyConfig, load_config, parse_config
from oso_dp.study.config_schema import json_schema

CONFIG = Path(__file__).parents[2] / "config"
SHIPPED = [
    path.relative_to(CONFIG).with_suffix("").as_posix()
    for path in CONFIG.rglob("*.yaml")
    if path.stem != "pate" and not path.is_symlink()
]


@pytest.mark.parametrize("name", SHIPPED)
def test_load_config_accepts_shipped_files(repo, name) -> None:
    assert load_config(repo / "config" / f"{name}.yaml").name == (
        name.rpartition("/")[2].replace(".", "")
    )


def test_json_schema_matches_stored_file(repo) -> None:
    stored = json.loads((repo / "workflow/schemas/config.schema.json").read_text())
    assert stored == json_schema()


def test_config_readme_documents_all_keys(repo) -> None:
    text = (repo / "config/README.md").read_text()
    schema = json_schema()
    keys = [*schema["properties"]]
    for section in schema["$defs"].values():
        keys += section["properties"]
    missing = [key for key in keys if f"`{key}`" not in text]
    assert not missing


BAD = {
    "unknown key": ({"epsilom": 3}, "epsilom: unknown key"),
    "unknown method": ({"methods": {"onlin": {}}}, "methods.onlin: unknown method; did you mean"),
    "no method at all like it": (
        {"methods": {"sgd": {}}},
        "methods.sgd: unknown method; must be one of adam_wosm, ",
    ),
    "misspelt setting": (
        {"methods": {"online": {"treshold_rate": 1}}},
        "methods.online.treshold_rate: unknown key; did you mean threshold_rate?",
    ),
    "key of another study": ({"teachers": 3}, "teachers: unknown key; of a study of PATE: "),
    "unknown method setting": (
        {"methods": {"online": {"rho": 1}}},
        "methods.online.rho: unknown key; must be one of initial_threshold, ",
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
    "precision of another device": (
        "precision",
        "tf32",
        "datasets.mnist.precision: tf32; must be float32 or bfloat16 on device cpu",
    ),
    "epsilon zero": ("epsilons", [0], "0; must be greater than 0"),
    "epsilon infinite": ("epsilons", [float("inf")], "epsilons.0"),
    "epsilon true": ("epsilons", [True], "not true or false"),
    "epsilon twice": ("epsilons", [3, 3.0], "each value may appear only once"),
    "delta one": ({"delta": 1}, "delta: 1; must be less than 1"),
    "batch size as a power of ten": (
        {"batch_size": "6e2"},
        "batch_size: '6e2'; must be an integer in decimal digits",
    ),
    "delta as a word": ({"delta": "tiny"}, "delta: 'tiny'; must be a number"),
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
    "device": ({"device": "tpu"}, "device: 'tpu'; must match pattern '^(cpu|cuda)$'"),
}


@pytest.mark.parametrize("case", BAD)
def test_parse_config_bad_values_raise(base, case) -> None:
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


def test_parse_config_missing_key_raises(base) -> None:
    del base["seeds"]
    with pytest.raises(OsoError, match="seeds: missing"):
        parse_config(base, "my.yaml")


@pytest.mark.parametrize("text", ["- 1", "just text", "", "a: [1"])
def test_load_config_invalid_file_raises(tmp_path, text) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(OsoError, match=r"x\.yaml"):
        load_config(path)


def test_parse_config_accepts_numeric_text(base) -> None:
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
def test_parse_config_duplicate_values_raise(base, key, values) -> None:
    with pytest.raises(OsoError, match=rf"^x: {key}.*; each value may appear only once"):
        parse_config({**base, key: values}, "x")


def test_parse_config_auto_dog_schedule_raises(repo) -> None:
    values = load_config(repo / "config/extensions/defaults_averaged.yaml").model_dump()
    assert "auto_dog" in values["methods"]
    parse_config(values, "x")
    with pytest.raises(OsoError, match=r"methods\.auto_dog: does not support schedules"):
        parse_config({**values, "schedule": "linear"}, "x")
    others = {name: given for name, given in values["methods"].items() if name != "auto_dog"}
    parse_config({**values, "schedule": "linear", "methods": others}, "x")


def test_config_readme_lists_all_files(repo) -> None:
    text = (repo / "config/README.md").read_text(encoding="utf-8")
    files = [
        path
        for path in (repo / "config").rglob("*.yaml")
        if not path.is_symlink() and path.stem != "pate"
    ]
    names = [str(path.relative_to(repo / "config")) for path in files]
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []


def test_config_readme_method_options_match(repo) -> None:
    text = (repo / "config/README.md").read_text(encoding="utf-8")
    table = text.partition("Options of the methods")[2].partition("\n## ")[0]
    lines = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    said = {name: cell for names, cell in lines for name in re.findall(r"`(\w+)`", names)}
    assert sorted(said) == method_names()
    for name, cell in said.items():
        names = {one.name: one.default for one in fields(find_method(name).Options)}
        if not names:
            assert cell.strip() == "none"
        shared = re.findall(r"those of `(\w+)`", cell)
        told = {**_told(cell)}
        for other in shared:
            told = {**_told(said[other]), **told}
        assert set(told) == set(names), name
        for setting, default in told.items():
            if isinstance(default, float) and "fixed at 0" not in cell:
                assert default == names[setting], (name, setting)


def _told(cell: str) -> dict[str, float | None]:
    """Each setting, with its default where a number stands for it."""
    parts = re.findall(r"`(\w+)`([^(`]*\(([^)`]*)\)| \()", cell)
    return {
        name: float(default) if re.fullmatch(r"[\d.e-]+", default) else None
        for name, _, default in parts
    }


SMALL = {"demo", "smoke"}  # on digits of their own, with ranges of their own
SHORT = {"one_epoch"}
USERS = {"users", "users_falling", "users_local_rate", "users_far_start"}
USERS |= {"users_cnn", "users_cnn_no_dp", "users_paper_rates"}


@pytest.fixture(scope="module")
def shipped(repo) -> dict[str, StudyConfig]:
    found = (
        path
        for path in (repo / "config").rglob("*.yaml")
        if not path.is_symlink() and path.stem != "pate"
    )
    return {path.stem: load_config(path) for path in found}


def budgets(dataset: str) -> list[float]:
    """That the paper has on a data set, or on the whole of which we have a part."""
    paper = paper_results().dropna(subset="epsilon")
    of_it = paper[paper["dataset"] == dataset.removesuffix("_partial")]
    return sorted(of_it["epsilon"].unique())


def test_paper_config_matches_tables(shipped) -> None:
    config, paper = shipped["paper"], paper_results()
    assert set(config.methods) == set(PAPER_METHODS) == set(paper["method"])
    assert config.values_per_axis == sorted(paper["k"].unique())
    assert len(config.seeds) == SEEDS
    assert config.epochs == PAPER_EPOCHS
    assert {config.batch_size} == set(paper_setups()["batch_size"])
    assert set(config.datasets) == set(paper["dataset"])
    for name, section in config.datasets.items():
        assert section.epsilons == budgets(name), name


def test_default_config_equals_paper_config(repo) -> None:
    snakefile = (repo / "Snakefile").read_text()
    assert snakefile.count('configfile: "config/paper.yaml"') == 1
    usual = load_config(repo / "config/config.yaml")
    assert usual == load_config(repo / "config/paper.yaml")


def test_shipped_configs_share_paper_values(shipped) -> None:
    """Shipped studies have the paper's delta, batch size, length and budgets."""
    paper = shipped["paper"]
    for name, config in shipped.items():
        if name not in USERS:
            assert config.delta == paper.delta, name
        assert config.device == "cpu", name
        assert config.randomness == "seeded", name
        assert not config.final_activation, name
        assert config.seeds == [*range(len(config.seeds))], name
        assert len(config.seeds) <= SEEDS, name
        if name in USERS:
            continue
        assert all(settings == {} for settings in config.methods.values()), name
        if name in SMALL:
            continue
        assert config.batch_size == paper.batch_size, name
        assert config.epochs == (1 if name in SHORT else paper.epochs), name
        assert config.evaluate_every == paper.evaluate_every, name
        assert config.values_per_axis == [1] or set(config.values_per_axis) <= {5, 7, 9}, name
        if config.values_per_axis != [1]:
            assert config.grid == GridSection(), name
        if name == "pate_peers":  # at PATE's budgets
            continue
        for dataset, section in config.datasets.items():
            assert set(section.epsilons) <= set(budgets(dataset)), (name, dataset)


def test_shipped_configs_separate_result_folders(shipped) -> None:
    models = {name: one.model for name, one in shipped["paper"].datasets.items()}
    models["ag_news_partial"] = models["ag_news"]
    for name, config in shipped.items():
        as_read = config.momentum == 0.9 and all(
            (section.model, section.loss, section.oov_words) == (models.get(key), "mean", "zeros")
            for key, section in config.datasets.items()
        )
        by_user = {section.unit for section in config.datasets.values()} == {"user"}
        assert by_user == (name in USERS), name
        if config.results == "results":
            assert as_read, name
        else:
            assert config.results.startswith("build/"), name
            assert config.report.startswith(("build/", "reports/")), name
    stores = [
        config.results
        for name, config in shipped.items()
        if config.results != "results" and name not in USERS
    ]
    assert len(set(stores)) == len(stores)
