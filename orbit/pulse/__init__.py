"""Pulse: queues, tasks, attempts and keys, as functions over lists of commands inside one open transaction."""
