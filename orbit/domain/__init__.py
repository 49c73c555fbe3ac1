"""Pure rules shared by every part of Orbit; no I/O, no database, no event loop."""
