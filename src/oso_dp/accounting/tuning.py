"""The two ways to account for the search of a grid, which columns and options call `selection`.

`COMPOSITION`: all N runs are released and paid for (Galli et al., "Experiments").
`RANDOM_STOPPING`: candidates are drawn at random from the grid, a random number of times, and only
the best is released (Papernot and Steinke 2022).
"""

from typing import Final

COMPOSITION: Final = "composition"
RANDOM_STOPPING: Final = "random_stopping"
TUNING_ACCOUNTING: Final = (COMPOSITION, RANDOM_STOPPING)
