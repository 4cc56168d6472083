"""A search for a user's model: all of it is paid for, by whichever way of choosing."""

import math
import signal

import numpy as np
import pytest
import torch
from tests.searches import make_search
from torch import nn

from oso_dp import OsoError, load_private
from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.accounting.search import Search
from oso_dp.accounting.search_accounting import RANDOM_STOPPING
from oso_dp.accounting.search_accounting.random_stopping import STOPPING_ETA
from oso_dp.api import progress_bar
from oso_dp.api.trainer import Trainer
from oso_dp.errors import warn_once
from oso_dp.privacy.sampling import PoissonSampling

RANDOM = {"search_accounting": RANDOM_STOPPING}


PRIVATE = {"validation": (torch.zeros(3, 6), torch.zeros(3).long())}


SEEDED = {"randomness": "seeded", "seed": 1}


def first_rate(made) -> float:
    """The learning rate with which a training began."""
    return round(made.history.learning_rate[0], 6)


@pytest.fixture
def other_data(data):
    random = torch.Generator().manual_seed(9)
    inputs = torch.randn(300, 6, generator=random)
    return inputs, (inputs[:, 0] > 0).long()


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_search_private_all_trainings_meet_budget(search, accountant) -> None:
    made = search({"learning_rate": [0.1, 0.5], "momentum": [0.0, 0.9]}, accountant=accountant)
    assert len(made.trials) == 4
    ledgers = made.best.privacy_cost.ledgers()
    assert [ledger.step_count for ledger in ledgers] == [2, 2, 2, 2]
    assert made.best.epsilon == compute_epsilon(ledgers, 1e-5, accountant)
    assert 2.99 < made.best.epsilon <= 3.0
    assert "The best of 4 trainings, all of which are released" in str(made.best.statement)
    assert "not included" not in str(made.best.statement)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def test_learning_rate_factor_scales_optimizer(search) -> None:
    """A factor of 5 trains as an optimizer with five times the learning rate."""
    fixed = {"method": "fixed_threshold", "threshold": 1.0, "score": lambda model: 1.0, **SEEDED}
    ends = [
        nn.utils.parameters_to_vector(
            search(
                {"learning_rate_factor": [factor]}, optimizer=make, **fixed
            ).best.model.parameters()
        )
        for factor, make in (
            (5.0, sgd),
            (1.0, lambda model: torch.optim.SGD(model.parameters(), lr=0.5)),
            (1.0, sgd),
        )
    ]
    assert torch.allclose(ends[0], ends[1], rtol=1e-5, atol=1e-7)
    assert not torch.allclose(ends[0], ends[2], rtol=1e-2)


@pytest.mark.parametrize(
    ("options", "warns"), [({"metric": lambda outputs, target: -1.0}, True), ({}, False)]
)
def test_metric_outside_range_warned(options, warns: bool, search, caplog) -> None:
    search({"learning_rate": [1.0]}, **PRIVATE, **options)
    assert ("clamped to [0, 1]" in caplog.text) == warns


class RunningAccuracy:
    """Of all examples so far, as metrics of other libraries."""

    def __init__(self) -> None:
        self.right = self.seen = 0

    def __call__(self, outputs: torch.Tensor, target: torch.Tensor) -> float:
        self.seen += 1
        self.right += int(outputs.argmax(dim=1) == target)
        return self.right / self.seen


def test_metric_stateful_rejected(search) -> None:
    with pytest.raises(OsoError, match=r"^metric: the value of an example changes"):
        search({"learning_rate": [1.0]}, **PRIVATE, metric=RunningAccuracy())


def test_score_and_evaluate_get_eval_mode(search) -> None:
    modes = []

    def score(model: nn.Module) -> float:
        modes.append(model.training)
        return 1.0

    made = search({"learning_rate": [1.0]}, score=score, evaluate=score, fix=False)
    assert modes == [False, False]
    assert made.best.model.training


def test_search_private_best_score_kept(search) -> None:
    rates = [0.2, 0.4, 1e38]
    wanted = []

    def score(model) -> float:
        wanted.append(model)
        return [0.7, 0.9, 5.0][len(wanted) - 1]

    made = search(
        {"learning_rate": rates, "threshold": [1e6]},
        method="fixed_threshold",
        score=score,
        momentum=0.0,
    )
    assert made.point == {"learning_rate": 0.4, "threshold": 1e6}
    assert made.score == 0.9
    assert first_rate(made.best) == 0.4
    assert [tried.score for tried in made.trials] == [0.7, 0.9, -math.inf]
    assert [tried.status for tried in made.trials] == ["finished", "finished", "diverged"]
    assert [tried.point["learning_rate"] for tried in made.trials] == rates
    for kept, scored in zip(made.best.model.parameters(), wanted[1].parameters(), strict=True):
        assert torch.equal(kept, scored)


def test_score_nan_never_chosen(search) -> None:
    scores = iter([math.nan, 0.1, math.nan])
    made = search(score=lambda model: next(scores))
    assert made.point == {"learning_rate": 0.5}


def test_validation_scores_noisy_and_priced(search, other_data) -> None:
    made = search(validation=other_data)
    statement = made.best.statement
    scores = made.best.privacy_cost.scores
    assert scores is not None
    assert scores.step_count == 3
    assert scores.sampling.rate == 1.0
    assert statement.validation_epsilon == compute_epsilon([scores], 1e-5)
    assert 2.99 < statement.validation_epsilon <= 3.0
    assert 2.99 < statement.epsilon <= 3.0
    nu = scores.releases()[0][0]
    assert made.score_std == 0.5 * nu / 300
    for tried in made.trials:
        right = (tried.model(other_data[0]).argmax(dim=1) == other_data[1]).float().mean()
        assert tried.score == pytest.approx(float(right), abs=6 * made.score_std)
        assert tried.score != float(right)
    assert "on 300 validation examples" in str(statement)


def test_metric_called_per_example(search, other_data) -> None:
    asked = []

    def right(outputs, targets):
        asked.append((outputs.shape, targets.shape))
        return 1.0

    made = search(
        {"learning_rate": [0.1]}, validation=other_data, metric=right, microbatch_size=128
    )
    assert asked == [((1, 2), (1,))] * len(asked)
    assert len(asked) == 300 + 4  # made up: whether it fails or remembers
    assert made.score == pytest.approx(1.0, abs=6 * made.score_std)


@pytest.mark.parametrize("shape", ["logarithmic", "geometric"])
def test_random_stopping_cost_matches_distribution(search, shape, other_data) -> None:
    made = search(**RANDOM, mean_runs=4, stopping_distribution=shape, validation=other_data)
    statement, paid = made.best.statement, made.best.privacy_cost
    nu = paid.ledger.releases()[0][0]
    asked = make_search(PoissonSampling(1.0), 2, 4, RANDOM_STOPPING, STOPPING_ETA[shape])
    assert statement.epsilon == pytest.approx(asked.epsilon(nu, 1e-5), rel=1e-6)
    assert 2.99 < statement.epsilon <= 3.0
    (noise, count), *others = paid.scores.releases()
    assert (count, others) == (1, [])
    scored = make_search(PoissonSampling(1.0), 1, 4, RANDOM_STOPPING, STOPPING_ETA[shape])
    assert statement.validation_epsilon == pytest.approx(scored.epsilon(noise, 1e-5), rel=1e-6)
    assert 2.99 < statement.validation_epsilon <= 3.0
    assert f"4 on average ({shape} distribution)" in str(statement)


def spied(monkeypatch) -> list[float]:
    """The learning rates of all trainings that begin."""
    began, train = [], Trainer.__call__

    def spy(self, *given):
        began.append(self.options.learning_rate)
        return train(self, *given)

    monkeypatch.setattr(Trainer, "__call__", spy)
    return began


def test_random_stopping_run_ids_unique(search, monkeypatch) -> None:
    """Repeated draws of one grid point are separate trainings with different noise."""
    names, train = [], Trainer.__call__

    def spy(self, *given):
        names.append(self.run.run_id)
        return train(self, *given)

    monkeypatch.setattr(Trainer, "__call__", spy)
    monkeypatch.setattr("oso_dp.api.search.draw_number_of_runs", lambda *asked: 40)
    search({"learning_rate": [0.5, 1.0]}, **RANDOM, **SEEDED, epochs=1)
    assert len(names) == len(set(names)) == 40


def test_random_stopping_reveals_only_best(search, monkeypatch, capsys, tmp_path) -> None:
    """The result does not depend on the number of trainings, and shows only the best one."""
    began = spied(monkeypatch)
    size, left = {}, []
    for count in (2, 12):
        monkeypatch.setattr("oso_dp.api.search.draw_number_of_runs", lambda *asked, k=count: k)
        del began[:]
        scores = [*[0.2] * (count - 1), 0.9]  # the last is the best: its place is a secret, too
        made = search(
            **RANDOM, **SEEDED, score=lambda model, left=scores: left.pop(0), progress=True
        )
        assert len(began) == count
        assert made.trials == []
        assert first_rate(made.best) == began[-1] == made.point["learning_rate"]
        left.append(made.best.run_id)
        made.best.save(tmp_path / "model")
        size[count] = (tmp_path / "model").stat().st_size
    assert set(began) == {0.1, 0.5, 1.0}
    assert size[2] == size[12]
    assert left[0] == left[1]
    assert "".join(capsys.readouterr()) == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_random_stopping_prints_no_progress(terminal, search, monkeypatch, capsys) -> None:
    """Progress would reveal the number of trainings, which the privacy cost assumes is secret."""
    monkeypatch.setattr(progress_bar.sys.stderr, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(progress_bar, "_IN_LOG", 0.0)
    search(**RANDOM, **SEEDED, progress=True)
    assert "".join(capsys.readouterr()) == ""


class Doubled(nn.Module):
    """Uses a layer's weight without the layer, so that it is taken whole, with a warning."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(inputs, 2 * self.layer.weight, self.layer.bias)


@pytest.mark.parametrize("count", [1, 5])
def test_random_stopping_warns_once(search, monkeypatch, caplog, count) -> None:
    warn_once.cache_clear()
    monkeypatch.setattr("oso_dp.api.search.draw_number_of_runs", lambda *asked: count)
    search(**RANDOM, **SEEDED, model=Doubled())
    assert caplog.text.count("trained by torch.func") == 1


def test_search_private_only_seeded_repeats(search) -> None:
    def weights(**how):
        return next(search(**how).best.model.parameters())

    assert torch.equal(weights(**SEEDED), weights(**SEEDED))
    assert not torch.equal(weights(**SEEDED), weights(randomness="seeded", seed=2))
    assert not torch.equal(weights(), weights())


def test_search_private_saved_result_loads(search, model, other_data, tmp_path) -> None:
    for how in ({}, {**RANDOM, "mean_runs": 5}):
        best = search(validation=other_data, **how).best
        path = tmp_path / f"best of {len(how)}"
        best.save(path)
        back = load_private(path, model)
        assert back.statement == best.statement
        assert back.privacy_cost == best.privacy_cost


def test_resume_from_best_counts_whole_search(search, train) -> None:
    made = search(epsilon=2.0)
    more = train(resume_from=made.best, batch_size=400, epsilon=3.0)
    assert more.epsilon == compute_epsilon(
        [more.ledger, *made.best.privacy_cost.other_trainings], 1e-5
    )
    assert 2.99 < more.epsilon <= 3.0
    assert "The best of 3 trainings" in more.statement.tuning
    with pytest.raises(OsoError, match="resume_from: the best of a search by random stopping"):
        train(resume_from=search(**RANDOM).best, batch_size=400, epsilon=9.0)


def test_search_private_interrupted_counts_planned_steps(search, monkeypatch) -> None:
    calls = []

    def score(model) -> float:
        calls.append(model)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return 0.3

    made = search(score=score)
    assert [tried.score for tried in made.trials] == [0.3, -math.inf]
    assert made.point == {"learning_rate": 0.1}
    paid = made.best.privacy_cost
    assert sum(ledger.step_count for ledger in paid.ledgers()) == 4
    assert compute_epsilon(paid.ledgers(), 1e-5) < 2.7
    assert (
        paid.unused_step_count == made.best.statement.unused_steps == 2
    )  # the third, which never began
    assert 2.99 < made.best.epsilon <= 3.0


def test_search_private_aborted_training_counts_whole(search, monkeypatch) -> None:
    """An aborted training has no ledger and costs all its steps; earlier trainings are kept."""
    right, began = Trainer.__call__, []

    def broken(self, *given):
        began.append(self)
        ended = right(self, *given)
        if len(began) == 3:
            raise KeyboardInterrupt
        return ended

    monkeypatch.setattr(Trainer, "__call__", broken)
    made = search()
    assert len(made.trials) == 2
    *released, lost = made.best.privacy_cost.ledgers()
    assert len(released) == 2
    assert lost.step_count == released[0].step_count
    (noise,) = {query.noise_multiplier for queries, _ in lost.steps for query in queries}
    apart = [1 / query.noise_multiplier**2 for query in released[0].steps[0][0]]
    assert 1 / noise**2 == pytest.approx(sum(apart))
    assert made.best.epsilon == compute_epsilon(made.best.privacy_cost.ledgers(), 1e-5)


def test_search_private_aborted_first_training_raises(search, monkeypatch) -> None:
    def broken(self, *given):
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "__call__", broken)
    with pytest.raises(KeyboardInterrupt):
        search()


def test_random_stopping_interrupted_raises(search) -> None:
    steps = []

    def evaluate(model) -> float:
        steps.append(model)
        signal.raise_signal(signal.SIGINT)
        return 0.0

    with pytest.raises(KeyboardInterrupt):
        search(**RANDOM, evaluate=evaluate, evaluate_every=1)
    assert len(steps) <= 2


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_grid_arrays_accepted(search, kind) -> None:
    values = [0.125, 0.5]  # the same in float32
    found = search({"learning_rate": kind(values)}, epochs=1)
    assert [one.point for one in found.trials] == [{"learning_rate": value} for value in values]


@pytest.mark.parametrize("gave", [None, [1, 2]])
def test_score_nonnumber_rejected(search, gave) -> None:
    with pytest.raises(OsoError, match=r"score: returned .*; must be a number") as error:
        search(score=lambda model: gave)
    assert "were released before" in error.value.__notes__[0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"grid": {}}, "grid: must map names to lists of values"),
        ({"grid": {"rho": [1.0]}}, "grid: 'rho' cannot be searched; must be one of learning_rate"),
        (
            {"grid": {"threshold": [0.1, 1.0]}},
            "grid: 'threshold' cannot be searched; must be one of",
        ),
        (
            {"grid": {"momentum": [0.0, 0.9]}, "method": "adam_wosm", "threshold": 1.0},
            "grid: 'momentum' cannot be searched; must be one of threshold, learning_rate",
        ),
        (
            {"grid": {"momentum": [0.0, 0.9]}, "optimizer": sgd},
            "grid: 'momentum' cannot be searched; must be one of learning_rate_factor",
        ),
        (
            {"grid": {"learning_rate": [0.1, 0.9]}, "optimizer": sgd},
            "grid: 'learning_rate' cannot be searched; must be one of learning_rate_factor",
        ),
        (
            {"grid": {"threshold_rate": [0.1]}, "optimizer": sgd, "learning_rate": 0.1},
            "learning_rate: 0.1; has no effect with optimizer, which has its own",
        ),
        (
            {"grid": {"threshold": [0.1, 1.0]}, "method": "adam_wosm", "momentum": 0.9},
            "momentum: 0.9; has no effect with method 'adam_wosm', leave it out",
        ),
        ({"grid": {"learning_rate": [10**400]}}, "must be a finite number > 0"),
        (
            {
                "grid": {"count_noise": [0.05, 1e-9]},
                "method": "fixed_quantile",
                "quantile": 0.5,
            },
            "count_noise: ",
        ),
        ({"resume_from": 3}, "resume_from: not supported by search_private, which trains"),
        ({"fix": True}, "fix: not supported by search_private; pass replace_batch_norm(model)"),
        ({"metric": len}, "metric: has no effect with score"),
        ({"validation": (torch.zeros(3, 5), torch.zeros(3).long())}, "an example of shape [5]"),
        ({"validation": (torch.zeros(3, 6), torch.zeros(3))}, "metric: the default needs outputs"),
        (
            {"validation": (torch.zeros(3, 6), torch.tensor([0, 1, 2]))},
            "validation: targets contain 2; must be 0 to 1, for this model's 2 outputs",
        ),
        (
            {"validation": (torch.zeros(3, 6), torch.tensor([0, -1, 1], dtype=torch.int8))},
            "validation: targets contain -1; must be 0 to 1",
        ),
        (
            {**PRIVATE, "metric": lambda outputs, targets: outputs},
            "metric: returned shape [1, 2] for one example",
        ),
        ({**PRIVATE, "metric": lambda outputs, targets: None}, "the model or metric fails on an"),
        ({"grid": {"learning_rate": []}}, "must be a list of values"),
        ({"grid": {"learning_rate": 0.1}}, "must be a list of values"),
        ({"grid": {"learning_rate": [0.1, -1]}}, "learning_rate: -1; must be a number > 0"),
        ({"grid": {"learning_rate": [1, 1.0]}}, "grid: learning_rate: a value appears twice"),
        ({"grid": {"threshold_rate": [0.0, -0.0]}}, "grid: threshold_rate: a value appears twice"),
        ({"grid": {"learning_rate": [None, 0.1]}}, "grid: learning_rate contains None"),
        ({"learning_rate": 0.1}, "grid: learning_rate is also given as an argument"),
        ({"grid": {"threshold_rate": ["x"]}}, "threshold_rate: 'x'; must be a number"),
        ({"method": "fixed_threshold"}, "threshold: not set; method 'fixed_threshold' needs it"),
        ({"epsilon": 1e-9}, "epsilon: 1e-09; no noise multiplier"),
        (
            {"search_accounting": "luck"},
            "search_accounting: 'luck'; must be one of composition, random_stopping",
        ),
        ({"score": None}, "score, validation: exactly one is required"),
        ({"score": 3}, "score: int; must be callable"),
        ({"validation": (torch.zeros(3, 6), torch.zeros(2))}, "validation: 3 inputs and 2 targets"),
        ({"mean_runs": 4}, "mean_runs: 4; needs search_accounting='random_stopping'"),
        ({**RANDOM, "mean_runs": 1}, "mean_runs: 1; must be an integer >= 2"),
        (
            {**RANDOM, "grid": {"momentum": [0.9]}},
            "grid: 1 point; must be >= 2 for random",
        ),
        (
            {**RANDOM, "stopping_distribution": "poisson"},
            "stopping_distribution: 'poisson'; must be one of logarithmic",
        ),
        ({**RANDOM, "accountant": "pld"}, "accountant: 'pld'; must be 'rdp' for random stopping"),
    ],
)
def test_search_private_invalid_arguments_rejected(search, monkeypatch, changed, message):
    began = spied(monkeypatch)
    with pytest.raises(OsoError) as error:
        search(**changed)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert began == []


PART = {"batch_size": 100, "epochs": 1.5}  # six steps at a rate of a quarter


@pytest.mark.parametrize("delta", [1e-2, 1e-9])
@pytest.mark.parametrize("how", [{}, {"search_accounting": RANDOM_STOPPING, "mean_runs": 3}])
def test_search_private_meets_both_budgets(search, data, monkeypatch, how, delta) -> None:
    monkeypatch.setattr("oso_dp.api.search.draw_number_of_runs", lambda *asked: 2)
    given = {"validation": data, "delta": delta, **PART, **how}
    best = search({"learning_rate": [0.1, 0.5]}, **given).best
    statement = best.statement
    nu = best.ledger.releases()[0][0]
    (noise, _), *_ = best.privacy_cost.scores.releases()
    kind = (RANDOM_STOPPING, STOPPING_ETA["logarithmic"]) if how else ("composition",)
    runs = 3 if how else 2
    spent = make_search(PoissonSampling(0.25), 6, runs, *kind).epsilon(nu, delta)
    seen = make_search(PoissonSampling(1.0), 1, runs, *kind).epsilon(noise, delta)
    assert statement.epsilon == pytest.approx(spent, rel=1e-6)
    assert statement.validation_epsilon == pytest.approx(seen, rel=1e-6)
    for epsilon in (spent, seen):
        assert 2.99 < epsilon <= 3.0


class Summing(torch.nn.Module):
    """Of several inputs."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.model(a + b)


@pytest.mark.parametrize("kind", [tuple, dict])
def test_validation_several_inputs_accepted(search, model, data, other_data, kind) -> None:
    def several(inputs: torch.Tensor) -> tuple | dict:
        parts = {"a": inputs, "b": torch.zeros_like(inputs)}
        return parts if kind is dict else tuple(parts.values())

    grid = {"learning_rate": [0.5]}
    plain = search(grid, validation=other_data, **SEEDED)
    given, validation = ((several(inputs), classes) for inputs, classes in (data, other_data))
    found = search(grid, model=Summing(model), data=given, validation=validation, **SEEDED)
    assert found.score == pytest.approx(plain.score, abs=1e-6)
    wrong = (several(other_data[0][:, :5]), other_data[1])
    with pytest.raises(OsoError, match=r"validation: .* of shape \[5\], \[5\], target of shape"):
        search(grid, model=Summing(model), data=given, validation=wrong)


@pytest.mark.parametrize("changed", [{"delta": 1e-22}, {"epsilon": 80.0}])
def test_noise_range_beyond_delta_rejected(search, data, changed) -> None:
    for scored in ({}, {"validation": data}):
        with pytest.raises(OsoError, match=r"^noise multiplier .*; must be <= 0.01 delta") as error:
            search({"learning_rate": [0.5]}, epochs=1, **scored, **changed)
        assert "\n" not in str(error.value)
    search({"learning_rate": [0.5]}, epochs=1, **changed, **SEEDED)  # on public data


def test_noise_range_delta_split_over_scores(search, data, monkeypatch) -> None:
    """Scores have noise for the mean number of trainings, not for the number of points."""
    asked = []
    monkeypatch.setattr("oso_dp.api.search.check_range", lambda *given: asked.append(given))
    monkeypatch.setattr("oso_dp.api.search.draw_number_of_runs", lambda *given: 2)
    for options in ({}, {"mean_runs": 5000, "search_accounting": RANDOM_STOPPING}):
        search({"learning_rate": [0.3, 0.5]}, epochs=1, validation=data, **options)
    assert [given[0] for given in asked] == [1e-5 / 2, 1e-5 / 5000]
    assert {given[3:] for given in asked} == {(1, 1)}


@pytest.mark.filterwarnings("ignore:score. no training of this search has one")
def test_search_private_noise_counts_whole_grid(search) -> None:
    """A search stopped at the first of 90 points has the noise of all 90."""

    def score(model) -> float:
        raise KeyboardInterrupt

    grid = {"learning_rate": [0.01 * number for number in range(1, 91)]}
    best = search(grid, score=score, epochs=1).best
    nu = best.ledger.releases()[0][0]
    assert 2.99 < Search(PoissonSampling(1.0), 1, 90).epsilon(nu, 1e-5) <= 3.0
    assert best.privacy_cost.unused_step_count == 89


@pytest.mark.parametrize(("options", "runs"), [({}, 3), ({"mean_runs": 5}, 5)])
def test_noise_range_delta_split_over_trainings(options, runs, search, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr("oso_dp.training.loop.check_range", lambda *given: asked.append(given))
    if options:
        options = {**options, "search_accounting": RANDOM_STOPPING}
        monkeypatch.setattr("oso_dp.api.search.draw_number_of_runs", lambda *given: 2)
    search(**options)
    assert {given[0] for given in asked} == {1e-5 / runs}
    assert {given[4] for given in asked} == {2 * (6 * 8 + 8 + 8 * 2 + 2)}  # Online's two sums
