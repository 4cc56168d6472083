"""Diagnostics that compare sanitized with true gradients. For public data only: not private.

The results explain the methods; no method may use them.
"""
