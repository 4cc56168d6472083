"""Reruns: trains stored runs again and compares the results (`oso verify`)."""
