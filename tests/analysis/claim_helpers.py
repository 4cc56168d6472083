"""Evidence for claims, made by hand."""

import math

import pandas as pd

from oso_dp import labels
from oso_dp.analysis.claim_tests import ClaimData
from oso_dp.paper.best_points import all_points


def cells(*rows, dataset="mnist", k=9):
    """A cell per (method, epsilon, mean, std[, seeds])."""
    metric = "mse" if dataset == "fashion_mnist" else "accuracy"
    return pd.DataFrame(
        [
            {
                "dataset": dataset,
                "k": k,
                "epsilon": float(epsilon),
                "method": method,
                "metric": metric,
                "status": "diverged" if math.isnan(mean) else "run",
                "mean": mean,
                "std": std,
                "seeds": seeds[0] if seeds else 5,
            }
            for method, epsilon, mean, std, *seeds in rows
        ]
    )


def papers_point(method, k, epsilon):
    """MNIST's, as arguments of a store's row."""
    (point,) = (
        vars(one)
        for one in all_points()
        if (one.dataset, one.method, one.k, one.epsilon) == ("mnist", method, k, epsilon)
    )
    names = ("method", "k", "epsilon", "learning_rate", *labels.searched_axes(method))
    return {name: point[name] for name in names}


def both(online, rival, std=0.3, **more):
    """Online and FixedThreshold at each of MNIST's budgets, at all k."""
    rows = [
        (m, e, v, std)
        for e in (3, 5, 7, 9)
        for m, v in (("online", online), ("fixed_threshold", rival))
    ]
    return ClaimData(pd.concat([cells(*rows, k=k, **more) for k in (5, 7, 9)]))


def times(ratio, low, high, **other):
    row = {"dataset": "mnist", "model": "cnn", "device": "a cpu", "precision": "float32"}
    row |= {"method": "online", "rival": "fixed_threshold", "turns": 12}
    return {**row, "ratio": ratio, "low": low, "high": high, **other}
