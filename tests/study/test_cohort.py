"""Cohorts and identities: the paper's counts; no two runs share a name, thus no noise."""

import pytest

from oso_dp.errors import OsoError
from oso_dp.paper.best_points import best_points
from oso_dp.study.config import load_config, parse_config
from oso_dp.study.expand import make_cohorts
from oso_dp.study.workload import estimate_workload

IDENTITIES = {
    "fixed_quantile": "ec413b9e8d4c88725dd0",
    "no_dp": "8aa059bba191ce73a099",
    "fixed_threshold": "16087975e4b2dea6b4e1",
    "online": "8a899d2bd8e3ae96da12",
    "adam_wosm": "1f5aefa25ec7a5c4572b",
}

MNIST = {"model": "cnn", "epsilons": [3], "seconds_per_step": 1}
GLYPHS = {**MNIST, "model": "small_cnn"}


def all_ids(config) -> list[str]:
    return [run.run_id for cohort in make_cohorts(config) for run in cohort.runs]


def test_estimate_workload_matches_paper_size(repo) -> None:
    config = load_config(repo / "config/paper.yaml")
    ahead = estimate_workload(config, make_cohorts(config), set())
    assert (ahead.private.runs, ahead.private.cohorts) == (18_120, 144)
    assert (ahead.plain.runs, ahead.plain.cohorts) == (315, 9)
    assert "18,120 private runs in 144 cohorts and 315 NoDP runs in 9" in str(ahead)


def test_make_cohorts_best_points_cover_paper(repo) -> None:
    config = load_config(repo / "config/paper/best_points.yaml")
    cells = {(c.dataset, c.method, c.k, c.epsilon) for c in make_cohorts(config)}
    assert cells == {(p.dataset, p.method, p.k, p.epsilon) for p in best_points()}


def test_run_id_unique_and_reproducible(base) -> None:
    ids = all_ids(parse_config(base, "x"))
    assert len(set(ids)) == len(ids)
    assert ids == all_ids(parse_config(base, "x"))


def test_run_id_matches_stored_values(repo) -> None:
    config = load_config(repo / "config/headline.yaml")
    stored = {c.method: c.runs[0].run_id for c in make_cohorts(config) if c.dataset == "mnist"}
    assert stored == IDENTITIES


@pytest.mark.parametrize(
    "change",
    [
        {"delta": 1e-6},
        {"batch_size": 256},
        {"momentum": 0.0},
        {"search_accounting": "random_stopping"},
        {"final_activation": True},
        {"randomness": "system"},
        {"seeds": [2, 3]},
        {"methods": {"online": {"query_noise_ratio": 8.0}}},
        {"values_per_axis": [7]},
        {"datasets": {"mnist": {"model": "cnn", "epsilons": [4], "seconds_per_step": 1}}},
    ],
)
def test_run_id_depends_on_options(base, change) -> None:
    base = {**base, "methods": {"online": {}}, "values_per_axis": [9]}
    base["datasets"] = {"mnist": {"model": "cnn", "epsilons": [3], "seconds_per_step": 1}}
    assert not set(all_ids(parse_config(base, "x"))) & set(
        all_ids(parse_config({**base, **change}, "x"))
    )


@pytest.mark.parametrize(
    ("dataset", "section", "change"),
    [
        ("fashion_mnist", {"model": "autoencoder"}, {"loss": "sum"}),
        ("ag_news", {"model": "bag_of_words"}, {"model": "bag_of_words_25"}),
        ("ag_news", {"model": "bag_of_words"}, {"oov_words": "skipped"}),
        ("mnist", {"model": "cnn"}, {"precision": "bfloat16"}),
    ],
)
def test_run_id_depends_on_dataset_options(base, dataset, section, change) -> None:
    def ids(**more):
        chosen = {"epsilons": [3], "seconds_per_step": 1, **section, **more}
        return set(all_ids(parse_config({**base, "datasets": {dataset: chosen}}, "x")))

    assert not ids() & ids(**change)
    assert ids() == ids(loss="mean", oov_words="zeros", precision="float32")


def test_make_cohorts_random_stopping_shares_nonprivate(base) -> None:
    composed = make_cohorts(parse_config(base, "x"))
    stopping = make_cohorts(parse_config({**base, "search_accounting": "random_stopping"}, "x"))
    for one, other in zip(composed, stopping, strict=True):
        assert (one.runs == other.runs) == (one.name == other.name) == (not one.is_private)
        assert one.grid_runs == other.grid_runs
    assert "mnist.online.k9.eps3.random_stopping" in {cohort.name for cohort in stopping}


def test_run_id_ignores_execution_options(base) -> None:
    other = {**base, "runs_per_job": 3, "parallel_runs": 4, "threads_per_job": 2, "results": "r"}
    assert all_ids(parse_config(base, "x")) == all_ids(parse_config(other, "x"))


def test_run_id_differs_between_grid_sizes(base) -> None:
    """A point of several grid sizes has another run_id in each of them."""
    ids = {}
    for cohort in make_cohorts(parse_config(base, "x")):
        for run in cohort.runs:
            ids.setdefault((cohort.method, cohort.epsilon, run.learning_rate, run.seed), []).append(
                run.run_id
            )
    assert any(len(group) > 1 for group in ids.values())
    assert all(len(set(group)) == len(group) for group in ids.values())


def test_shards_partition_runs(base) -> None:
    for cohort in make_cohorts(parse_config(base, "x")):
        for size in (1, 4, 1000):
            shards = cohort.shards(size)
            assert [run for shard in shards for run in shard] == list(cohort.runs)
            assert all(0 < len(shard) <= size for shard in shards)


@pytest.mark.parametrize(
    ("batch_size", "steps"), [(512, 1172), (530, 1133), (599, 1002), (600, 1000), (601, 999)]
)
def test_make_cohorts_steps_rounded_up(base, batch_size, steps) -> None:
    """The number of steps is 10 * 60,000 / batch_size, rounded up."""
    assert make_cohorts(parse_config({**base, "batch_size": batch_size}, "x"))[0].steps == steps


class TestPaperBest:
    def test_runs_subset_of_full_study(self, base) -> None:
        full = set(all_ids(parse_config(base, "x")))
        best = all_ids(parse_config({**base, "grid_points": "paper_best"}, "x"))
        assert set(best) < full
        assert best

    def test_grid_runs_count_whole_grid(self, base) -> None:
        by_name = {
            c.name: c
            for c in make_cohorts(parse_config({**base, "grid_points": "paper_best"}, "x"))
        }
        cohort = by_name["mnist.fixed_threshold.k9.eps9"]
        assert cohort.grid_runs == 81
        assert {(run.learning_rate, run.threshold) for run in cohort.runs} == {(0.00316228, 10.0)}

    def test_other_ranges_raise(self, base) -> None:
        base.update(grid_points="paper_best", grid={"log10_learning_rate": [-2, 1]})
        with pytest.raises(OsoError, match="not a point of the grid"):
            make_cohorts(parse_config(base, "x"))

    @pytest.mark.parametrize(
        ("key", "value", "named"),
        [
            ("values_per_axis", [5, 6], "values_per_axis: 6"),
            ("methods", {"online": {}, "psac": {}}, "methods: psac"),
            ("datasets", {"glyphs": GLYPHS}, "datasets: glyphs"),
            ("datasets", {"mnist": {**MNIST, "epsilons": [3, 4]}}, r"datasets\.mnist\.epsilons: 4"),
        ],
    )
    def test_unpublished_values_raise(self, base, key, value, named) -> None:
        base.update({"grid_points": "paper_best", "values_per_axis": [5], key: value})
        with pytest.raises(OsoError, match=f"^{named}; the paper reports no best point"):
            make_cohorts(parse_config(base, "x"))


def test_make_cohorts_indistinct_values_raise(base) -> None:
    base.update(methods={"online": {}}, values_per_axis=[1000])
    base["grid"] = {"log10_learning_rate": [0, 1e-4]}
    with pytest.raises(OsoError, match="values_per_axis: 1000; too many"):
        make_cohorts(parse_config(base, "x"))


@pytest.mark.parametrize("k", [1, 9, 12, 40])
def test_make_cohorts_grid_runs_match_size(base, k: int) -> None:
    """`grid_runs` is the size of the grid, also where it exceeds the paper's."""
    base["methods"].pop("no_dp")
    for cohort in make_cohorts(parse_config({**base, "values_per_axis": [k]}, "x")):
        size = k if cohort.method == "online" else k * k
        assert cohort.columns["grid_runs"] == cohort.grid_runs == size


@pytest.mark.parametrize("more", [1e-7, 1e-9, 1e-11, 1e-13])
def test_make_cohorts_close_epsilons_named_apart(base, more: float) -> None:
    base["datasets"]["mnist"]["epsilons"] = [1.0, 1.0 + more]
    names = [cohort.name for cohort in make_cohorts(parse_config(base, "x"))]
    assert len(set(names)) == len(names)
