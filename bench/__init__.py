"""Benchmarks of Orbit: every figure of docs/performance.md comes from here."""
