"""orbit-api: the HTTP API. It parses, calls one transaction or read, and renders; it decides nothing."""
