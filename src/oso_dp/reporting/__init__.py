"""The report of a study: tables, figures, an HTML page and a terminal summary.

`tables` and `figures` have one module for each table or figure, `page` makes `index.html`,
`summary` the table of `oso summary`, and `update_docs` the marked blocks of the documentation.
"""
