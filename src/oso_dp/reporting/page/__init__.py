"""The report's HTML page: summary sentences, verdict matrix and sections."""
