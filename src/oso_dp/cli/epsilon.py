"""`oso epsilon`: the epsilon of a hyperparameter search, from its noise multiplier."""

from oso_dp.accounting.search_accounting import COMPOSITION
from oso_dp.cli import calibration_options as options
from oso_dp.defaults import DELTA
from oso_dp.errors import OsoError


def epsilon(
    noise_multiplier: options.NoiseMultiplier = None,
    delta: options.Delta = None,
    examples: options.Examples = None,
    batch_size: options.BatchSize = None,
    epochs: options.Epochs = None,
    runs: options.Runs = None,
    accountant: options.AccountantOption = "rdp",
    search_accounting: options.SearchAccountingOption = None,
    stopping_distribution: options.StoppingDistribution = None,
    trial_fractions: options.TrialFractionsOption = None,
    show_noise_split: options.QueryNoise = False,
    query_noise_ratio: options.QueryNoiseRatio = None,
    as_json: options.AsJson = False,
) -> None:
    """Compute the epsilon of a hyperparameter search from the noise multiplier of its runs."""
    if noise_multiplier is None:
        raise OsoError("--noise-multiplier: missing; must be set")
    ratio = options.parse_query_noise_ratio(show_noise_split, query_noise_ratio)
    size = examples, batch_size, epochs, runs
    search = options.make_search(*size, search_accounting, stopping_distribution, trial_fractions)
    delta = DELTA if delta is None else delta
    spent = search.epsilon(noise_multiplier, delta, accountant)
    entry = options.make_answer(
        search_accounting or COMPOSITION, search, noise_multiplier, spent, delta, accountant
    )
    options.add_trial_noise(entry, search)
    options.print_answer(entry, ratio, as_json)
    options.warn_large_delta(delta, examples)
