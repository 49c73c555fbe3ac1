"""docs/cli.md, made from the command lines' own help: `python -m tests.architecture.cli_reference >docs/cli.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from orbit.admin.main import main as orbit_admin
from orbit.admin.migrate import main as orbit_migrate
from orbit.cli.main import main as orbit
from orbit.runtime.usage import usage

WIDTH = 100
PROGRAMS: dict[str, click.Command] = {
    "orbit": orbit,
    "orbit-admin": orbit_admin,
    "orbit-migrate": orbit_migrate,
}
DAEMONS = ("api", "dispatch", "recover")
INTRODUCTION = """\
# Command lines

Written by `python -m tests.architecture.cli_reference >docs/cli.md` from the programs' own `--help`.

`orbit` speaks to the HTTP API, `orbit-admin` and `orbit-migrate` to the database. `orbit-api`, `orbit-dispatch` and
`orbit-recover` take no options but [environment variables](configuration.md); they exit 1 with one line for a bad
setting, a database that can't be reached for 30 s, an unknown schema, or an address in use.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage. With `--json` the answer is one JSON document, a failure
`{"error": {"code", "message"}}`; codes are those of [errors.md](errors.md).
"""


def render() -> str:
    """Return the whole page."""
    parts = [INTRODUCTION]
    for name, program in PROGRAMS.items():
        for context, command in _commands(name, program, None):
            level = "##" if context.parent is None else "###"
            text = command.get_help(context).rstrip()
            parts.append(f"{level} {context.command_path}\n\n```text\n{text}\n```\n")
    parts += [f"## orbit-{name}\n\n```text\n{usage(name).rstrip()}\n```\n" for name in DAEMONS]
    return "\n".join(parts)


def _commands(
    name: str, command: click.Command, parent: click.Context | None
) -> Iterator[tuple[click.Context, click.Command]]:
    context = click.Context(
        command, info_name=name, parent=parent, terminal_width=WIDTH, **command.context_settings
    )
    yield context, command
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from _commands(child, found, context)


if __name__ == "__main__":
    sys.stdout.write(render())
