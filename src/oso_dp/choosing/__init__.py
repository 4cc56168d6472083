"""What to do with one privacy budget, by what was measured: `oso recommend`."""
