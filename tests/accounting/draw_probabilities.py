"""The distribution of the number of runs, by its own formula."""

import math


def probabilities(mean, shape, most):
    """P[K = k] for k = 0 to `most`, from the distribution's own formula (Definition 1)."""
    if math.isinf(shape):
        return [math.exp(-mean) * mean**k / math.factorial(k) for k in range(most + 1)]
    low, high = 1e-12, 1.0
    for _ in range(200):  # the mean falls with gamma
        gamma = (low + high) / 2
        if shape == 0:
            at = (1 / gamma - 1) / math.log(1 / gamma)
        else:
            at = shape * (1 / gamma - 1) / (1 - gamma**shape)
        low, high = (gamma, high) if at > mean else (low, gamma)
    if shape == 0:
        return [0.0] + [(1 - gamma) ** k / (k * math.log(1 / gamma)) for k in range(1, most + 1)]
    weight, chances = 1.0, [0.0]
    for k in range(1, most + 1):
        weight *= (1 - gamma) * (k - 1 + shape) / k
        chances.append(weight / (gamma**-shape - 1))
    return chances
