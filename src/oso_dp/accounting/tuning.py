"""The ways to account for the search of a grid, which columns and options call `selection`.

`COMPOSITION`: all N runs are released and paid for (Galli et al., "Experiments").
`RANDOM_STOPPING`: candidates are drawn at random from the grid, a random number of times, and only
the best is released (Papernot and Steinke 2022).
`SINGLE`: no search; each point of the grid stands for a guess whose one run spends the whole
budget. A study of public data looks at all guesses; releasing more than one would be a composition.
"""

from typing import Final

COMPOSITION: Final = "composition"
RANDOM_STOPPING: Final = "random_stopping"
SINGLE: Final = "single"
SEARCHES: Final = (COMPOSITION, RANDOM_STOPPING)
TUNING_ACCOUNTING: Final = (*SEARCHES, SINGLE)
