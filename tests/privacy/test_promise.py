"""The words of a statement say what the code does, and of whom."""

from oso_dp.privacy.promise import NEIGHBOURING, RANDOMNESS, UNIT
from oso_dp.privacy.rng_sources import SOURCES, SystemEntropy
from oso_dp.privacy.sampling import PoissonSampling


def test_neighbours_are_those_of_the_accountants() -> None:
    assert PoissonSampling.neighbouring == "add_or_remove_one"
    assert "differ by one example added or removed" in NEIGHBOURING
    assert UNIT.startswith("one example: one row")


def test_only_numbers_without_a_seed_are_said_to_protect() -> None:
    assert RANDOMNESS.keys() == SOURCES.keys()
    for name, said in RANDOMNESS.items():
        fresh = SOURCES[name] is SystemEntropy
        assert ("cannot be repeated" in said) == ("cryptographic" in said) == fresh
        assert ("the seed reveals the noise" in said) == (not fresh)
        assert ("For public data only" in said) == (not fresh)
