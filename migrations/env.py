"""What alembic runs for every command: bind the connection, or write SQL when there is none."""

from __future__ import annotations

from typing import Any

from alembic import context
from alembic.ddl.mysql import MySQLImpl
from sqlalchemy import Table

VERSION_TABLE_COMMENT = "结构版本：本库已应用的最新迁移，仅一行"
VERSION_COMMENT = "最新已应用迁移的编号，如 000001；由 orbit-migrate 写入，进程启动时核对"


class CommentedImpl(MySQLImpl):
    """MySQL and MariaDB as alembic knows them, with a version table that is as well described as the others."""

    __dialect__ = "mysql"

    def version_table_impl(self, **options: Any) -> Table:
        table = super().version_table_impl(**options)
        table.comment = VERSION_TABLE_COMMENT
        table.c.version_num.comment = VERSION_COMMENT
        for option, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin")):
            table.kwargs[f"mysql_{option}"] = value
        return table


def run_online(engine: Any) -> None:
    with engine.connect() as connection:
        context.configure(connection=connection, transaction_per_migration=True)
        with context.begin_transaction():
            context.run_migrations()


def run_offline() -> None:
    context.configure(dialect_name="mysql", literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    run_offline()
else:
    run_online(context.config.attributes["engine"])
