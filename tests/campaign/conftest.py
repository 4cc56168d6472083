"""A small priced study, data of the right size, and training that only moves a clock."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.planned_rows import run_row, score_rows

from oso_dp.campaign import campaign as module
from oso_dp.campaign.__main__ import main
from oso_dp.campaign.campaign import Campaign
from oso_dp.campaign.order import all_work
from oso_dp.campaign.parts import Parts
from oso_dp.data.arrays import Arrays, save_arrays
from oso_dp.study.config import parse_config
from oso_dp.study.plan import Plan, plan_of, read_plan, write_plan
from oso_dp.training.job import Rows

STUDY = {
    "name": "mini",
    "datasets": {"glyphs": {"model": "small_cnn", "epsilons": [3], "seconds_per_step": 0.005}},
    "methods": {"online": {}, "fixed_threshold": {}, "no_dp": {}},
    "granularities": [2],
    "seeds": [0, 1],
    "batch_size": 600,
    "epochs": 1,  # 10 steps
    "evaluate_every": 2,
}


def write_study(study: dict[str, Any], path: Path) -> None:
    """A plan without the time that pricing takes."""
    config = parse_config(study, path.name)
    write_plan(plan_of(config, defaultdict(lambda: 1.5)), path)  # enough for the budget


@pytest.fixture(scope="session")
def mnist(tmp_path_factory) -> Plan:
    """The paper's study of MNIST: 51 cohorts, 6,145 runs."""
    methods = ("online", "fixed_threshold", "fixed_quantile", "adam_wosm", "no_dp")
    study = {
        "name": "mnist",
        "datasets": {"mnist": {"model": "cnn", "epsilons": [3, 5, 7, 9], "seconds_per_step": 0.4}},
        "methods": {name: {} for name in methods},
        "granularities": [5, 7, 9],
        "seeds": [0, 1, 2, 3, 4],
    }
    path = tmp_path_factory.mktemp("mnist") / "plan.json"
    write_study(study, path)
    return read_plan(path)


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """plan.json and data/glyphs.npz."""
    folder: Path = tmp_path_factory.mktemp("campaign")
    write_study(STUDY, folder / "plan.json")
    rng = np.random.default_rng(0)
    inputs = rng.random((7000, 1, 14, 14), dtype=np.float32)
    targets = rng.integers(0, 10, 7000)
    arrays = Arrays(inputs[:6000], targets[:6000], inputs[6000:], targets[6000:])
    save_arrays(folder / "data/glyphs.npz", arrays, {"dataset": "glyphs"})
    return folder


@pytest.fixture
def two_texts(tmp_path) -> list[Path]:
    """Plans of two studies on AG News, which read 25 and 15 words of a text."""
    paths = []
    for model in ("bag_of_words_25", "bag_of_words"):
        section = {"model": model, "epsilons": [3], "seconds_per_step": 1}
        paths.append(tmp_path / f"{model}.json")
        write_study({**STUDY, "name": model, "datasets": {"ag_news": section}}, paths[-1])
    return paths


@pytest.fixture
def plan(folder) -> Plan:
    return read_plan(folder / "plan.json")


@pytest.fixture
def call(folder, capsys) -> Callable[..., tuple[int, list[str], list[str]]]:
    """`python -m oso_dp.campaign` in this process: status, lines of output, lines of errors."""

    def run(*arguments: object) -> tuple[int, list[str], list[str]]:
        known = {"--plan": folder / "plan.json", "--data": folder / "data"}
        known |= {"--device": "cpu", "--threads": 1}
        given = [str(argument) for argument in arguments]
        for name, value in known.items():
            given += [] if name in given else [name, str(value)]
        status = main(given)
        captured = capsys.readouterr()
        return status, captured.out.splitlines(), captured.err.splitlines()

    return run


@dataclass
class Machine:
    """Trains nothing, at a chosen speed, by a clock of its own."""

    now: float = 0.0
    per_step: Callable[[str, int], float] = lambda method, size: 1.0
    trained: list[str] = field(default_factory=list)  # run_ids, in the order of their ends
    begun: list[tuple[str, int, int]] = field(default_factory=list)  # cohort, size, step after
    memory: int = 10**9  # runs
    kill_at: int | None = None  # step of some group
    meanwhile: Callable[[], None] = lambda: None
    named: dict[str, Any] = field(default_factory=dict)  # what else stands in its rows

    class KilledError(BaseException):
        """Nothing may catch it, as nothing catches a kill."""

    def clock(self) -> float:
        return self.now

    def run_job(
        self, cohort, runs, arrays, folder, device, runs_at_once, on_progress, clock
    ) -> Rows:
        from torch.cuda import OutOfMemoryError

        assert cohort.noise_multiplier == 0 or cohort.private
        assert runs_at_once == len(runs)
        kept = folder / "state.pt"
        first = int(kept.read_text()) if kept.exists() else 0
        self.begun.append((cohort.name, len(runs), first))
        if len(runs) > self.memory:
            raise OutOfMemoryError
        self.meanwhile()
        for step in range(first + 1, cohort.steps + 1):
            self.now += self.per_step(cohort.method, len(runs))
            if step % cohort.evaluate_every == 0:
                kept.write_text(str(step))
            if step == self.kill_at:
                self.kill_at = None
                raise self.KilledError
            on_progress(0, step)
        self.trained += [run.run_id for run in runs]
        return Rows(
            [{**run_row(cohort, run), **self.named} for run in runs],
            [row for run in runs for row in score_rows(run, [cohort.steps])],
        )


@pytest.fixture
def machine(monkeypatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(module, "run_job", made.run_job)
    return made


@pytest.fixture
def campaign(plan, machine, tmp_path) -> Callable[..., Campaign]:
    """Make a campaign over the small study, by the machine's clock."""
    said: list[str] = []

    def make(seconds: float = 1e9, only: str = "", **other: Any) -> Campaign:
        shared: dict[str, Any] = {
            "everything": [work for work in all_work([plan]) if only in work.cohort.name],
            "best": (),
            "parts": other.get("parts") or Parts(tmp_path / "out"),
            "arrays": lambda dataset: None,
            "deadline": machine.now + seconds,
            "clock": machine.clock,
            "say": said.append,
        }
        at_once = other.pop("runs_at_once", 1)
        return Campaign(**{**shared, "runs_at_once": lambda model: at_once, **other})

    return make
