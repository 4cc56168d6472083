"""The paper's numbers beside ours: selection rules, tables, figures, the page."""
