"""The only room that decides what leaves the training data: sampling, queries, noise, ledger, price."""
