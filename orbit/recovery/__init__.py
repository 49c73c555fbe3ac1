"""`orbit-recover`: ends leases and deadlines that have passed, and clears away what nothing needs any more."""
