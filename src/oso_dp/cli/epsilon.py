"""`oso epsilon`: what a hyperparameter search with a given noise costs."""

from oso_dp.cli import search_options as options
from oso_dp.cli.search_options import Accountant
from oso_dp.errors import OsoError


def epsilon(
    noise_multiplier: options.NoiseMultiplier = None,
    delta: options.Delta = None,
    examples: options.Examples = None,
    batch_size: options.BatchSize = None,
    epochs: options.Epochs = None,
    runs: options.Runs = None,
    accountant: options.AccountantOption = Accountant.RDP,
    tuning_accounting: options.TuningAccountingOption = None,
    shape: options.Shape = None,
    trial_shares: options.TrialSharesOption = None,
    query_noise: options.QueryNoise = False,
    query_noise_ratio: options.QueryNoiseRatio = None,
    as_json: options.AsJson = False,
) -> None:
    """Find the epsilon of a whole search whose runs have this noise multiplier."""
    if noise_multiplier is None:
        raise OsoError("--noise-multiplier: must be given")
    ratio = options.ratio_of(query_noise, query_noise_ratio)
    size = examples, batch_size, epochs, runs
    search = options.search_of(*size, tuning_accounting, shape, trial_shares)
    delta = options.DELTA if delta is None else delta
    spent = search.epsilon(noise_multiplier, delta, accountant.value)
    entry = options.entry_of(search, noise_multiplier, spent, delta, accountant.value)
    options.add_trials(entry, search)
    options.say(entry, ratio, as_json)
    options.say_large_delta(delta, examples)
