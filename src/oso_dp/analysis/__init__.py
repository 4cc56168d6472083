"""From stored rows to verdicts, with pandas alone: whatever a report shows can be had here as data.

One direction: rows -> values of runs by a rule (`checkpoint_rules`) -> grid `points` over seeds ->
`cells` beside the paper's -> `verdicts` -> `claims`, whose kinds are in `evidence`. Beside it:
`accounts` (epsilon from ledgers), `noise`, `search_costs`, `random_stopping`.
"""
