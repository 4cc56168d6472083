"""The report: `tables` and `figures`, a file for each, and the `page`; and a table for terminals."""
