"""`orbit`: what people use. Runs everything on one machine, and speaks to the HTTP API."""
