"""Command lines for operators, which talk to the database itself."""
