"""From stored rows to claims, with pandas alone: whatever a report shows can be had here as data.

One direction, each station a table with a name:

    rows      `Study.runs`, `Study.evaluations`: as stored (`oso_dp.results.schema`)
    values    `Study.values`: a row per run, by a rule for its checkpoint
              (`checkpoint_rules.choose`), with the keys of its cell, setting and point
              (`keys.add_keys`)
    points    `Study.points`: a row per point of a grid, over its seeds (`points.grid_points`)
    cells     `Study.best`, `.last`, `.cross`: a row per grid, its best point by each rule
              (`points.best_of_grid`); `cells.cells`: the same beside the paper's values
              (`cells.COLUMNS`)
    verdicts  `cell_verdicts.judged_cells`: the cells with what is to be said of them, by the
              statistical rule in `verdicts`
    claims    `claims.judged`: a row per claim and data set, by the judges in `evidence`

Beside it: `accounts` (epsilon from ledgers), `noise`, `search_costs`, `random_stopping`,
`linear_scaling`.
"""
