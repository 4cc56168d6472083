"""`oso data`, and a data set of a user's own through every command."""

import stat

import pandas as pd
import pytest
from tests.commands import refused
from tests.planned_rows import rows_of

from oso_dp.results.collect import collect
from oso_dp.results.read import read_results
from oso_dp.results.write import write_table
from oso_dp.study.plan import read_plan

STUDY = """\
name: own
results: store
report: report
datasets:
  patients: {model: own, epsilons: [8], seconds_per_step: 0.01}
methods: {online: {}, fixed_threshold: {}}
values_per_axis: [2]
seeds: [0, 1]
batch_size: 20
epochs: 2
evaluate_every: 3
randomness: system
"""
NAMES = ["patients.online.k2.eps8", "patients.fixed_threshold.k2.eps8"]


@pytest.fixture
def place(offer, tmp_path, monkeypatch):
    offer()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(STUDY)
    return tmp_path


def planned(oso):
    done = oso("plan", "--config", "study.yaml", "--output", "plan.json")
    assert done[0] == 0
    return done[1]


def prepare(oso):
    return oso("data", "patients", "--data-version", "1", "--output", "data.npz")


def train(oso, cohort):
    where = [
        "--data",
        "data.npz",
        "--output",
        f"parts/{cohort}",
        "--store",
        "store",
        "--allow-missing-store",
    ]
    return oso("train", "--plan", "plan.json", "--cohort", cohort, *where)


def test_data_private_output_restricted_to_owner(oso, offer, place) -> None:
    assert prepare(oso)[0] == 0
    assert stat.S_IMODE((place / "data.npz").stat().st_mode) == 0o600
    assert oso("data", "glyphs", "--output", "glyphs.npz")[0] == 0
    (place / "other").touch()
    modes = [(place / name).stat().st_mode for name in ("glyphs.npz", "other")]
    assert modes[0] == modes[1]


def test_user_dataset_plan_to_report_succeeds(oso, place) -> None:
    assert len(STUDY.splitlines()) <= 13
    said = planned(oso)
    assert "patients, version 1: (8, 1e-05)-differential privacy" in said
    assert "Composed: 12 runs: every method, grid point and seed" in said
    assert prepare(oso)[0] == 0
    for cohort in NAMES:
        assert train(oso, cohort)[0] == 0
    parts = [f"parts/{cohort}" for cohort in NAMES]
    assert oso("collect", *parts, "--store", "store", "--plan", "plan.json")[0] == 0
    runs = read_results(place / "store").runs
    assert len(runs) == 12
    assert runs["wall_seconds"].isna().all()  # times tell of the data
    status, table, _ = oso("account", "store", "--output", "accounts.csv")
    assert status == 0
    assert "Composed: 12 runs, of which 12 are stored" in table
    accounts = pd.read_csv("accounts.csv")
    assert accounts[["grid", "runs", "stored"]].values.tolist() == [["patients.total.eps8", 12, 12]]
    assert 7.99 < accounts["rdp"][0] <= 8
    assert oso("report", "store", "--output", "report", "--plan", "plan.json")[0] == 0
    page = (place / "report/index.html").read_text()
    for part in ("Privacy guarantee", "patients, version 1", "Not protected: the test data"):
        assert part in page
    assert oso("summary", "store")[0] == 0
    # The study's own noise does not count what another one of these data has cost.
    (place / "study.yaml").write_text(STUDY.replace("[0, 1]", "[0, 1, 2]"))
    again = oso("plan", "--config", "study.yaml", "--output", "plan.json")
    refused(again, "has 12 runs on patients that are not of this study")


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"version": "'2'"}, "version '1' required, but '2' is installed"),
        ({"model": "lambda: nn.Linear(5, 2)"}, "model: fails on three examples of shape [4]"),
        (
            {"model": "lambda: nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))"},
            "is a BatchNorm1d",
        ),
        (
            {"model": "lambda: nn.Sequential(nn.Linear(4, 2), nn.Embedding(2, 2, max_norm=1.0))"},
            "is an Embedding with max_norm",
        ),
    ],
)
def test_data_untrainable_dataset_rejected(offer, oso, place, declared, message) -> None:
    offer(**declared)
    refused(prepare(oso), message)
    assert not (place / "data.npz").exists()


@pytest.mark.parametrize("declared", [{"version": "'2'"}, {"examples": "50"}, {"public": "True"}])
def test_train_dataset_changed_since_plan_rejected(offer, oso, place, declared) -> None:
    planned(oso)
    assert prepare(oso)[0] == 0
    offer(**declared)
    refused(train(oso, NAMES[0]), "patients")
    assert not (place / "parts").exists() or not list(place.rglob("runs.parquet"))


def test_train_finished_job_not_repeated(oso, place) -> None:
    """Stored rows are not overwritten, even where the job's own record is missing."""
    planned(oso)
    assert prepare(oso)[0] == 0
    assert train(oso, NAMES[0])[0] == 0
    runs = next(place.rglob("runs.parquet"))
    before = (runs.parent / "evaluations.parquet").read_bytes()
    assert train(oso, NAMES[0])[0] == 0
    assert (runs.parent / "evaluations.parquet").read_bytes() == before
    (runs.parent / "progress/rows.pt").unlink()
    refused(train(oso, NAMES[0]), "has 4 runs that this job does not resume")
    assert (runs.parent / "evaluations.parquet").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ("name: own", "name: other"),
            "has 4 runs of this study on patients, of a study of another",
        ),
        (("epsilons: [8]", "epsilons: [4]"), "has 4 runs on patients that are not of this study"),
        (("{online: {}, fixed", "{fixed"), "has 4 runs on patients that are not of this study"),
        (("", ""), None),
    ],
    ids=["name", "epsilon", "methods", "nothing"],
)
def test_plan_killed_job_other_study_rejected(change, said, oso, place) -> None:
    """What a killed job has finished is spent, also if another study would train it again."""
    planned(oso)
    assert prepare(oso)[0] == 0
    shard = place / f"build/own/parts/{NAMES[0]}/shard0"
    command = ("train", "--plan", "plan.json", "--cohort", NAMES[0], "--data", "data.npz")
    refused(oso(*command, "--output", str(shard)), "--store: missing; must be the results store")
    command += ("--store", "store", "--allow-missing-store")
    assert oso(*command, "--output", str(shard))[0] == 0
    before = (shard / "runs.parquet").read_bytes()
    for name in ("runs", "evaluations"):  # a job is killed before it writes them
        (shard / f"{name}.parquet").unlink()
    (place / "study.yaml").write_text(STUDY.replace(*change))
    again = oso("plan", "--config", "study.yaml", "--output", "plan.json")
    if said is not None:
        refused(again, said)
        return
    assert again[0] == 0
    assert oso(*command, "--output", str(shard))[0] == 0
    assert (shard / "runs.parquet").read_bytes() == before


def test_train_random_frozen_weights_rejected(offer, oso, place) -> None:
    layers = "nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 2))"
    offer(model=f"lambda: {layers}")
    planned(oso)
    assert prepare(oso)[0] == 0
    refused(train(oso, NAMES[0]), "0.weight is not trained and differs between calls")


def test_diagnose_private_dataset_rejected(oso, place) -> None:
    planned(oso)
    assert prepare(oso)[0] == 0
    for command in ("cosine", "signs"):
        where = ["--cohort", NAMES[0], "--data", "data.npz", "--output", "out.csv"]
        refused(
            oso("diagnose", command, "--plan", "plan.json", *where),
            "'patients' is not public; must be public",
        )


def test_train_store_of_other_study_rejected(oso, place) -> None:
    planned(oso)
    (place / "study.yaml").write_text(STUDY.replace("[0, 1]", "[0, 1, 2]"))
    assert oso("plan", "--config", "study.yaml", "--output", "other.json")[0] == 0
    for kind, rows in rows_of(read_plan(place / "plan.json")).items():
        write_table(place / "part" / f"{kind}.parquet", kind, rows)
    collect([place / "part"], place / "store")
    cohort = "patients.online.k2.eps8"
    where = ("--cohort", cohort, "--data", "no.npz", "--output", "new", "--store", "store")
    refused(oso("train", "--plan", "other.json", *where), "has 12 runs on patients that are not")
    refused(oso("train", "--plan", "plan.json", *where), "no.npz")  # it came as far as the data
    assert not (place / "new/runs.parquet").exists()


USERS = STUDY.replace(
    "seconds_per_step: 0.01}", "seconds_per_step: 0.01, unit: user, local: {batch_size: 2}}"
).replace("batch_size: 20", "batch_size: 8")
# Thirty users of 60 rows, of which only the number is public.
OWNED = """lambda: oso_dp.Arrays(
    x[:60], y[:60], x[60:], y[60:], np.minimum(np.arange(60), 29) if {0} else None
)"""


def test_user_level_study_states_protected_users(offer, oso, place) -> None:
    offer(users="30", examples="1000", load=OWNED.format(1))
    (place / "study.yaml").write_text(USERS)
    promise = planned(oso)
    assert "Protected: one user: all rows of the training data with one id." in promise
    assert "of 30 users" in promise
    assert "1000" not in promise
    assert prepare(oso)[0] == 0
    for name in NAMES:
        assert train(oso, name)[0] == 0
    collect([place / "parts" / name for name in NAMES], place / "store")
    runs = read_results(place / "store").runs
    assert set(runs["unit"]) == {"user"}
    assert set(runs["examples"]) == {30}
    assert runs["wall_seconds"].isna().all()
    assert set(runs["local"]) == {"batch_size=2, epochs=1, learning_rate=1.0"}
    code, text = oso("account", "store", "--plan", "plan.json")[:2]
    assert code == 0
    assert "patients.total.eps8" in text
    assert oso("report", "--results", "store", "--output", "report")[0] == 0
    page = (place / "report/index.html").read_text(encoding="utf-8")
    assert "one user: all rows of the training data with one id" in page


def test_data_mismatched_users_rejected(offer, oso, place) -> None:
    (place / "study.yaml").write_text(USERS)
    refused(oso("plan", "--config", "study.yaml"), "unit: user; patients does not say whose the")
    offer(users="31", load=OWNED.format(1))
    planned(oso)
    refused(prepare(oso), "users: 30; declared as 31")
    offer(users="30", load=OWNED.format(0))
    refused(prepare(oso), "users: None; declared as 30")
