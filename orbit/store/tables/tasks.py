"""Tasks and their attempts; bodies are kept apart from the rows that change."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Index, PrimaryKeyConstraint, Table, UniqueConstraint
from sqlalchemy.dialects.mysql import MEDIUMBLOB

from orbit.store.tables.columns import (
    TABLE_OPTIONS,
    big,
    computed,
    digest,
    exact,
    identity,
    instant,
    metadata,
    name,
    number,
    small,
    words,
)

tasks = Table(
    "tasks",
    metadata,
    identity("task_id", "任务标识，128 位，大致按时间递增，不用于排序判断", key=True),
    identity("application_id", "所属应用"),
    identity("namespace_id", "所属命名空间"),
    identity("queue_id", "所属队列"),
    digest("lane_id", "所属车道，见 lanes", size=16),
    digest("receipt_id", "受理回执标识，清理任务时一并删除"),
    name("handler", 128, "处理器名称，受理时冻结"),
    name("handler_version", 64, "处理器版本，受理时冻结"),
    name("payload_version", 64, "载荷契约版本，受理时冻结"),
    exact("business_key", 764, "业务追踪键原字节；NULL 表示未给；不限制并发", null=True),
    digest("business_key_digest", "业务键的 SHA-256，供精确筛选；无业务键为 NULL", null=True),
    exact("concurrency_key", 764, "资源键原字节；NULL 表示无键；受理后不变", null=True),
    digest("key_digest", "资源键摘要；32 个零字节表示无键"),
    small("priority", "优先级 0–9，每级相当于提前 30 秒"),
    name(
        "state",
        16,
        "任务状态：WAITING、LEASED、SUCCEEDED、FAILED、CANCELLED、NEEDS_REVIEW；LEASED 表示有活跃尝试，是否 RUNNING 见该尝试",
    ),
    small("ready", "1 表示等待且已到时、可被领取；其余为 NULL，从而离开领取区间", null=True),
    instant("available_at", "最早可领取时刻，UTC；退避后更新"),
    instant("due_at", "等待且未到时的任务等于 available_at，其余为 NULL；供到时扫描", null=True),
    instant(
        "unstarted_deadline_at",
        "未开始时的最早截止（开始截止与总截止取小）；开始后或终结后为 NULL",
        null=True,
    ),
    computed(
        instant("dispatch_at", "生成列：available_at 减去 priority×30 秒，仅供排序，不代表就绪"),
        "available_at - INTERVAL (priority * 30) SECOND",
    ),
    instant("requested_available_at", "提交时给定的绝对可用时刻，UTC；未给为 NULL", null=True),
    big("delay_ms", "提交时给定的相对延迟，毫秒；未给为 NULL", null=True),
    instant("start_deadline_at", "开始截止时刻，UTC；NULL 表示没有", null=True),
    big("timeout_ms", "总时限，毫秒，含等待；NULL 表示没有", null=True),
    instant("deadline_at", "总截止时刻，UTC，受理时算定；NULL 表示没有", null=True),
    big("attempt_timeout_ms", "单次尝试时限，毫秒，从 Start 起；NULL 表示没有", null=True),
    small("max_attempts", "尝试预算 1–100，受理时冻结"),
    name("backoff", 16, "退避方式：NONE、FIXED、LINEAR、EXPONENTIAL"),
    big("backoff_initial_ms", "退避初值，毫秒"),
    big("backoff_max_ms", "退避上限，毫秒"),
    name("on_unknown", 16, "效果未知时：REVIEW 或 RETRY；NULL 表示未指定，按 REVIEW 处理", null=True),
    big("epoch", "最近一次尝试的序号，每次领取加一"),
    number("attempts_used", "已结束尝试中获准的 Start 数，即已用预算；活跃尝试自身的另计"),
    instant("cancel_requested_at", "首次取消意图的时刻，UTC；NULL 表示没有", null=True),
    name("error_code", 64, "最近一次失败的代码；NULL 表示没有", null=True),
    words("error_message", 4096, "最近一次失败的说明，最多 4 KiB；NULL 表示没有", null=True),
    big("revision", "任务版本，受理为 1，每次状态变化加一"),
    instant("created_at", "受理时刻，UTC，数据库时间"),
    instant("updated_at", "最近一次变化时刻，UTC，数据库时间"),
    instant("finished_at", "首次进入终态的时刻，UTC；之后不变；未终结为 NULL", null=True),
    CheckConstraint("priority <= 9", name="priority"),
    CheckConstraint("max_attempts BETWEEN 1 AND 100", name="max_attempts"),
    CheckConstraint(
        "state IN ('WAITING', 'LEASED', 'SUCCEEDED', 'FAILED', 'CANCELLED', 'NEEDS_REVIEW')",
        name="state",
    ),
    CheckConstraint("backoff IN ('NONE', 'FIXED', 'LINEAR', 'EXPONENTIAL')", name="backoff"),
    CheckConstraint("on_unknown IN ('REVIEW', 'RETRY')", name="on_unknown"),
    CheckConstraint("ready IS NULL OR (ready = 1 AND state = 'WAITING' AND due_at IS NULL)", name="ready"),
    CheckConstraint(
        "(finished_at IS NOT NULL) = (state IN ('SUCCEEDED', 'FAILED', 'CANCELLED'))", name="finished"
    ),
    Index("ix_tasks_claim", "lane_id", "ready", "dispatch_at", "task_id"),
    Index("ix_tasks_due", "due_at"),
    Index("ix_tasks_deadline", "unstarted_deadline_at"),
    Index("ix_tasks_list", "queue_id", "created_at", "task_id"),
    Index("ix_tasks_list_state", "queue_id", "state", "created_at", "task_id"),
    Index("ix_tasks_list_business", "queue_id", "business_key_digest", "created_at", "task_id"),
    comment="任务：受理的一件工作、其冻结策略与当前状态；不含载荷",
    **TABLE_OPTIONS,
)

task_payloads = Table(
    "task_payloads",
    metadata,
    identity("task_id", "任务标识", key=True),
    Column(
        "payload", MEDIUMBLOB, nullable=False, comment="提交时收到的 JSON 原文字节，最多 256 KiB，逐字节保留"
    ),
    comment="任务载荷：只插入，与频繁变化的任务行分开",
    **TABLE_OPTIONS,
)

attempts = Table(
    "attempts",
    metadata,
    identity("task_id", "任务标识"),
    big("epoch", "尝试序号，从 1 起，等于领取时任务的 epoch"),
    identity("attempt_id", "尝试标识，128 位；领取前由进程生成，可用于核对不明的提交"),
    identity("application_id", "所属应用"),
    identity("namespace_id", "所属命名空间"),
    identity("queue_id", "所属队列"),
    digest("key_digest", "资源键摘要；无键为 NULL", null=True),
    big("concurrency_token", "本次许可的资源键序号；无键为 NULL", null=True),
    name("state", 16, "尝试状态：LEASED、RUNNING 为活跃；其余为已结束"),
    identity("worker_ref", "执行进程，见 worker_sessions.worker_ref"),
    identity("session_id", "当前持有本尝试的会话；只有 Resume 会改变"),
    instant("leased_at", "领取时刻，UTC"),
    instant("lease_expires_at", "租约到期时刻，UTC；已结束为 NULL", null=True),
    instant("lease_cap_at", "租约不得超过的时刻，UTC；NULL 表示没有上限", null=True),
    instant("started_at", "Start 获准时刻，UTC；未开始为 NULL", null=True),
    exact("start_command_id", 64, "获准的 Start 消息标识，重报时返回同一答复；未开始为 NULL", null=True),
    instant("deadline_at", "本尝试的截止：Start 加时限与总截止取小；没有为 NULL", null=True),
    instant("ended_at", "结束时刻，UTC；活跃为 NULL", null=True),
    exact("end_command_id", 64, "结束它的结果或拒绝消息标识；由恢复或取消结束时为 NULL", null=True),
    digest("result_digest", "结果内容的 SHA-256，用于识别同一结果；没有为 NULL", null=True),
    name("ended_task_state", 16, "结束时任务进入的状态，即结果的回执；活跃为 NULL", null=True),
    name("error_code", 64, "失败代码；没有为 NULL", null=True),
    words("error_message", 4096, "失败说明，最多 4 KiB；没有为 NULL", null=True),
    PrimaryKeyConstraint("task_id", "epoch"),
    UniqueConstraint("attempt_id"),
    UniqueConstraint("namespace_id", "key_digest", "concurrency_token"),
    CheckConstraint(
        "state IN ('LEASED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'RETRYABLE', 'UNKNOWN', 'DECLINED', 'EXPIRED',"
        " 'CANCELLED')",
        name="state",
    ),
    CheckConstraint("(state IN ('LEASED', 'RUNNING')) = (lease_expires_at IS NOT NULL)", name="live"),
    CheckConstraint("(key_digest IS NULL) = (concurrency_token IS NULL)", name="token"),
    Index("ix_attempts_lease", "lease_expires_at", "worker_ref"),
    comment="尝试：一次获准的执行；活跃的尝试本身就是队列许可",
    **TABLE_OPTIONS,
)

attempt_outputs = Table(
    "attempt_outputs",
    metadata,
    identity("task_id", "任务标识", key=True),
    big("epoch", "尝试序号", key=True),
    Column(
        "output", MEDIUMBLOB, nullable=False, comment="成功结果的 JSON 原文字节，最多 256 KiB，逐字节保留"
    ),
    comment="尝试输出：只插入，每个成功且有输出的尝试一行",
    **TABLE_OPTIONS,
)

late_evidence = Table(
    "late_evidence",
    metadata,
    identity("attempt_id", "迟到结果所属的尝试", key=True),
    digest("evidence_digest", "结果内容的 SHA-256，用于去重", key=True),
    instant("received_at", "收到时刻，UTC，数据库时间"),
    name("outcome", 16, "迟到结果所称的结局：SUCCEEDED、FAILED、RETRY、UNKNOWN"),
    name("error_code", 64, "所称失败代码；没有为 NULL", null=True),
    words("error_message", 4096, "所称失败说明；没有为 NULL", null=True),
    Column("output", MEDIUMBLOB, nullable=True, comment="所称输出的 JSON 原文字节；没有为 NULL"),
    comment="迟到证据：尝试结束后才到的结果，每个尝试最多 8 条，不改变任何计数与状态",
    **TABLE_OPTIONS,
)
