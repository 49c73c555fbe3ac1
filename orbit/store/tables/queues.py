"""Queues and the counters that bound them: application quotas, queue usage, concurrency keys, lanes."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Index, Table, UniqueConstraint

from orbit.store.tables.columns import (
    TABLE_OPTIONS,
    big,
    computed,
    digest,
    exact,
    flag,
    identity,
    instant,
    metadata,
    name,
    number,
    small,
)

application_quotas = Table(
    "application_quotas",
    metadata,
    identity("application_id", "应用标识；本行即该应用的写锁", key=True),
    big("max_unfinished", "全应用未终结任务上限，默认 10000000"),
    big("max_active", "全应用活跃尝试（LEASED+RUNNING）上限，默认 100000"),
    big("unfinished", "当前未终结任务数：WAITING、LEASED、RUNNING、NEEDS_REVIEW"),
    big("active", "当前活跃尝试数"),
    big("row_version", "每个改动本应用的事务都加一，使集群认证能发现冲突"),
    comment="应用额度：上限与用量；改动该应用任务、尝试、键、车道的事务必先锁并写本行",
    **TABLE_OPTIONS,
)

queues = Table(
    "queues",
    metadata,
    identity("queue_id", "队列标识，128 位", key=True),
    identity("application_id", "所属应用"),
    identity("namespace_id", "所属命名空间"),
    name("name", 128, "队列名称，命名空间内唯一，受限 ASCII 字母表"),
    flag("paused", "1 表示暂停：禁止新的领取与 Start，其余照常"),
    number("max_concurrency", "活跃尝试上限，1–100000；降低不撤销在途"),
    number("rate_per_second", "每个一秒窗口内可提交的 Start 数，1–1000000"),
    number("max_unfinished_tasks", "未终结任务上限，1–1000000；超出的新受理被拒"),
    big("revision", "配置版本，每次配置加一；用量变化不改变"),
    instant("created_at", "创建时刻，UTC，数据库时间"),
    instant("updated_at", "最近一次配置时刻，UTC，数据库时间"),
    UniqueConstraint("namespace_id", "name"),
    CheckConstraint("max_concurrency BETWEEN 1 AND 100000", name="max_concurrency"),
    CheckConstraint("rate_per_second BETWEEN 1 AND 1000000", name="rate_per_second"),
    CheckConstraint("max_unfinished_tasks BETWEEN 1 AND 1000000", name="max_unfinished_tasks"),
    Index("ix_queues_namespace", "namespace_id", "queue_id"),
    comment="队列：控制参数；用量另存于 queue_usage",
    **TABLE_OPTIONS,
)

queue_usage = Table(
    "queue_usage",
    metadata,
    identity("queue_id", "队列标识", key=True),
    number("active", "活跃尝试数（LEASED+RUNNING），即已占用的队列许可"),
    number("leased_unstarted", "已领取未开始的尝试数，为其预留速率窗口空间"),
    number("unfinished", "未终结任务数，含 NEEDS_REVIEW"),
    instant("window_started_at", "当前速率窗口的起点，UTC；NULL 表示尚未有 Start", null=True),
    number("window_count", "当前窗口内已提交的 Start 数；重报不计"),
    big("row_version", "每次写入加一"),
    comment="队列用量：与任务、尝试同事务维护，等于重新计数",
    **TABLE_OPTIONS,
)

concurrency_keys = Table(
    "concurrency_keys",
    metadata,
    identity("namespace_id", "命名空间标识", key=True),
    digest("key_digest", "资源键 UTF-8 字节的 SHA-256", key=True),
    exact("concurrency_key", 764, "资源键原字节，最多 191 个字符；不折叠、不规范化"),
    identity("holder_attempt_id", "当前持有许可的尝试；NULL 表示空闲", null=True),
    big("last_token", "最近使用的序号；领取与释放都加一，永不回退或重置"),
    Index("ix_concurrency_keys_holder", "holder_attempt_id"),
    comment="资源键：命名空间内跨队列的唯一许可与单调序号；行永不删除",
    **TABLE_OPTIONS,
)

lanes = Table(
    "lanes",
    metadata,
    digest("lane_id", "SHA-256(队列‖处理器摘要‖键摘要) 的前 16 字节", size=16, key=True),
    identity("application_id", "所属应用"),
    identity("namespace_id", "所属命名空间"),
    identity("queue_id", "所属队列"),
    digest("handler_digest", "SHA-256(处理器‖0‖版本) 的前 16 字节", size=16),
    digest("key_digest", "资源键摘要；32 个零字节表示无键车道"),
    instant("head_dispatch_at", "就绪任务中最小的 dispatch_at；NULL 表示没有就绪任务", null=True),
    flag("occupied", "1 表示资源键已被活跃尝试持有；无键车道恒为 0"),
    instant("touched_at", "最近一次重算时刻，UTC；空闲十分钟后可删除"),
    computed(
        small("claimable", "生成列：有就绪任务且键空闲时为 1，供领取索引使用"),
        "IF(head_dispatch_at IS NOT NULL AND occupied = 0, 1, 0)",
    ),
    Index("ix_lanes_claim", "queue_id", "handler_digest", "claimable", "head_dispatch_at"),
    Index("ix_lanes_key", "namespace_id", "key_digest"),
    Index("ix_lanes_touched", "touched_at"),
    comment="车道：同队列、同处理器、同资源键的任务一条；使领取成本与积压无关",
    **TABLE_OPTIONS,
)
