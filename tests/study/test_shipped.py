"""What the shipped configurations ask for: the paper's numbers, but where their name says else."""

import pytest

from oso_dp.methods import PAPER_METHODS
from oso_dp.paper.tables import PAPER_EPOCHS, SEEDS, paper_results, paper_setups
from oso_dp.study.config import GridSection, StudyConfig, load_config
from oso_dp.study.default_points import DEFAULTS
from oso_dp.study.expand import make_cohorts

SMALL = {"demo", "smoke"}  # on digits of their own, with ranges of their own
SHORT = {"one_epoch"}


@pytest.fixture(scope="module")
def shipped(repo) -> dict[str, StudyConfig]:
    found = (path for path in (repo / "config").rglob("*.yaml") if not path.is_symlink())
    return {path.stem: load_config(path) for path in found}


def budgets(dataset: str) -> list[float]:
    """That the paper has on a data set, or on the whole of which we have a part."""
    paper = paper_results().dropna(subset="epsilon")
    of_it = paper[paper["dataset"] == dataset.removesuffix("_partial")]
    return sorted(of_it["epsilon"].unique())


def test_the_papers_study_is_what_its_tables_have(shipped) -> None:
    config, paper = shipped["paper"], paper_results()
    assert set(config.methods) == set(PAPER_METHODS) == set(paper["method"])
    assert config.values_per_axis == sorted(paper["k"].unique())
    assert len(config.seeds) == SEEDS
    assert config.epochs == PAPER_EPOCHS
    assert {config.batch_size} == set(paper_setups()["batch_size"])
    assert set(config.datasets) == set(paper["dataset"])
    for name, section in config.datasets.items():
        assert section.epsilons == budgets(name), name


def test_whoever_gives_no_path_runs_the_papers_study(repo) -> None:
    snakefile = (repo / "Snakefile").read_text()
    assert snakefile.count('configfile: "config/paper.yaml"') == 1
    usual = load_config(repo / "config/config.yaml")
    assert usual == load_config(repo / "config/paper.yaml")


def test_every_other_study_has_the_papers_numbers_too(shipped) -> None:
    """Rows of another delta, batch size or length would stand beside the paper's unnoticed."""
    paper = shipped["paper"]
    for name, config in shipped.items():
        assert config.delta == paper.delta, name
        assert config.device == "cpu", name
        assert config.randomness == "seeded", name
        assert not config.final_activation, name
        assert config.seeds == [*range(len(config.seeds))], name
        assert len(config.seeds) <= SEEDS, name
        assert all(settings == {} for settings in config.methods.values()), name
        if name in SMALL:
            continue
        assert config.batch_size == paper.batch_size, name
        assert config.epochs == (1 if name in SHORT else paper.epochs), name
        assert config.evaluate_every == paper.evaluate_every, name
        assert config.values_per_axis == [1] or set(config.values_per_axis) <= {5, 7, 9}, name
        if config.values_per_axis != [1]:
            assert config.grid == GridSection(), name
        for dataset, section in config.datasets.items():
            assert set(section.epsilons) <= set(budgets(dataset)), (name, dataset)


def test_a_studys_name_says_what_it_has_otherwise(shipped) -> None:
    for name, config in shipped.items():
        momentum = {"momentum_0": 0.0, "momentum_0.5": 0.5}.get(name, 0.9)
        assert config.momentum == momentum, name
        assert (config.schedule == "linear") == ("linear_decay" in name), name
        assert (config.averaging > 0) == ("averaged" in name), name
        assert (config.search_accounting == "random_stopping") == ("random_stopping" in name), name
        shape = next((one for one in ("geometric", "poisson") if one in name), "logarithmic")
        assert config.stopping_distribution == shape, name
        alone = name.startswith(("defaults", "untuned"))
        assert (config.search_accounting == "single") == alone, name
        assert (config.search_accounting == "linear_scaling") == ("linear_scaling" in name), name


def test_the_results_hold_one_reading_of_the_paper_alone(shipped) -> None:
    models = {name: one.model for name, one in shipped["paper"].datasets.items()}
    models["ag_news_partial"] = models["ag_news"]
    for name, config in shipped.items():
        as_read = config.momentum == 0.9 and all(
            (section.model, section.loss, section.oov_words) == (models.get(key), "mean", "zeros")
            for key, section in config.datasets.items()
        )
        if config.results == "results":
            assert as_read, name
        else:
            assert config.results.startswith("build/"), name
            assert config.report.startswith(("build/", "reports/")), name
    stores = [config.results for config in shipped.values() if config.results != "results"]
    assert len(set(stores)) == len(stores)


@pytest.mark.parametrize("name", ["defaults", "defaults_averaged", "defaults_linear_decay"])
def test_a_study_of_defaults_starts_from_them(shipped, name: str) -> None:
    config = shipped[name]
    laid = {}
    if config.schedule != "constant":
        laid["schedule"] = config.schedule
    if config.averaging:
        laid["averaging"] = config.averaging
    meant = {one.method: one.point for one in DEFAULTS if dict(one.variant) == laid}
    assert set(config.methods) <= set(meant)
    for cohort in make_cohorts(config):
        assert cohort.grid_runs == 1
        point = meant[cohort.method]
        for run in cohort.runs:
            assert {axis: getattr(run, axis) for axis in point} == pytest.approx(point, rel=1e-6)
