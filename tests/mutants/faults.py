"""Every fault. `python tests/mutants` plants them one by one; the tests of each must fail."""

from books import LEDGER, METHODS, PRICE
from noise import NOISE, SAMPLING
from reach import REACH
from sensitivity import SENSITIVITY

FAULTS = [*NOISE, *SAMPLING, *SENSITIVITY, *LEDGER, *PRICE, *METHODS, *REACH]
