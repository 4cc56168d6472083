"""Privacy auditing: empirical lower bounds on epsilon from membership inference on canaries.

Canaries (examples whose contribution is known) are inserted into the data, the actual training
code runs, and an auditor who sees all sanitized answers guesses which canaries were present. Their
accuracy bounds epsilon from below. Correct code must stay below the epsilon of its ledger; planted
faults must exceed it, which shows that the audit has power.
"""
