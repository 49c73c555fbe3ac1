"""Processes that come and go: workers, dispatchers; and the recovery clock."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Index, Table, UniqueConstraint

from orbit.store.tables.columns import (
    TABLE_OPTIONS,
    big,
    digest,
    flag,
    identity,
    instant,
    metadata,
    name,
    number,
    small,
    words,
)

worker_sessions = Table(
    "worker_sessions",
    metadata,
    identity("worker_ref", "工作进程登记标识，跨重连不变", key=True),
    identity("application_id", "所属应用"),
    identity("namespace_id", "所属命名空间"),
    identity("credential_id", "登记所用凭据"),
    identity("worker_id", "进程自报的随机身份，每次进程启动不同"),
    digest("registration_digest", "队列、处理器与资源键声明的摘要；同一进程不得改变"),
    identity("session_id", "当前会话标识；旧会话的消息一律失效"),
    big("generation", "会话代次，每次接管加一"),
    identity("dispatcher_id", "承载当前会话的派发进程"),
    words("name", 191, "供人识别的名称；没有为 NULL", null=True),
    name("sdk", 64, "客户端库名称与版本"),
    number("capacity", "最多同时持有的尝试数，1–1000"),
    flag("concurrency_keys", "1 表示声明支持资源键；否则只领取无键任务"),
    instant("connected_at", "当前会话建立时刻，UTC"),
    instant("ended_at", "当前会话结束时刻，UTC；仍连接或未知为 NULL", null=True),
    UniqueConstraint("namespace_id", "credential_id", "worker_id"),
    UniqueConstraint("session_id"),
    Index("ix_worker_sessions_dispatcher", "dispatcher_id", "ended_at"),
    comment="工作会话：进程身份、固定登记与当前代次；删除它不影响任何租约",
    **TABLE_OPTIONS,
)

dispatchers = Table(
    "dispatchers",
    metadata,
    identity("dispatcher_id", "派发进程实例标识，每次启动不同", key=True),
    words("url", 512, "工作进程连接地址，ws 或 wss"),
    words("hint_address", 64, "唤醒提示的 UDP 地址，主机:端口；没有为 NULL", null=True),
    number("sessions", "心跳时的会话数，供客户端选择最空闲者"),
    instant("started_at", "启动时刻，UTC"),
    instant("heartbeat_at", "最近心跳，UTC，每 5 秒；15 秒无心跳视为失联"),
    Index("ix_dispatchers_heartbeat", "heartbeat_at"),
    comment="派发进程登记：供工作进程发现与唤醒提示；不授予任何权限",
    **TABLE_OPTIONS,
)

recovery_clock = Table(
    "recovery_clock",
    metadata,
    small("id", "固定为 1，保证只有一行", key=True),
    instant("beat_at", "恢复进程最近一次跳动，UTC，每秒"),
    instant("grace_until", "在此之前不判定租约到期，UTC；停机后留给工作进程续租"),
    CheckConstraint("id = 1", name="single"),
    comment="恢复时钟：停机、失联或时钟跳变后的宽限",
    **TABLE_OPTIONS,
)
