"""Orbit: durable work coordinated by nothing but MySQL."""

__version__ = "0.1.0"
