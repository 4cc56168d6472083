"""The report's page: what comes first, and where each table and figure stands."""
