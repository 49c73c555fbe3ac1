"""Statements only, one module per aggregate: they select, lock, insert and update, and decide nothing."""
