"""The bench: that like is compared with like, that what fails is a row, and what is written."""

import csv
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import worker
from bench import main
from competitor import Setting, SkippedError, fresh_model
from competitors import competitor_names, find_competitor, is_ours
from workloads import KNOWN, Data, find_workload, make_data, save_data

from oso_dp.models.losses import LOSSES

BENCHMARKS = sys.path.pop(0)

SIZE = 8  # of every batch
RATE = 1.0
SILENT = 1e-13  # a noise multiplier that is as good as none; some methods refuse none
PRIVATE = [n for n in competitor_names() if n != "no_dp" and not n.startswith("sgd")]
MEASURED = [
    "seconds_per_run_step",
    "lower_quartile",
    "upper_quartile",
    "run_steps_per_second",
    "times_sgd",
    "peak_mib",
    "times_sgd_peak",
    "timed_steps",
]
OURS = [*MEASURED, "evaluation_share"]


@pytest.fixture(autouse=True)
def _path(monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", [BENCHMARKS, *sys.path])


def updates(
    name: str, model: str, data: Data, steps: int = 1, threshold: float = 1e4, noise: float = SILENT
) -> list[torch.Tensor]:
    """What a competitor has added to the parameters after each step, its batch all of the data."""
    size = len(data.inputs)
    settings = {
        "online": {"initial_threshold": threshold},
        "fixed_quantile": {"initial_threshold": threshold, "count_noise": max(0.05, noise)},
        # So that its step is as long as plain SGD's.
        "adam_wosm": {"learning_rate": RATE * (noise * threshold / size + 1e-8)},
        "no_dp": {"optimizer": "sgd"},
    }
    if name == "jax":
        pytest.importorskip("jax")
    setting = Setting(
        name,
        model,
        batch_size=size,
        learning_rate=RATE,
        threshold=threshold,
        noise_multiplier=noise,
        method_options=settings.get(name.removesuffix("_system"), {}),
    )
    competitor = find_competitor(name)(setting, data)
    before = competitor.parameters().copy()
    assert before.shape == (1, sum(p.numel() for p in fresh_model(setting).parameters()))
    found = []
    for _ in range(steps):
        competitor.step()
        competitor.finish()
        found.append(torch.from_numpy(competitor.parameters()[0] - before[0]))
    return found


def distance(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((found - wanted).norm() / wanted.norm()).item()


@pytest.mark.parametrize("model", KNOWN)
def test_competitors_without_privacy_match_sgd(model) -> None:
    data = make_data(find_workload(model), SIZE)
    wanted = updates("sgd", model, data, steps=2)  # the second has momentum
    assert distance(wanted[1], 2 * wanted[0]) > 0.1
    for name in competitor_names():
        if name == "sgd_own_layers" and model != "cnn":
            with pytest.raises(SkippedError):
                updates(name, model, data)
            continue
        if name == "sgd_channels_last" and model == "bag_of_words":
            with pytest.raises(SkippedError):
                updates(name, model, data)
            continue
        if name == "sgd_bfloat16":  # about the same, and not the same
            (found,) = updates(name, model, data)
            assert 1e-4 < distance(found, wanted[0]) < 0.1
            continue
        if name == "jax" and model != "bag_of_words":
            continue  # compiling takes seconds: see the next test
        if name == "torch_func" and model == "transformer":
            continue  # vmap has no rule for attention, and warns
        steps = 1 if name == "adam_wosm" else 2  # its momentum is another one
        for found, sgd in zip(updates(name, model, data, steps), wanted, strict=False):
            assert distance(found, sgd) < 1e-4, name


def test_competitors_clip_per_example() -> None:
    data = make_data(find_workload("bag_of_words"), SIZE)
    model = fresh_model(Setting("sgd", "bag_of_words"))
    gradients = []
    for inputs, target in zip(*map(torch.from_numpy, (data.inputs, data.targets)), strict=True):
        loss = LOSSES["accuracy"](model(inputs[None]), target[None]).sum()
        gradient = torch.autograd.grad(loss, list(model.parameters()))
        gradients.append(torch.cat([part.flatten() for part in gradient]))
    each = torch.stack(gradients)
    norms = each.norm(dim=1)
    threshold = norms.median().item()  # half of the examples are clipped
    wanted = -RATE * (each * (threshold / norms).clamp(max=1)[:, None]).mean(dim=0)
    assert distance(updates("sgd", "bag_of_words", data)[0], wanted) > 0.01
    for name in PRIVATE:
        (found,) = updates(name, "bag_of_words", data, threshold=threshold)
        assert distance(found, wanted) < 1e-4, name


def test_competitors_add_equal_noise() -> None:
    """Each method adds noise of std nu C / B per coordinate; Online's std is 1 % larger."""
    data = make_data(find_workload("bag_of_words"), SIZE)
    for name in PRIVATE:
        (noise,) = updates(name, "bag_of_words", data, threshold=2.0, noise=SIZE / 2)
        assert noise.std().item() == pytest.approx(RATE, rel=0.02), name


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> tuple[int, Path]:
    """A tiny bench: two that work, and one that would take too long."""
    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [BENCHMARKS, *sys.path])
        status = main(
            "--models bag_of_words --competitors sgd fixed_threshold "
            "--runs 1 1000 --precisions float32 bfloat16 --seconds 0.1 "
            "--threads 1 --device cpu --batch-size 8 --examples 64 "
            f"--output {folder}".split()
        )
    return status, folder


@pytest.mark.nightly
def test_bench_measures_and_reports_skipped(bench) -> None:
    status, folder = bench
    assert status == 0
    with (folder / "cpu.csv").open(newline="") as file:
        every = list(csv.DictReader(file))
    rows = {(row["competitor"], row["runs"]): row for row in every if row["precision"] == "float32"}
    (low,) = [row for row in every if (row["precision"], row["runs"]) == ("bfloat16", "1")]
    assert (low["competitor"], low["status"]) == ("fixed_threshold", "ok")
    assert float(low["times_sgd"]) > 0
    for name in ("sgd", "fixed_threshold"):
        row = rows[name, "1"]
        assert row["status"] == "ok", row["reason"]
        columns = OURS if is_ours(name) else MEASURED
        assert all(float(row[column]) > 0 for column in columns)
        assert float(row["lower_quartile"]) <= float(row["seconds_per_run_step"])
    assert rows["sgd", "1"]["times_sgd"] == "1"
    skipped = rows["fixed_threshold", "1000"]
    assert skipped["status"] == "skipped"
    assert "above --seconds 0.1" in skipped["reason"]
    assert not any(float(skipped[column] or 0) for column in MEASURED)


def test_worker_reports_reason_for_failure(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)  # as if it were not installed
    monkeypatch.setattr(worker, "_use_threads", lambda threads: None)
    save_data(make_data(find_workload("bag_of_words"), 4), tmp_path)

    def answer(name: str) -> dict:
        setting = asdict(Setting(name, "bag_of_words", batch_size=4))
        return worker.Worker().answer("prepare", setting=setting, data=str(tmp_path))

    assert answer("jax") == {"status": "not installed", "reason": "jax is not installed"}
    assert answer("sgd_own_layers")["status"] == "skipped"
    assert answer("fixed_quantile")["status"] == "failed"
    assert "must be >" in answer("fixed_quantile")["reason"]
    assert answer("sgd").keys() == {"seconds", "version"}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--models resnet", "model: 'resnet'; allowed are bag_of_words, cnn"),
        ("--competitors sgd tensorflow", "competitor: 'tensorflow'; allowed are sgd"),
        ("--runs 0", "--runs 0; must be >= 1"),
        ("--threads 99999", "--threads 99999; must be <= "),
        ("--precisions tf32", "precision: 'tf32'; must be float32 or bfloat16"),
        ("--device tpu", "--device 'tpu'; must be cpu or cuda"),
        ("--batch-size 16 --examples 15", "--examples 15; must be >= 16"),
        ("--read nothing.csv", "nothing.csv: cannot be read"),
        ("--read {csv}", "config.csv: not a table of benchmark results"),
    ],
)
def test_bench_invalid_options_rejected(arguments, named, tmp_path, capsys) -> None:
    other = tmp_path / "config.csv"
    other.write_text("a,b\n1,2\n")
    status = main([*arguments.format(csv=other).split(), "--output", str(tmp_path / "out")])
    assert status == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("bench: error: ")
    assert printed.err.count("\n") == 1
    assert named in printed.err
    assert not (tmp_path / "out").exists()
