"""What every command shares: who asks, receipts, the ledger of events and audits."""
