"""`orbit-admin`: what an operator does in the database itself, past all credentials."""

from __future__ import annotations

import click

from orbit.admin.applications import applications
from orbit.admin.bootstrap import bootstrap
from orbit.admin.credentials import credentials
from orbit.admin.quotas import quotas

EPILOG = """
\b
Examples:
  orbit-admin bootstrap --application shop --namespace orders --environment prod \\
      --queue default --worker-access --output shop.credentials.json
  orbit-admin credentials list --application shop
  orbit-admin credentials revoke 018f2c6e9d0b7a3c5e1f20a4b6c8d0e2 --reason "left the team"
  orbit-admin quotas set --application shop --max-unfinished 5000000

Exit codes: 0 done, 1 refused or failed, 2 wrong usage.
"""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Manage applications, credentials and quotas. Talks to MySQL; needs ORBIT_MYSQL_DSN."""


main.add_command(bootstrap)
main.add_command(credentials)
main.add_command(applications)
main.add_command(quotas)

if __name__ == "__main__":
    main()
