"""What the paper prints, as data."""
