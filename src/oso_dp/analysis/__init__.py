"""From stored result rows to verdicts on the paper's claims; draws nothing.

Each step is a table that a script can use without the report:

    rows      `ResultSet.runs`, `ResultSet.evaluations`: as stored (`oso_dp.results.schema`)
    values    `ResultSet.values`: a row per run, by a rule for its checkpoint
              (`values.select_checkpoints`), with the keys of its cell, variant and grid point
              (`values.add_keys`)
    points    `ResultSet.points`: a row per grid point, aggregated over seeds
              (`values.grid_points`)
    cells     `ResultSet.best`, `.last`, `.cross_selected`: a row per grid, its best point by each
              rule (`values.select_best_points`); `cells.make_cells`: the same beside the paper's
              values (`cells.COLUMNS`)
    verdicts  `verdicts.judge_cells`: the cells with their verdicts, by equivalence tests
    claims    `claims.judge_claims`: a row per claim and data set, by the tests in `claim_tests`

Other modules: `load` (reads a results folder), `side_measurements`, `accounts` (epsilon from
ledgers), `study_statement`, `noise_tables`, `search_costs` (noise by tighter accounting),
`random_stopping`, `linear_scaling`, `untuned_runs`, `budget_strategies`, `selection_bias`,
`adaptation_signs`, `user_level_claims`, `pate`.
"""
