"""The one home of SQL: tables, statements, connections and the transaction runner."""
