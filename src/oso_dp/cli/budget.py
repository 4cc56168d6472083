"""`oso budget`: the older name of `oso calibrate`, and of `oso epsilon` with --noise-multiplier."""

from oso_dp.cli import search_options as options
from oso_dp.cli.calibrate import ConfigFile, calibrate
from oso_dp.cli.epsilon import epsilon as epsilon_command
from oso_dp.cli.search_options import Accountant
from oso_dp.errors import OsoError


def budget(
    epsilon: options.Epsilon = None,
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
    config: ConfigFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Call `oso calibrate`, or, with --noise-multiplier, `oso epsilon`."""
    if config is None and (epsilon is None) == (noise_multiplier is None):
        raise OsoError("give one of --epsilon and --noise-multiplier (or a study's --config)")
    if config is not None and noise_multiplier is not None:
        raise OsoError(f"--noise-multiplier: --config {config} brings its own; leave it out")
    size = delta, examples, batch_size, epochs, runs
    search = *size, accountant, tuning_accounting, shape, trial_shares
    split = query_noise, query_noise_ratio
    if noise_multiplier is None:
        calibrate(epsilon, *search, *split, config, as_json)
    else:
        epsilon_command(noise_multiplier, *search, *split, as_json)
