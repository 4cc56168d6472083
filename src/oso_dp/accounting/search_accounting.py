"""The ways to account for the search of a grid, which columns and options call `selection`.

`COMPOSITION`: all N runs are released and paid for (Galli et al., "Experiments").
`RANDOM_STOPPING`: candidates are drawn at random from the grid, a random number of times, and only
the best is released (Papernot and Steinke 2022).
`SINGLE`: no search; each point of the grid stands for a guess whose one run spends the whole
budget. A study of public data looks at all guesses; releasing more than one would be a composition.
`LINEAR_SCALING`: grids at small budgets, the trials, show how the best learning rate grows with
epsilon, and one final run is made where that points to for the rest of the budget (Panda et al.
2024). All trials and that one run are paid for. A study of public data has a final run at every
point of the grid, so that the one can be looked up; releasing more of them would cost more.
"""

from typing import Final

COMPOSITION: Final = "composition"
RANDOM_STOPPING: Final = "random_stopping"
SINGLE: Final = "single"
LINEAR_SCALING: Final = "linear_scaling"
GRID_SEARCHES: Final = (COMPOSITION, RANDOM_STOPPING)
# All runs of such a search have the same noise.
SINGLE_NOISE_SEARCHES: Final = (*GRID_SEARCHES, SINGLE)
SEARCH_ACCOUNTINGS: Final = (*SINGLE_NOISE_SEARCHES, LINEAR_SCALING)
