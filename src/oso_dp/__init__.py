"""Private learning with Online Sensitivity Optimization (Galli et al., AAAI 2024)."""

__version__ = "0.1.0"
