"""Private database instances: a real MySQL or MariaDB under one directory, without root and without set-up.

`orbit up`, the tests and the benchmarks use it (01-architecture "The embedded default"). Nothing here is needed where
`ORBIT_MYSQL_DSN` names a database.
"""
