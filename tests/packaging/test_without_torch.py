"""What trains nothing does not wait for torch to load: two seconds, and 200 MB."""

import subprocess
import sys

# Rooms whose every file is imported by commands that plan, collect, price and list.
ROOMS = ("accounting", "analysis", "cli", "methods", "paper", "results", "study")

LOAD = """
import importlib, pkgutil, sys
for room in sys.argv[1:]:
    package = importlib.import_module(f"oso_dp.{room}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
        if "torch" in sys.modules:
            sys.exit(f"{module.name} loads torch")
"""


def test_plans_results_and_prices_are_read_without_torch() -> None:
    done = subprocess.run([sys.executable, "-c", LOAD, *ROOMS], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
