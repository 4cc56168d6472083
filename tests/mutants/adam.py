"""Faults of the methods that step as Adam does: a step of another size than they say."""

from fault import Fault, of_kind

_FILE, _TEST = "methods/auto_wosm.py", "tests/methods/test_variants.py"

ADAM = of_kind(
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
    Fault(
        "Adam's first squares count as if there had been many before",
        "methods/base.py",
        'root = (memory["square"] / (1 - beta2**state.step)).sqrt()',
        'root = memory["square"].sqrt()',
        "tests/methods/test_methods.py",
    ),
    Fault(
        "DP-Adam takes the squares' decay for both averages",
        "methods/dp_adam.py",
        "own.beta1, own.beta2",
        "own.beta2, own.beta2",
        "tests/methods/test_methods.py",
    ),
)
