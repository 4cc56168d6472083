"""Attacks on our own training, to bound from below how private it really is.

Examples with a known footprint (canaries) are hidden in the data, the real training runs, and an
auditor who sees every sanitized answer guesses which canaries took part. How well it can guess
bounds epsilon from below, whatever the proofs say. Right code must stay below the epsilon that its
ledger claims. Since an audit that sees nothing would pass anything, faults are planted on purpose,
and the same audit must see them.
"""
