"""What can go wrong with a private database, each with one line that says what to do."""

from __future__ import annotations


class LocalDatabaseError(Exception):
    """A private database can't be had, started or opened."""


class AptError(LocalDatabaseError):
    """The distribution's packages can't be fetched."""


class ServerMissing(LocalDatabaseError):
    """No supported server binary, and none could be fetched."""


class HomeMismatch(LocalDatabaseError):
    """The data directory was made by another flavour or by a later release."""


class InstanceBusy(LocalDatabaseError):
    """Another live process supervises this instance."""


class PortTaken(LocalDatabaseError):
    """Another program listens on the instance's port."""
