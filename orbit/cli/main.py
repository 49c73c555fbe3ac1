"""`orbit`: the user's command."""

from __future__ import annotations

import importlib

import click

EPILOG = """
\b
Examples:
  orbit up                       everything on this machine until Ctrl-C
  orbit demo                     one real job from nothing to its verdict
  orbit queues list
  orbit tasks submit --queue default --handler hello --payload '{"to": "you"}'

Commands on queues and tasks use ORBIT_URL and the token in ORBIT_TOKEN or ORBIT_CREDENTIALS_FILE; without them, the
credential that `orbit up` left in ORBIT_HOME. Shell completion: eval "$(_ORBIT_COMPLETE=bash_source orbit)".
Exit codes: 0 done, 1 refused or failed, 2 wrong usage.
"""

# Loaded when asked for: `orbit --help` needs no database driver and no event loop.
COMMANDS = {
    "up": ("orbit.cli.up", "up"),
    "demo": ("orbit.cli.demo", "demo"),
    "doctor": ("orbit.cli.doctor", "doctor"),
    "queues": ("orbit.cli.queues", "queues"),
    "tasks": ("orbit.cli.tasks", "tasks"),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name]
        try:
            command: click.Command = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name != "orbit_sdk":
                raise
            return without_sdk(cmd_name)
        return command


def without_sdk(name: str) -> click.Command:
    """Return a command that only says what it lacks."""

    def refuse(**_: object) -> None:
        raise click.ClickException(f"orbit {name} needs the package orbit-sdk beside orbit")

    lenient = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, callback=refuse, help="Needs the package orbit-sdk.", context_settings=lenient)


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="orbit")
def main() -> None:
    """Durable tasks, coordinated by nothing but MySQL."""


if __name__ == "__main__":
    main()
