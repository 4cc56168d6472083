"""`import oso_dp`: its public names, and nothing that takes time until one of them is used."""

import subprocess
import sys

import oso_dp

SLOW = ("torch", "numpy", "pandas", "opacus", "dp_accounting", "snakemake", "matplotlib")


def test_the_package_loads_nothing_slow_until_it_is_used() -> None:
    code = (
        f"import sys, oso_dp; print([name for name in {SLOW} if name in sys.modules]); "
        "oso_dp.train_private; print('torch' in sys.modules, 'opacus' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "True False"]


def test_every_public_name_is_there_and_documented() -> None:
    for name in oso_dp.__all__:
        assert (getattr(oso_dp, name).__doc__ or "").strip()
    assert oso_dp.__all__ == sorted(oso_dp.__all__)
