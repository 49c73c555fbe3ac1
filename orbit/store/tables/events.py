"""What happened: receipts, results in order, state changes, audits of management commands."""

from __future__ import annotations

from sqlalchemy import Index, Table

from orbit.store.tables.columns import (
    TABLE_OPTIONS,
    big,
    digest,
    exact,
    identity,
    instant,
    metadata,
    name,
    words,
)

receipts = Table(
    "receipts",
    metadata,
    digest("receipt_id", "SHA-256(应用、命名空间、动作、幂等键)，一个命令身份一行", key=True),
    identity("application_id", "所属应用"),
    digest("request_digest", "规范化命令的 SHA-256，同键不同内容据此拒绝"),
    identity("resource_id", "受理产生或操作的资源标识"),
    exact("body", 1024, "冻结的首次答复，最多 1 KiB；任务提交为 NULL，由冻结列重建", null=True),
    instant("created_at", "首次受理时刻，UTC，数据库时间"),
    comment="回执：已受理命令的身份与首次答复；任务的回执随任务清理",
    **TABLE_OPTIONS,
)

namespace_streams = Table(
    "namespace_streams",
    metadata,
    identity("namespace_id", "命名空间标识", key=True),
    big("last_sequence", "已分配的最大结果序号，即提交水位；在本行锁下分配"),
    comment="结果流：每个命名空间一行，事务中最后加锁",
    **TABLE_OPTIONS,
)

result_events = Table(
    "result_events",
    metadata,
    identity("namespace_id", "命名空间标识", key=True),
    big("sequence", "流内序号，从 1 起连续，与状态同事务提交", key=True),
    identity("queue_id", "任务所属队列"),
    identity("task_id", "任务标识"),
    big("epoch", "使其终结或待核查的尝试序号；从未领取为 0"),
    name("task_state", 16, "进入的状态：SUCCEEDED、FAILED、CANCELLED 或 NEEDS_REVIEW"),
    name("error_code", 64, "失败代码；没有为 NULL", null=True),
    instant("occurred_at", "发生时刻，UTC，数据库时间"),
    comment="结果事件：任务每次进入终态或待核查一行，供可靠订阅",
    **TABLE_OPTIONS,
)

state_events = Table(
    "state_events",
    metadata,
    identity("resource_id", "发生变化的资源标识", key=True),
    big("revision", "变化后的资源版本", key=True),
    identity("namespace_id", "所属命名空间"),
    name("resource_kind", 32, "资源种类：queue、task 等"),
    name("from_state", 16, "变化前的状态；创建为 NULL", null=True),
    name("to_state", 16, "变化后的状态"),
    instant("occurred_at", "发生时刻，UTC，数据库时间"),
    comment="状态事件：只追加；队列等每次变化一行，任务每次终结或待核查一行",
    **TABLE_OPTIONS,
)

audits = Table(
    "audits",
    metadata,
    identity("audit_id", "审计标识", key=True),
    identity("application_id", "所属应用"),
    identity("namespace_id", "所属命名空间"),
    identity("credential_id", "发起操作的凭据；由管理命令行发起为 NULL", null=True),
    name("action", 64, "操作的动作名，如 queues:manage"),
    name("resource_kind", 32, "被操作资源的种类"),
    identity("resource_id", "被操作资源的标识"),
    words("reason", 1024, "操作者给出的原因，最多 1024 个字符；可为空串"),
    words("details", 4096, "操作要点的 JSON 文本，不含秘密"),
    instant("created_at", "操作时刻，UTC，数据库时间"),
    Index("ix_audits_resource", "resource_id", "created_at"),
    comment="审计：管理命令一次一行，与其改动同事务提交",
    **TABLE_OPTIONS,
)
