"""Who may ask: applications, namespaces, credentials; and the installation itself."""

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
    small,
    words,
)

applications = Table(
    "applications",
    metadata,
    identity("application_id", "应用标识，128 位", key=True),
    name("name", 128, "应用名称，全安装唯一，受限 ASCII 字母表"),
    name("state", 16, "应用状态：ACTIVE 可用；DISABLED 停用后一切鉴权失败"),
    instant("created_at", "创建时刻，UTC，数据库时间"),
    UniqueConstraint("name"),
    CheckConstraint("state IN ('ACTIVE', 'DISABLED')", name="state"),
    comment="应用：额度与写锁的归属单位，拥有若干命名空间",
    **TABLE_OPTIONS,
)

namespaces = Table(
    "namespaces",
    metadata,
    identity("namespace_id", "命名空间标识，128 位", key=True),
    identity("application_id", "所属应用，由服务端在同一事务核对，无外键"),
    name("name", 128, "命名空间名称，应用内唯一"),
    name("environment", 64, "环境标签，仅供人识别，不参与授权"),
    name("state", 16, "命名空间状态：ACTIVE 可用；DISABLED 停用"),
    instant("created_at", "创建时刻，UTC，数据库时间"),
    UniqueConstraint("application_id", "name"),
    CheckConstraint("state IN ('ACTIVE', 'DISABLED')", name="state"),
    comment="命名空间：队列、任务、资源键与结果流的隔离边界，归一个应用所有",
    **TABLE_OPTIONS,
)

credentials = Table(
    "credentials",
    metadata,
    identity("credential_id", "凭据标识，128 位，令牌中的公开部分", key=True),
    identity("application_id", "所属应用，终身不变"),
    identity("namespace_id", "所属命名空间，终身不变"),
    digest("token_digest", "整个令牌文本的 SHA-256；只存摘要，轮换时替换"),
    words("actions", 2048, "显式授予的动作，空格分隔；未列出的一律拒绝"),
    flag("all_queues", "队列范围：1 为命名空间内全部队列，0 为 credential_queues 所列"),
    name("state", 16, "凭据状态：ACTIVE 可用；REVOKED 已撤销且不可恢复"),
    instant("expires_at", "到期时刻，UTC；NULL 表示不到期，到期即拒绝", null=True),
    big("revision", "凭据版本，每次轮换或撤销加一"),
    instant("created_at", "创建时刻，UTC，数据库时间"),
    CheckConstraint("state IN ('ACTIVE', 'REVOKED')", name="state"),
    Index("ix_credentials_namespace", "namespace_id"),
    comment="凭据：一个应用的一个命名空间内的动作与队列范围授权",
    **TABLE_OPTIONS,
)

credential_queues = Table(
    "credential_queues",
    metadata,
    identity("credential_id", "凭据标识", key=True),
    identity("queue_id", "允许访问的队列标识，与凭据同属一个命名空间", key=True),
    comment="凭据的队列范围：仅当凭据 all_queues=0 时有效",
    **TABLE_OPTIONS,
)

installation = Table(
    "installation",
    metadata,
    small("id", "固定为 1，保证只有一行", key=True),
    identity("installation_id", "本安装的标识，迁移时生成，不变"),
    digest("cursor_key", "分页游标的 HMAC-SHA-256 密钥，迁移时由数据库随机生成"),
    instant("created_at", "安装时刻，UTC，数据库时间"),
    CheckConstraint("id = 1", name="single"),
    comment="安装信息：全库唯一一行",
    **TABLE_OPTIONS,
)
