"""scikit-learn's breast-cancer table: 30 numbers for each of 569 patients, benign or malignant."""

import numpy as np

import oso_dp

# The largest value of each column, as the table's description has it. Not computed here: what is
# computed of the data themselves would be a release without noise.
LARGEST = [
    *(28.11, 39.28, 188.5, 2501.0, 0.163, 0.345, 0.427, 0.201, 0.304, 0.097),
    *(2.873, 4.885, 21.98, 542.2, 0.031, 0.135, 0.396, 0.053, 0.079, 0.03),
    *(36.04, 49.54, 251.2, 4254.0, 0.223, 1.058, 1.252, 0.291, 0.664, 0.208),
]


def load():
    """The first 455 patients to train with, the other 114 to test."""
    from sklearn.datasets import load_breast_cancer

    table, diagnoses = load_breast_cancer(return_X_y=True)
    inputs = (2 * table / LARGEST - 1).astype(np.float32)
    targets = diagnoses.astype(np.int64)
    return oso_dp.Arrays(inputs[:455], targets[:455], inputs[455:], targets[455:])


def model():
    """Logistic regression, with a weight for each class."""
    from torch import nn

    return nn.Linear(30, 2)


data_set = oso_dp.UserDataset(
    load=load,
    model=model,
    version="1",
    examples=455,
    test_examples=114,
    input_shape=(30,),
    classes=2,
    public=False,
)
