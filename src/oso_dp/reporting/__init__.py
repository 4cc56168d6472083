"""The report: `tables` and `figures`, a file for each, the `page`, and a table for terminals."""
