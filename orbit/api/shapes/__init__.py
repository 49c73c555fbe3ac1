"""What travels over HTTP: one module per resource; the API's description reads the same types."""
