"""Faults of AUTO-WOSM: a step of another size than it says."""

from fault import Fault, of_kind

_FILE, _TEST = "methods/auto_wosm.py", "tests/methods/test_variants.py"

AUTO_WOSM = of_kind(
    "reported",
    Fault(
        "AUTO-WOSM takes its first steps as if there had been many before",
        _FILE,
        "(1 - beta1) / (1 + beta1) * (1 - beta1 ** (2 * state.step))",
        "(1 - beta1) / (1 + beta1)",
        _TEST,
    ),
    Fault(
        "AUTO-WOSM divides by the noise of one gradient",
        _FILE,
        "state.learning_rate / (noise_std * math.sqrt(squares))",
        "state.learning_rate / noise_std",
        _TEST,
    ),
    Fault(
        "AUTO-WOSM's step does not know the batch size",
        _FILE,
        "state.noise_multiplier * state.threshold / state.batch_size",
        "state.noise_multiplier * state.threshold / 100",
        _TEST,
    ),
)
