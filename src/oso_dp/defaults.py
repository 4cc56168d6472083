"""Default values, choices and limits that commands, studies and functions share."""

from typing import Final, Literal

MAX_COUNT: Final = 10**9  # of examples, steps, runs

LossReduction = Literal["mean", "sum"]
PrecisionName = Literal["float32", "tf32", "bfloat16"]

# Of a training, as in the paper.
BATCH_SIZE: Final = 512  # expected
EPOCHS: Final = 10
DELTA: Final = 1e-5
MOMENTUM: Final = 0.9
QUERY_NOISE_RATIO: Final = 7.124  # nu_q / nu of Online: costs 1 % more gradient noise

# Of the number of runs under random stopping: it needs the least noise.
STOPPING_DISTRIBUTION: Final = "logarithmic"

# Relative tolerance of comparisons between noise multipliers, and between an epsilon and its
# budget: the arithmetic of two machines, or of two orders of one sum, differs in the last digits.
ROUNDING: Final = 1e-9
