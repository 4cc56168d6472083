"""Stored runs trained again, and held against what was stored."""
