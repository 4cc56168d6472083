"""Both directions: right code stays below its claim, and each planted fault rises above it."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.stats import norm
from tests.audit.faults import FAULTS

from oso_dp.audit import run_audit as audit_module
from oso_dp.audit.experiments import (
    DELTA,
    EPSILON,
    MANY_RUNS,
    ONE_RUN,
    CanaryScores,
    many_runs,
    noise_multiplier,
    one_run,
    query_kinds,
)
from oso_dp.audit.models import MODELS
from oso_dp.audit.run_audit import AuditFinding, private_methods, run_audit, run_one_audit
from oso_dp.audit.scores import Score, Transcript, scores
from oso_dp.errors import OsoError
from oso_dp.privacy.ledger import Ledger, SumQuery

SEEN_BY_DAY = {
    *("no_direction_noise", "no_clip", "no_count_noise", "same_batch"),
    *("norms_of_one_use", "views_added"),
}


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    "method",
    [
        *("online", "fixed_quantile"),
        *(
            pytest.param(name, marks=pytest.mark.nightly)
            for name in ("adam_wosm", "fixed_threshold")
        ),
    ],
)
def test_run_one_audit_right_code_holds(method: str) -> None:
    finding = run_one_audit(method, None, runs=60)
    assert finding.one_run_claimed == pytest.approx(EPSILON, rel=1e-3)
    assert finding.many_runs_claimed == pytest.approx(EPSILON, rel=1e-3)
    assert finding.verdict == "holds"
    assert finding.as_expected
    assert 0.2 < finding.one_run_gaussian_bound < EPSILON  # not vacuous
    assert finding.many_runs_bound < EPSILON


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    "model",
    [
        "dropout",
        *(
            pytest.param(name, marks=pytest.mark.nightly)
            for name in ("tied", "augmentations", "users")
        ),
    ],
)
def test_run_one_audit_other_models_hold(model: str) -> None:
    finding = run_one_audit("online", None, runs=5, model=model)
    assert (finding.verdict, finding.model) == ("holds", model)
    assert 0.2 < finding.one_run_gaussian_bound < EPSILON


def test_faults_cover_all_models() -> None:
    assert {fault.model for fault in FAULTS.values()} == set(MODELS)


@pytest.mark.usefixtures("library")
def test_run_one_audit_missing_noise_detected() -> None:
    finding = run_one_audit("fixed_threshold", FAULTS["no_gradient_noise"], runs=60)
    assert finding.one_run_bound > EPSILON
    assert finding.many_runs_bound > EPSILON


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=[] if name in SEEN_BY_DAY else pytest.mark.nightly)
        for name, fault in FAULTS.items()
    ],
    ids=FAULTS,
)
def test_run_one_audit_faults_detected(fault) -> None:
    method = next(name for name in ("online", "fixed_quantile") if fault.query in query_kinds(name))
    # A number cannot tell thousands of canaries apart, so it takes runs with one.
    runs = 60 if fault.query == "unclipped_count" else 5
    finding = run_one_audit(method, fault, runs, model=fault.model)
    assert finding.verdict == "seen"
    assert finding.as_expected


def test_faults_cover_private_method_queries() -> None:
    assert set(private_methods()) == {"online", "fixed_quantile", "adam_wosm", "fixed_threshold"}
    asked = set.union(*(query_kinds(method) for method in private_methods()))
    assert {fault.query for fault in FAULTS.values()} == asked


@pytest.mark.usefixtures("library")
def test_run_audit_selects_relevant_faults(monkeypatch) -> None:
    monkeypatch.setattr(audit_module, "run_one_audit", lambda *asked: asked)
    gradient, count = FAULTS["no_gradient_noise"], FAULTS["no_count_noise"]
    methods = ["online", "fixed_quantile"]
    assert list(run_audit(methods, [gradient, count], runs=5, faulty_runs=4, seed=3)) == [
        ("online", None, 5, 3, "", "linear"),
        ("online", gradient, 4, 3, "", "linear"),
        ("fixed_quantile", None, 5, 3, "", "linear"),
        ("fixed_quantile", gradient, 4, 3, "", "linear"),
        ("fixed_quantile", count, 4, 3, "", "linear"),
    ]
    # A query of one layer has the kind of one of the whole gradient.
    (_, planted) = run_audit(["fixed_threshold_per_layer"], [gradient, count])
    assert planted[1] is gradient
    with pytest.raises(OsoError, match="no fault affects fixed_threshold on the model 'linear'"):
        next(run_audit(["fixed_threshold"], [count]))
    masks = FAULTS["norms_of_other_masks"]
    assert list(run_audit(["online"], [gradient, masks], 5, 4, model="dropout")) == [
        ("online", None, 5, 0, "", "dropout"),
        ("online", masks, 4, 0, "", "dropout"),
    ]


class Pool(ThreadPoolExecutor):
    """Processes as threads; what goes to one must survive the way there."""

    def __init__(self, workers, context, **options) -> None:
        assert workers == 2
        assert context.get_start_method() == "spawn"
        super().__init__(1)

    def map(self, function, *arguments):
        function, *arguments = pickle.loads(pickle.dumps((function, *arguments)))
        return super().map(function, *arguments)


@pytest.mark.usefixtures("library")
def test_run_audit_two_workers_equal_one(monkeypatch) -> None:
    def numbers(workers: int) -> list[AuditFinding]:
        found = run_audit(
            ["adam_wosm"], [FAULTS["no_clip"]], runs=5, faulty_runs=4, workers=workers
        )
        return [replace(finding, seconds=0) for finding in found]

    alone = numbers(1)
    monkeypatch.setattr(audit_module, "ProcessPoolExecutor", Pool)
    assert numbers(2) == alone


@pytest.mark.usefixtures("library")
def test_run_audit_unsupported_method_raises() -> None:
    with pytest.raises(OsoError, match="method 'no_dp' is not private"):
        next(run_audit(["online", "no_dp"]))
    with pytest.raises(OsoError, match="method: 'nothing'"):
        next(run_audit(["nothing"]))


@pytest.mark.parametrize(
    ("fault", "one_run", "gaussian", "many_runs", "verdict"),
    [
        (None, 0.5, 0.9, 0.9, "holds"),
        (None, 1.1, 1.2, 0.0, "REFUTED"),
        (None, 0.5, 1.1, 0.0, "REFUTED"),
        (None, 0.5, 0.5, 3.1, "REFUTED"),
        ("no_clip", 0.5, 0.9, 2.9, "NOT SEEN"),
        ("no_clip", 0.0, 0.0, 3.1, "seen"),
        ("no_clip", 1.1, 1.1, 0.0, "seen"),
    ],
)
def test_audit_finding_verdict_uses_own_claims(
    fault, one_run, gaussian, many_runs, verdict
) -> None:
    finding = AuditFinding(
        "online", fault, DELTA, 1.0, one_run, gaussian, 3.0, many_runs, 1, 1, 1, 1, 1
    )
    assert finding.verdict == verdict
    assert finding.as_expected == (verdict in ("holds", "seen"))


@pytest.mark.parametrize("scene", [ONE_RUN, MANY_RUNS])
def test_noise_multiplier_delta_below_gaussian(scene) -> None:
    event = dp_accounting.PoissonSampledDpEvent(
        scene.sampling.rate, dp_accounting.GaussianDpEvent(noise_multiplier(scene))
    )
    claimed = PLDAccountant().compose(event, scene.steps)
    shift = 1 / dp_accounting.get_sigma_gaussian(EPSILON, DELTA)
    for epsilon in np.arange(0, 3.01, 0.25):
        gaussian = norm.cdf(shift / 2 - epsilon / shift) - np.exp(epsilon) * norm.cdf(
            -shift / 2 - epsilon / shift
        )
        assert claimed.get_delta(epsilon) < gaussian


@pytest.mark.parametrize("shape", [(7, 4), (1, 90)])
def test_run_one_audit_fields_match_experiments(shape, monkeypatch) -> None:
    inside, outside = ([Score("made up", np.zeros(size), (0.5,))] for size in shape)
    asked = []

    def of(name: str, *bounds: float):
        def bound(within, without, delta):
            asked.append((name, within, without, delta))
            return bounds if len(bounds) > 1 else bounds[0]

        return bound

    monkeypatch.setattr(audit_module, "one_run", lambda *_: CanaryScores(1.5, inside, outside))
    monkeypatch.setattr(audit_module, "many_runs", lambda *_: CanaryScores(2.5, outside, inside))
    monkeypatch.setattr(audit_module, "one_run_bounds", of("one run", 0.25, 0.5))
    monkeypatch.setattr(audit_module, "many_runs_bound", of("many runs", 0.75))
    found = run_one_audit("online", None, runs=33, mode="ghost")
    assert (found.one_run_claimed, found.many_runs_claimed) == (1.5, 2.5)
    assert (found.one_run_bound, found.one_run_gaussian_bound) == (0.25, 0.5)
    assert (found.many_runs_bound, found.canaries, found.runs) == (0.75, sum(shape), 33)
    assert (found.one_run_steps, found.many_runs_steps) == (ONE_RUN.steps, MANY_RUNS.steps)
    assert (found.delta, found.mode, found.fault) == (DELTA, "ghost", None)
    assert asked == [("one run", inside, outside, DELTA), ("many runs", outside, inside, DELTA)]


def test_many_runs_run_ids_differ() -> None:
    names: list[str] = []

    def train(method, batch_size, steps, nu, rate, canaries, run_ids) -> Transcript:
        names.extend(run_ids)
        answers = {"clipped_gradient": np.zeros((steps, len(run_ids)))}
        ledger = Ledger(MANY_RUNS.sampling, [((SumQuery("clipped_gradient", nu),), steps)])
        return Transcript(answers, {"clipped_gradient": nu}, np.zeros(len(run_ids)), ledger)

    for seed in (0, 1, 10):
        many_runs("online", 600, seed, train)
    assert len(set(names)) == len(names) == 3 * 2 * 600


@pytest.mark.parametrize("experiment", ["one run", "many runs"])
def test_experiments_likelihood_matches_sampling_rate(experiment) -> None:
    rng, scene = np.random.default_rng(0), ONE_RUN if experiment == "one run" else MANY_RUNS
    given: list[np.ndarray] = []

    def train(method, batch_size, steps, nu, rate, canaries, run_ids) -> Transcript:
        assert (batch_size, steps) == (scene.batch_size, scene.steps)
        seen = len(canaries.present) if experiment == "one run" else len(run_ids)
        given.append(rng.normal(0.5, nu, (steps, seen)))
        ledger = Ledger(scene.sampling, [((SumQuery("clipped_gradient", nu),), steps)])
        noise = {"clipped_gradient": nu}
        return Transcript({"clipped_gradient": given[-1]}, noise, np.zeros(len(run_ids)), ledger)

    observed = one_run("online", 0, train) if scene is ONE_RUN else many_runs("online", 9, 0, train)
    noise = {"clipped_gradient": noise_multiplier(scene)}
    right = [
        scores({"clipped_gradient": answers}, noise, scene.sampling.rate)[0].values
        for answers in given
    ]
    found = [observed.inside[0].values, observed.outside[0].values]
    np.testing.assert_allclose(np.sort(np.concatenate(found)), np.sort(np.concatenate(right)))
    assert observed.claimed == pytest.approx(EPSILON, rel=1e-3)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("spoilt", [0, 700])
def test_many_runs_nan_answer_raises(spoilt: int) -> None:
    def train(method, batch_size, steps, nu, rate, canaries, run_ids) -> Transcript:
        answers = np.zeros((steps, len(run_ids)))
        names = [int(name.rsplit("/", 1)[1]) for name in run_ids]
        answers[1, [name == spoilt for name in names]] = np.nan
        ledger = Ledger(MANY_RUNS.sampling, [((SumQuery("clipped_gradient", nu),), steps)])
        noise, moves = {"clipped_gradient": nu}, np.zeros(len(run_ids))
        return Transcript({"clipped_gradient": answers}, noise, moves, ledger)

    with pytest.raises(OsoError, match="is not finite; cannot compute a bound"):
        many_runs("online", 800, 0, train)
