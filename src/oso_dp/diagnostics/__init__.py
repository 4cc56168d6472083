"""Diagnostics: true gradients, users' updates, groups of test examples. Public data only.

The results explain the methods; no method may use them.
"""
