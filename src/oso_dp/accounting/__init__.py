"""What was released costs: epsilon of ledgers and of whole searches, and the noise for a budget."""
