"""The command line: what is wrong is said in one line, with status 2 and no traceback."""

import json
import subprocess
import sys

import numpy as np
import pytest
from filelock import FileLock

from oso_dp.data.arrays import Arrays, save_arrays
from oso_dp.reporting.report_folder import ReportFolder
from oso_dp.results.read import read_results

SMOKE = "config/ci/smoke.yaml"


def train(oso, *other: object):
    return oso(
        "train",
        "--plan",
        "plan.json",
        "--cohort",
        "glyphs.online.k2.eps3",
        "--data",
        "glyphs.npz",
        "--output",
        "part",
        *other,
    )


def refused(outcome, *parts: str) -> None:
    status, _, error = outcome
    assert status == 2
    assert error.startswith("oso: error: ")
    assert error.count("\n") == 1
    for part in parts:
        assert part in error


def test_from_plan_to_store(oso, study) -> None:
    assert train(oso)[0] == 0
    status, output, _ = oso("collect", "part", "--store", "store")
    assert (status, output) == (0, "store: 2 runs, 12 evaluations\n")
    runs = read_results(study / "store").runs
    assert set(runs["status"]) == {"finished"}
    plan = json.loads((study / "plan.json").read_text())
    noise = {entry["name"]: entry["noise_multiplier"] for entry in plan["cohorts"]}
    assert set(runs["noise_multiplier"]) == {noise["glyphs.online.k2.eps3"]}
    status, output, _ = oso("summary", "--results", "store", "--report", "page.html")
    assert status == 0
    assert "page.html" in output


def test_a_part_has_one_writer(oso, study) -> None:
    """The other one is not disturbed, and where it ended, a killed one too, the part is trained."""
    (study / "part").mkdir()
    with FileLock(study / "part/.lock"):
        refused(
            train(oso),
            "--output: part; another job writes to it; wait for it",
            "another job writes to it",
        )
        assert [path.name for path in (study / "part").iterdir()] == [".lock"]
    assert (study / "part/.lock").exists()  # as a killed job leaves it
    assert train(oso)[0] == 0


def test_stored_runs_are_not_trained_again(oso, collected) -> None:
    assert len(read_results(collected / "part").runs) == 2
    assert train(oso, "--store", "store")[0] == 0
    assert len(read_results(collected / "part").runs) == 0
    assert oso("collect", "part", "--store", "store")[1] == "store: 2 runs, 12 evaluations\n"


def test_a_store_that_is_not_there_is_a_typing_error_unless_it_is_said_to_be_new(
    oso, collected
) -> None:
    (collected / "empty").mkdir()
    for name in ("stroe", "empty"):
        refused(
            train(oso, "--store", name),
            f"--store: {name}; no results store there",
            "--allow-missing-store",
        )
    refused(
        train(oso, "--store", "plan.json", "--allow-missing-store"),
        "--store: plan.json; no results store there",
    )
    assert len(read_results(collected / "part").runs) == 2
    assert train(oso, "--store", "store", "--allow-missing-store")[0] == 0
    assert len(read_results(collected / "part").runs) == 0
    assert train(oso, "--store", "to_come", "--allow-missing-store")[0] == 0
    assert len(read_results(collected / "part").runs) == 2


def test_a_plan_from_standard_input(oso, repo, tmp_path, monkeypatch) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO((repo / SMOKE).read_text()))
    assert oso("plan", "--config", "-", "--output", tmp_path / "plan.json")[0] == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("epochs: [1"))
    refused(oso("plan", "--config", "-"), "configuration", "not YAML")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (
            ["train", "--shard", "1"],
            [
                "--shard: 1; must be 0 to 0 for glyphs.online.k2.eps3",
                "--shard: 1; must be 0 to 0 for glyphs.online.k2.eps3",
            ],
        ),
        (["train", "--threads", "0"], ["--threads", "must be an integer >= 1"]),
        (["train", "--data", "none.npz"], ["none.npz"]),
        (["train", "--plan", "none.json"], ["none.json"]),
        (["train", "--cohort", "mnist.x"], ["mnist.x", "not in the plan"]),
        (["train", "--output", "plan.json/part"], ["plan.json"]),
    ],
)
def test_train_refuses(oso, study, arguments, parts) -> None:
    before = (study / "plan.json").read_bytes()
    refused(train(oso, *arguments[1:]), *parts)
    assert (study / "plan.json").read_bytes() == before
    assert not (study / "part" / "runs.parquet").exists()


def test_data_of_another_data_set_are_refused(oso, study) -> None:
    small = np.zeros((10, 1, 14, 14), dtype=np.float32)
    targets = np.zeros(10, dtype=np.int64)
    arrays = Arrays(small, targets, small, targets)
    save_arrays(study / "small.npz", arrays, {"dataset": "glyphs"})
    refused(train(oso, "--data", "small.npz"), "training examples: 10; must be 6000")
    save_arrays(study / "other.npz", arrays, {"dataset": "mnist"})
    refused(train(oso, "--data", "other.npz"), "other.npz", "data set 'mnist'; must be 'glyphs'")
    prepared = {"dataset": "glyphs", "preparation": {"words": 25}}
    save_arrays(study / "other.npz", arrays, prepared)
    refused(
        train(oso, "--data", "other.npz"), "other.npz: prepared with options {'words': 25}; must be"
    )


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["data", "cifar", "--output", "x.npz"], ["cifar", "mnist"]),
        (["data", "mnist", "--output", "x.npz", "--data-dir", "nowhere"], ["nowhere"]),
        (
            ["data", "glyphs", "--output", "x.npz", "--words", "15"],
            ["'glyphs': words, oov_words and vocabulary are for text only"],
        ),
        (["plan", "--config", "nowhere.yaml"], ["nowhere.yaml", "cannot be read"]),
        (["collect", "nowhere", "--store", "s"], ["nowhere/runs.parquet", "no such results"]),
        (["report", "--results", "nowhere", "--output", "r"], ["nowhere"]),
        (["summary", "--results", "nowhere"], ["nowhere"]),
        (["plan"], ["--config"]),
        (["bake"], ["bake"]),
    ],
)
def test_bad_arguments(oso, tmp_path, monkeypatch, arguments, parts) -> None:
    monkeypatch.chdir(tmp_path)
    refused(oso(*arguments), *parts)
    assert list(tmp_path.iterdir()) == []


def test_the_data_folder_from_the_environment(oso, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("OSO_DATA_DIR", str(tmp_path / "elsewhere"))
    refused(oso("data", "mnist", "--output", tmp_path / "x.npz"), "elsewhere")
    refused(
        oso("data", "mnist", "--output", tmp_path / "x.npz", "--data-dir", tmp_path / "mine"),
        "mine",
    )


def test_a_store_cut_in_half_is_left_as_it_was(oso, collected) -> None:
    (path,) = (collected / "store" / "runs.parquet").glob("*.parquet")
    half = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(half)
    refused(oso("collect", "part", "--store", "store"), path.name, "cut off")
    refused(oso("report", "--results", "store", "--output", "report"), "store/runs.parquet")
    refused(train(oso, "--store", "store"), "store/runs.parquet")
    assert path.read_bytes() == half
    assert not (collected / "report").exists()


def test_as_a_process() -> None:
    """The installed entry point, and without torch's start-up time for the small commands."""
    code = "import sys, oso_dp.cli.commands; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    done = subprocess.run(
        [sys.executable, "-m", "oso_dp", "plan", "--config", "none.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "oso: error: none.yaml: cannot be read (No such file or directory)\n"


@pytest.fixture
def reported(monkeypatch) -> list[tuple[str, str]]:
    """Results and folder of each report that would have been made."""
    calls: list[tuple[str, str]] = []

    def build(results, output, plans):
        calls.append((str(results), str(output)))
        return output / "index.html"

    monkeypatch.setattr("oso_dp.reporting.page.build.build_report", build)
    return calls


def test_a_report_goes_beside_its_results_unless_it_is_said(oso, reported) -> None:
    oso("report", "--results", "build/mine/results")
    oso("report")
    oso("report", "--results", "mine", "--output", "reports")
    assert reported == [
        ("build/mine/results", "build/mine/results-report"),
        ("results", "results-report"),
        ("mine", "reports"),
    ]


@pytest.mark.parametrize("there", ["reports/index.html", "reports/figures/mine.png"])
def test_a_report_does_not_replace_what_it_did_not_write(oso, tmp_path, monkeypatch, there) -> None:
    """Before any work: the results are not even looked for."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / there).parent.mkdir(parents=True)
    (tmp_path / there).write_text("mine")
    refused(
        oso("report", "--results", "nowhere", "--output", "reports"),
        "reports: contains other files",
    )
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == ["mine"]


def test_a_report_is_published_by_command(oso, tmp_path) -> None:
    refused(oso("publish", tmp_path, "--output", tmp_path / "x"), "contains no report")
    report = ReportFolder(tmp_path / "report", tmp_path / "store")
    report.write("index.html", "page")
    report.finish()
    page = tmp_path / "public/index.html"
    assert oso("publish", tmp_path / "report", "--output", page.parent)[:2] == (0, f"{page}\n")
    assert page.read_text() == "page"
