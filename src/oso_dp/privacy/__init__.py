"""The privacy mechanism: Poisson sampling, queries and their sensitivities, Gaussian noise, ledger.

This is the only package that releases values computed from the training data.
"""
