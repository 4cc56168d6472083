"""A job goes on from a checkpoint of these very data and choices, and from no other."""

from dataclasses import replace

import numpy as np
import pytest
from tests.training.test_job import study

from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger
from oso_dp.training import job
from oso_dp.training.evaluate import Outcome
from oso_dp.training.job import check_not_finished_beside, make_task, run_job

PARTS = ("train_inputs", "train_targets", "test_inputs", "test_targets")


@pytest.fixture(scope="module")
def begun(glyphs, tmp_path_factory):
    """A folder in which one run of the study was trained to its end."""
    folder = tmp_path_factory.mktemp("job")
    cohort = study()
    run_job(cohort, cohort.runs[:1], glyphs, folder, parallel_runs=2)
    return folder


def first_step(begun, tmp_path, arrays, cohort=None, runs=None):
    """Where a call in a copy of the folder begins; None: nothing was left to do."""
    for path in begun.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    cohort = cohort or study()
    steps: list[int] = []

    class EnoughError(Exception):
        pass

    def note(done: int, step: int) -> None:
        steps.append(step)
        raise EnoughError

    try:
        run_job(
            cohort,
            runs or cohort.runs[:1],
            arrays,
            tmp_path,
            parallel_runs=2,
            on_progress=note,
        )
    except EnoughError:
        return steps[0]
    return None


def test_run_job_repeated_call_trains_nothing(begun, tmp_path, glyphs) -> None:
    assert first_step(begun, tmp_path, glyphs) is None


@pytest.mark.parametrize("place", ["first", "middle", "last"])
@pytest.mark.parametrize("part", PARTS)
def test_run_job_changed_value_restarts(part, place, begun, tmp_path, glyphs) -> None:
    """A changed value, also in labels or test data, must not continue a run on other data."""
    changed = getattr(glyphs, part).copy()
    values = changed.reshape(-1)  # a view
    at = {"first": 0, "middle": values.size // 2, "last": values.size - 1}[place]
    if changed.dtype.kind == "i":
        values[at] = (values[at] + 1) % 10
    else:
        values[at] = np.nextafter(values[at], np.float32(2))  # one bit
    assert not np.array_equal(changed, getattr(glyphs, part))
    assert first_step(begun, tmp_path, replace(glyphs, **{part: changed})) == 1


def test_run_job_reordered_examples_restart(begun, tmp_path, glyphs) -> None:
    """Batches are indices, so other examples would be drawn after a reordering."""
    turned = {part: getattr(glyphs, part)[::-1].copy() for part in PARTS[:2]}
    assert first_step(begun, tmp_path, replace(glyphs, **turned)) == 1


def test_run_job_longer_test_set_restarts(begun, tmp_path, glyphs) -> None:
    longer = {part: np.concatenate([getattr(glyphs, part)] * 2) for part in PARTS[2:]}
    assert first_step(begun, tmp_path, replace(glyphs, **longer)) == 1


@pytest.mark.parametrize("noise", [1.50001, 3.0])
def test_run_job_other_noise_restarts(noise, begun, tmp_path, glyphs) -> None:
    """The checkpoint of the run with other noise is kept, not marked as damaged."""
    assert first_step(begun, tmp_path, glyphs, study(noise=noise)) == 1
    assert not list(tmp_path.glob("*damaged*"))


@pytest.mark.parametrize(("kind", "left"), [("cpu", 0), ("meta", 1)])
def test_run_job_other_device_restarts(kind, left, begun, tmp_path, glyphs, monkeypatch) -> None:
    """An accelerator's noise differs from the host's, and a run must not mix both."""
    for path in begun.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    asked = []

    def train(task, runs, arrays, **options):
        asked.append(options["fingerprint"])
        return [Outcome(run.run_id, ledger="{}") for run in runs]

    monkeypatch.setattr(job, "train", train)
    cohort = study()
    run_job(cohort, cohort.runs[:1], glyphs, tmp_path, device=kind, parallel_runs=2)
    assert len(asked) == left


def test_run_job_other_runs_restart(begun, tmp_path, glyphs) -> None:
    cohort = study()
    assert first_step(begun, tmp_path, glyphs, runs=cohort.runs[1:2]) == 1
    cohort = study(methods={"online": {"threshold_rate": 0.1}})
    assert first_step(begun, tmp_path, glyphs, cohort) == 1
    assert not list(tmp_path.glob("*damaged*"))


@pytest.mark.parametrize("loss", ["mean", "sum"])
def test_make_task_loss_matches_config(loss: str) -> None:
    section = {"model": "autoencoder", "epsilons": [3], "seconds_per_step": 1, "loss": loss}
    assert make_task(study(datasets={"fashion_mnist": section})).loss == loss


def test_run_job_divergence_recorded_in_row(glyphs, tmp_path) -> None:
    """The row has the step of divergence and a ledger up to it; other rows stay the same."""
    cohort = study()
    wild = replace(cohort.runs[0], learning_rate=1e38)
    rows = run_job(cohort, [wild, cohort.runs[1]], glyphs, tmp_path, parallel_runs=2).runs
    assert [row["status"] for row in rows] == ["diverged", "finished"]
    assert 1 <= rows[0]["diverged_at"] <= cohort.steps
    assert Ledger.from_json(rows[0]["ledger"]).step_count == rows[0]["diverged_at"]
    assert rows[1]["diverged_at"] is None
    (alone,) = run_job(cohort, [cohort.runs[1]], glyphs, tmp_path / "alone", parallel_runs=1).runs
    assert {**rows[1], "wall_seconds": 0} == {**alone, "wall_seconds": 0}


@pytest.fixture
def released(glyphs, tmp_path, monkeypatch):
    """A cohort on private data, and a function that trains; its first run is done."""

    def train(task, runs, arrays, **options):
        return [Outcome(run.run_id, ledger="{}") for run in runs]

    monkeypatch.setattr(job, "train", train)
    cohort = replace(study(randomness="system"), budget_runs=2)

    def job_of(runs, **options):
        return run_job(cohort, runs, glyphs, tmp_path / "shard0/progress", **options)

    job_of(cohort.runs[:1])
    return cohort, job_of


@pytest.mark.parametrize("change", ["code", "runs", "device"])
def test_run_job_protected_runs_retraining_raises(change, released, tmp_path, monkeypatch) -> None:
    """Retraining would discard the rows of finished runs, and with them their spent epsilon."""
    cohort, job_of = released
    path = tmp_path / "shard0/progress/rows.pt"
    before = path.read_bytes()
    runs = cohort.runs[1:2] if change == "runs" else cohort.runs[:1]
    options = {"device": "meta"} if change == "device" else {}
    if change == "code":
        monkeypatch.setattr(job, "code_hash", lambda: "another")
    with pytest.raises(OsoError, match=r"rows\.pt: has 1 finished runs on private data"):
        job_of(runs, **options)
    assert path.read_bytes() == before
    done = job_of(runs, stored={cohort.runs[0].run_id}, **options)
    assert [row["run_id"] for row in done.runs] == [run.run_id for run in runs]


@pytest.mark.parametrize("keep", [0, 10, -1])
def test_run_job_damaged_protected_record_raises(keep, released, tmp_path) -> None:
    cohort, job_of = released
    path = tmp_path / "shard0/progress/rows.pt"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(
        OsoError, match=r"rows\.pt: damaged; it may have finished runs on private data"
    ):
        job_of(cohort.runs[:1])
    assert path.exists()


def test_check_not_finished_beside_duplicate_raises(released, tmp_path) -> None:
    cohort, _ = released
    done, left = (run.run_id for run in cohort.runs[:2])
    check_not_finished_beside({done}, tmp_path / "shard0")
    check_not_finished_beside({left}, tmp_path / "shard1")
    with pytest.raises(OsoError, match="shard0: has finished 1 of this job's runs on private data"):
        check_not_finished_beside({done, left}, tmp_path / "shard1")


@pytest.mark.parametrize("public", [False, True])
def test_run_job_second_training_differs(public: bool, released, monkeypatch, tmp_path, glyphs):
    """Rows of two trainings of a run differ on private data, whatever they released."""
    cohort, _ = released
    if public:
        cohort = replace(cohort, budget_runs=None, randomness="seeded")
    first, second = (
        run_job(cohort, cohort.runs[:1], glyphs, tmp_path / name).runs for name in ("a", "b")
    )
    assert (first == second) == public
    again = run_job(cohort, cohort.runs[:1], glyphs, tmp_path / "a").runs  # of a killed job
    assert again == first
