"""The trio shell: settings, logging, process life, the bridge to the database; the lowest place trio may appear."""
