"""Faults of AUTO-DoG: noise that passes as signal, a rate of another size than it says."""

from fault import Fault, of_kind

_FILE, _TEST = "methods/auto_dog.py", "tests/methods/test_auto_dog.py"


def _fault(name: str, old: str, new: str) -> Fault:
    return Fault(name, _FILE, old, new, _TEST)


AUTO_DOG = of_kind(
    "reported",
    _fault(
        "AUTO-DoG's distance is that of signal and noise",
        "signal = (moved - most).clamp(min=0).sqrt()",
        "signal = moved.sqrt()",
    ),
    _fault(
        "AUTO-DoG's gradients are those of signal and noise",
        "square * (_squared(gradient) - size * variance)",
        "square * _squared(gradient)",
    ),
    _fault(
        "AUTO-DoG forgets the noise of earlier steps",
        'memory["noise"] + rate**2 * variance',
        "rate**2 * variance",
    ),
    _fault(
        "AUTO-DoG's noise is not of the batch size",
        "state.threshold.double() / state.batch_size)",
        "state.threshold.double() / 100)",
    ),
    _fault(
        "AUTO-DoG's noise does not know C",
        "(state.noise_multiplier * state.threshold.double() / state.batch_size)",
        "(state.noise_multiplier / state.batch_size + 0 * state.threshold.double())",
    ),
    _fault(
        "AUTO-DoG comes back with theta",
        'distance = signal.maximum(memory["distance"])',
        'distance = signal.maximum(0.5 * memory["distance"])',
    ),
    _fault(
        "AUTO-DoG weighs all gradients alike",
        "square * (_squared(gradient) - size * variance)",
        "(_squared(gradient) - size * variance)",
    ),
)
