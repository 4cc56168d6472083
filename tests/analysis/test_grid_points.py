"""Which runs share a mean: those that answer one question, and no others."""

import itertools

import pytest
from tests.analysis.value_helpers import run_values

from oso_dp.analysis.values import VARIANT, grid_points, main_variants

# Two values of each column that makes another question of a run.
DIFFERENT = {
    "delta": (1e-5, 1e-6),
    "search_accounting": ("composition", "random_stopping"),
    "momentum": (0.9, 0.5),
    "sampling": ("poisson", "another"),
    "examples": (60_000, 59_999),
    "batch_size": (512, 256),
    "epochs": (10, 20),
    "noise_multiplier": (50.0, 60.0),
    "query_noise_multiplier": (400.0, 500.0),
    "precision": ("float32", "bfloat16"),
    "model": ("a", "b"),
    "method_options": ("threshold_rate=0.1", "threshold_rate=0.2"),
    "grid_runs": (9, 81),
    "evaluate_every": (50, 10),
    "final_activation": (False, True),
    "loss": ("mean", "sum"),
    "oov_words": ("zeros", "skipped"),
    "vocabulary": ("subset", "complete"),
    "randomness": ("seeded", "system"),
    "stopping_distribution": ("poisson", "geometric"),
    "schedule": ("linear", None),
    "averaging": (0.99, None),
    "stage": ("trial 1", "final"),
    "trial_fractions": ("0.1, 0.2", "0.1, 0.3"),
    "data_version": ("1", "2"),
    "budget_runs": (12, 13),
    "unit": ("user", None),
    "local": ("epochs=1", "epochs=2"),
}


def means(store) -> list[float]:
    points = grid_points(run_values(*store.frames()))
    assert points["seeds"].tolist() == [1] * len(points)
    return sorted(points["mean"].round(6))


@pytest.mark.parametrize("column", DIFFERENT)
def test_grid_points_separates_variants(column: str, store) -> None:
    """Runs that differ in one setting are two points, of which a cell shows one."""
    for seed, value in enumerate(DIFFERENT[column]):
        known = {"batch_size": 512, "noise_multiplier": 50.0, "query_noise_multiplier": 400.0}
        store.add(seed=seed, values=(0.5 + 0.4 * seed,), **known | {column: value})
    assert means(store) == [0.5, 0.9]
    points = grid_points(run_values(*store.frames()))
    assert points["variant_key"].nunique() == 2
    assert len(main_variants(points)) == 1  # one cell shows one of them


def test_variant_columns_fully_covered() -> None:
    assert DIFFERENT.keys() == {*VARIANT}


@pytest.mark.parametrize(
    ("column", "value"), [("learning_rate", 0.316228), ("threshold", 21.5443), ("quantile", 0.5)]
)
@pytest.mark.parametrize("apart", [1e-5, -1e-5, 3e-6])
def test_grid_points_separates_close_values(column, value, apart, store) -> None:
    """Hyperparameters that differ by a factor of 1 + 3e-6 are two points."""
    for seed, at in enumerate((value, value * (1 + apart))):
        store.add(seed=seed, values=(0.5 + 0.4 * seed,), **{column: at})
    assert means(store) == [0.5, 0.9]


@pytest.mark.parametrize("noise", [0.83724, 12.34567])
def test_grid_points_separates_close_noises(noise: float, store) -> None:
    """Noise multipliers that differ in the fifth decimal, the last of a plan, are two points."""
    for seed, more in enumerate((0.0, 1e-5)):
        store.add(seed=seed, values=(0.5 + 0.4 * seed,), noise_multiplier=noise + more)
    assert means(store) == [0.5, 0.9]


def setting(plain: bool, usual: bool, long: bool) -> dict:
    return {
        "schedule": None if plain else "linear",
        "momentum": 0.9 if usual else 0.5,
        "epochs": 10 if long else 20,
    }


def test_main_variants_ranks_schedule_momentum_epochs(store) -> None:
    """No schedule ranks first, then momentum, then epochs, whatever the number of runs."""
    pairs = [*itertools.combinations(itertools.product((True, False), repeat=3), 2)]
    for k, (shown, other) in enumerate(pairs, start=1):
        known = {"k": k, "noise_multiplier": 50.0}
        store.add(**known, values=(0.5,), **setting(*shown))
        for seed in range(3):
            store.add(**known, seed=seed, values=(0.9,), **setting(*other))
    main = main_variants(grid_points(run_values(*store.frames())))
    assert main.set_index("k")["mean"].to_dict() == {k: 0.5 for k in range(1, len(pairs) + 1)}
