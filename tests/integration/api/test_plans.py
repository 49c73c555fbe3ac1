"""The lists' statements read their index in order: no sort, no scan, whatever the filters."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest

from orbit.domain.keys import key_digest
from orbit.store.session import Session
from orbit.store.sql.task_lists import TaskPage, page_statement
from tests.support.pulse import Pulse

MOMENT = datetime(2026, 1, 1)
FILTERS: list[tuple[dict[str, Any], str]] = [
    ({}, "ix_tasks_list"),
    ({"state": "WAITING"}, "ix_tasks_list_state"),
    ({"business_key_digest": key_digest("k")}, "ix_tasks_list_business"),
    ({"state": "WAITING", "business_key_digest": key_digest("k")}, "ix_tasks_list_business"),
    ({"created_from": MOMENT, "after": (datetime(2100, 1, 1), b"\xff" * 16)}, "ix_tasks_list"),
    (
        {"state": "WAITING", "created_before": datetime(2100, 1, 1), "created_from": MOMENT},
        "ix_tasks_list_state",
    ),
]


@pytest.mark.parametrize(("filters", "index"), FILTERS)
def test_a_page_of_tasks_is_a_range_of_its_index(
    session: Session, pulse: Pulse, filters: dict[str, Any], index: str
) -> None:
    """EXPLAIN names the index and no sort."""
    pulse.submit_many(64, business_key="k")
    sql, params = page_statement(TaskPage(queue_id=pulse.tenant.queue_id, limit=21, **filters))
    plan = session.run(lambda tx: tx.rows(f"EXPLAIN {sql}", params))
    # One row in a tree's words on MySQL, one in columns on MariaDB.
    assert len(plan) == 1
    text = " | ".join(map(str, plan[0]))
    assert index in re.findall(r"\w+", text)
    assert not re.search(r"sort|Table scan|\bALL\b", text, re.IGNORECASE), text


def test_a_page_reads_no_more_rows_than_it_shows(session: Session, pulse: Pulse) -> None:
    """However deep the list: the server's own count of rows read for one page."""
    pulse.submit_many(256)

    def work(tx: Any) -> int:
        first = page_statement(TaskPage(queue_id=pulse.tenant.queue_id, limit=200))
        rows = tx.rows(*first)
        last = rows[-1]
        created_at, task_id = last[-3], last[0]
        page = page_statement(TaskPage(queue_id=pulse.tenant.queue_id, limit=21, after=(created_at, task_id)))
        before = handler_reads(tx)
        assert len(tx.rows(*page)) == 21
        return handler_reads(tx) - before

    assert session.run(work) < 21 + 128  # one group of submits shares its creation time


def handler_reads(tx: Any) -> int:
    rows = tx.rows("SHOW SESSION STATUS LIKE 'Handler_read%'")
    return sum(int(value) for name, value in rows if "rnd_next" not in name)
