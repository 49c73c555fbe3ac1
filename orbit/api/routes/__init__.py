"""The endpoints, one module per resource: authenticate, parse, call, render."""
