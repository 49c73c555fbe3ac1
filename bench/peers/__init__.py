"""Orbit's part in measurements beside other systems."""
