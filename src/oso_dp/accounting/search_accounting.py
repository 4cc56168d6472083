"""The values of `search_accounting`: how the privacy cost of a hyperparameter search is counted.

`COMPOSITION`: all N runs are released and counted (Galli et al. 2024, "Experiments").
`RANDOM_STOPPING`: a random number of random grid points is trained, and only the best is released
(Papernot and Steinke 2022).
`SINGLE`: no search; each grid point is an untuned run that spends the complete budget. A study of
public data evaluates all of them; releasing more than one would be a composition.
`LINEAR_SCALING`: trials, grids at small budgets, show how the best learning rate grows with
epsilon, and one final run uses the predicted rate (Panda et al. 2024). All trials and one final run
are counted. A study of public data has a final run at each grid point, to look that one up;
releasing more of them would cost more.
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
