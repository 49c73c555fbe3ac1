"""The first schema: access, queues, tasks, events, sessions."""

from __future__ import annotations

from alembic import op

revision = "000001"
down_revision = None
branch_labels = None
depends_on = None

# Literal and frozen: this file imports nothing of the product and never changes once applied.

APPLICATIONS = """
CREATE TABLE applications (
    application_id BINARY(16) NOT NULL COMMENT '应用标识，128 位',
    name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '应用名称，全安装唯一，受限 ASCII 字母表',
    state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '应用状态：ACTIVE 可用；DISABLED 停用后一切鉴权失败',
    created_at DATETIME(6) NOT NULL COMMENT '创建时刻，UTC，数据库时间',
    CONSTRAINT pk_applications PRIMARY KEY (application_id),
    CONSTRAINT uq_applications_name UNIQUE (name),
    CONSTRAINT ck_applications_state CHECK (state IN ('ACTIVE', 'DISABLED'))
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='应用：额度与写锁的归属单位，拥有若干命名空间' COLLATE utf8mb4_bin
"""

NAMESPACES = """
CREATE TABLE namespaces (
    namespace_id BINARY(16) NOT NULL COMMENT '命名空间标识，128 位',
    application_id BINARY(16) NOT NULL COMMENT '所属应用，由服务端在同一事务核对，无外键',
    name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '命名空间名称，应用内唯一',
    environment VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '环境标签，仅供人识别，不参与授权',
    state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '命名空间状态：ACTIVE 可用；DISABLED 停用',
    created_at DATETIME(6) NOT NULL COMMENT '创建时刻，UTC，数据库时间',
    CONSTRAINT pk_namespaces PRIMARY KEY (namespace_id),
    CONSTRAINT uq_namespaces_application_id_name UNIQUE (application_id, name),
    CONSTRAINT ck_namespaces_state CHECK (state IN ('ACTIVE', 'DISABLED'))
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='命名空间：队列、任务、资源键与结果流的隔离边界，归一个应用所有' COLLATE utf8mb4_bin
"""

CREDENTIALS = """
CREATE TABLE credentials (
    credential_id BINARY(16) NOT NULL COMMENT '凭据标识，128 位，令牌中的公开部分',
    application_id BINARY(16) NOT NULL COMMENT '所属应用，终身不变',
    namespace_id BINARY(16) NOT NULL COMMENT '所属命名空间，终身不变',
    token_digest BINARY(32) NOT NULL COMMENT '整个令牌文本的 SHA-256；只存摘要，轮换时替换',
    actions TEXT NOT NULL COMMENT '显式授予的动作，空格分隔；未列出的一律拒绝',
    all_queues BOOL NOT NULL COMMENT '队列范围：1 为命名空间内全部队列，0 为 credential_queues 所列',
    state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '凭据状态：ACTIVE 可用；REVOKED 已撤销且不可恢复',
    expires_at DATETIME(6) COMMENT '到期时刻，UTC；NULL 表示不到期，到期即拒绝',
    revision BIGINT UNSIGNED NOT NULL COMMENT '凭据版本，每次轮换或撤销加一',
    created_at DATETIME(6) NOT NULL COMMENT '创建时刻，UTC，数据库时间',
    CONSTRAINT pk_credentials PRIMARY KEY (credential_id),
    CONSTRAINT ck_credentials_state CHECK (state IN ('ACTIVE', 'REVOKED')),
    INDEX ix_credentials_namespace (namespace_id)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='凭据：一个应用的一个命名空间内的动作与队列范围授权' COLLATE utf8mb4_bin
"""

CREDENTIAL_QUEUES = """
CREATE TABLE credential_queues (
    credential_id BINARY(16) NOT NULL COMMENT '凭据标识',
    queue_id BINARY(16) NOT NULL COMMENT '允许访问的队列标识，与凭据同属一个命名空间',
    CONSTRAINT pk_credential_queues PRIMARY KEY (credential_id, queue_id)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='凭据的队列范围：仅当凭据 all_queues=0 时有效' COLLATE utf8mb4_bin
"""

INSTALLATION = """
CREATE TABLE installation (
    id TINYINT UNSIGNED NOT NULL COMMENT '固定为 1，保证只有一行',
    installation_id BINARY(16) NOT NULL COMMENT '本安装的标识，迁移时生成，不变',
    cursor_key BINARY(32) NOT NULL COMMENT '分页游标的 HMAC-SHA-256 密钥，迁移时由数据库随机生成',
    created_at DATETIME(6) NOT NULL COMMENT '安装时刻，UTC，数据库时间',
    CONSTRAINT pk_installation PRIMARY KEY (id),
    CONSTRAINT ck_installation_single CHECK (id = 1)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='安装信息：全库唯一一行' COLLATE utf8mb4_bin
"""

RECEIPTS = """
CREATE TABLE receipts (
    receipt_id BINARY(32) NOT NULL COMMENT 'SHA-256(应用、命名空间、动作、幂等键)，一个命令身份一行',
    application_id BINARY(16) NOT NULL COMMENT '所属应用',
    request_digest BINARY(32) NOT NULL COMMENT '规范化命令的 SHA-256，同键不同内容据此拒绝',
    resource_id BINARY(16) NOT NULL COMMENT '受理产生或操作的资源标识',
    body VARBINARY(1024) COMMENT '冻结的首次答复，最多 1 KiB；任务提交为 NULL，由冻结列重建',
    created_at DATETIME(6) NOT NULL COMMENT '首次受理时刻，UTC，数据库时间',
    CONSTRAINT pk_receipts PRIMARY KEY (receipt_id)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='回执：已受理命令的身份与首次答复；任务的回执随任务清理' COLLATE utf8mb4_bin
"""

NAMESPACE_STREAMS = """
CREATE TABLE namespace_streams (
    namespace_id BINARY(16) NOT NULL COMMENT '命名空间标识',
    last_sequence BIGINT UNSIGNED NOT NULL COMMENT '已分配的最大结果序号，即提交水位；在本行锁下分配',
    CONSTRAINT pk_namespace_streams PRIMARY KEY (namespace_id)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='结果流：每个命名空间一行，事务中最后加锁' COLLATE utf8mb4_bin
"""

RESULT_EVENTS = """
CREATE TABLE result_events (
    namespace_id BINARY(16) NOT NULL COMMENT '命名空间标识',
    sequence BIGINT UNSIGNED NOT NULL COMMENT '流内序号，从 1 起连续，与状态同事务提交',
    queue_id BINARY(16) NOT NULL COMMENT '任务所属队列',
    task_id BINARY(16) NOT NULL COMMENT '任务标识',
    epoch BIGINT UNSIGNED NOT NULL COMMENT '使其终结或待核查的尝试序号；从未领取为 0',
    task_state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '进入的状态：SUCCEEDED、FAILED、CANCELLED 或 NEEDS_REVIEW',
    error_code VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin COMMENT '失败代码；没有为 NULL',
    occurred_at DATETIME(6) NOT NULL COMMENT '发生时刻，UTC，数据库时间',
    CONSTRAINT pk_result_events PRIMARY KEY (namespace_id, sequence)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='结果事件：任务每次进入终态或待核查一行，供可靠订阅' COLLATE utf8mb4_bin
"""

STATE_EVENTS = """
CREATE TABLE state_events (
    resource_id BINARY(16) NOT NULL COMMENT '发生变化的资源标识',
    revision BIGINT UNSIGNED NOT NULL COMMENT '变化后的资源版本',
    namespace_id BINARY(16) NOT NULL COMMENT '所属命名空间',
    resource_kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '资源种类：queue、task 等',
    from_state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin COMMENT '变化前的状态；创建为 NULL',
    to_state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '变化后的状态',
    occurred_at DATETIME(6) NOT NULL COMMENT '发生时刻，UTC，数据库时间',
    CONSTRAINT pk_state_events PRIMARY KEY (resource_id, revision)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='状态事件：只追加；队列等每次变化一行，任务每次终结或待核查一行' COLLATE utf8mb4_bin
"""

AUDITS = """
CREATE TABLE audits (
    audit_id BINARY(16) NOT NULL COMMENT '审计标识',
    application_id BINARY(16) NOT NULL COMMENT '所属应用',
    namespace_id BINARY(16) NOT NULL COMMENT '所属命名空间',
    credential_id BINARY(16) COMMENT '发起操作的凭据；由管理命令行发起为 NULL',
    action VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '操作的动作名，如 queues:manage',
    resource_kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '被操作资源的种类',
    resource_id BINARY(16) NOT NULL COMMENT '被操作资源的标识',
    reason VARCHAR(1024) NOT NULL COMMENT '操作者给出的原因，最多 1024 个字符；可为空串',
    details TEXT NOT NULL COMMENT '操作要点的 JSON 文本，不含秘密',
    created_at DATETIME(6) NOT NULL COMMENT '操作时刻，UTC，数据库时间',
    CONSTRAINT pk_audits PRIMARY KEY (audit_id),
    INDEX ix_audits_resource (resource_id, created_at)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='审计：管理命令一次一行，与其改动同事务提交' COLLATE utf8mb4_bin
"""

APPLICATION_QUOTAS = """
CREATE TABLE application_quotas (
    application_id BINARY(16) NOT NULL COMMENT '应用标识；本行即该应用的写锁',
    max_unfinished BIGINT UNSIGNED NOT NULL COMMENT '全应用未终结任务上限，默认 10000000',
    max_active BIGINT UNSIGNED NOT NULL COMMENT '全应用活跃尝试（LEASED+RUNNING）上限，默认 100000',
    unfinished BIGINT UNSIGNED NOT NULL COMMENT '当前未终结任务数：WAITING、LEASED、RUNNING、NEEDS_REVIEW',
    active BIGINT UNSIGNED NOT NULL COMMENT '当前活跃尝试数',
    row_version BIGINT UNSIGNED NOT NULL COMMENT '每个改动本应用的事务都加一，使集群认证能发现冲突',
    CONSTRAINT pk_application_quotas PRIMARY KEY (application_id)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='应用额度：上限与用量；改动该应用任务、尝试、键、车道的事务必先锁并写本行' COLLATE utf8mb4_bin
"""

QUEUES = """
CREATE TABLE queues (
    queue_id BINARY(16) NOT NULL COMMENT '队列标识，128 位',
    application_id BINARY(16) NOT NULL COMMENT '所属应用',
    namespace_id BINARY(16) NOT NULL COMMENT '所属命名空间',
    name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '队列名称，命名空间内唯一，受限 ASCII 字母表',
    paused BOOL NOT NULL COMMENT '1 表示暂停：禁止新的领取与 Start，其余照常',
    max_concurrency INTEGER UNSIGNED NOT NULL COMMENT '活跃尝试上限，1–100000；降低不撤销在途',
    rate_per_second INTEGER UNSIGNED NOT NULL COMMENT '每个一秒窗口内可提交的 Start 数，1–1000000',
    max_unfinished_tasks INTEGER UNSIGNED NOT NULL COMMENT '未终结任务上限，1–1000000；超出的新受理被拒',
    revision BIGINT UNSIGNED NOT NULL COMMENT '配置版本，每次配置加一；用量变化不改变',
    created_at DATETIME(6) NOT NULL COMMENT '创建时刻，UTC，数据库时间',
    updated_at DATETIME(6) NOT NULL COMMENT '最近一次配置时刻，UTC，数据库时间',
    CONSTRAINT pk_queues PRIMARY KEY (queue_id),
    CONSTRAINT uq_queues_namespace_id_name UNIQUE (namespace_id, name),
    CONSTRAINT ck_queues_max_concurrency CHECK (max_concurrency BETWEEN 1 AND 100000),
    CONSTRAINT ck_queues_rate_per_second CHECK (rate_per_second BETWEEN 1 AND 1000000),
    CONSTRAINT ck_queues_max_unfinished_tasks CHECK (max_unfinished_tasks BETWEEN 1 AND 1000000),
    INDEX ix_queues_namespace (namespace_id, queue_id)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='队列：控制参数；用量另存于 queue_usage' COLLATE utf8mb4_bin
"""

QUEUE_USAGE = """
CREATE TABLE queue_usage (
    queue_id BINARY(16) NOT NULL COMMENT '队列标识',
    active INTEGER UNSIGNED NOT NULL COMMENT '活跃尝试数（LEASED+RUNNING），即已占用的队列许可',
    leased_unstarted INTEGER UNSIGNED NOT NULL COMMENT '已领取未开始的尝试数，为其预留速率窗口空间',
    unfinished INTEGER UNSIGNED NOT NULL COMMENT '未终结任务数，含 NEEDS_REVIEW',
    window_started_at DATETIME(6) COMMENT '当前速率窗口的起点，UTC；NULL 表示尚未有 Start',
    window_count INTEGER UNSIGNED NOT NULL COMMENT '当前窗口内已提交的 Start 数；重报不计',
    row_version BIGINT UNSIGNED NOT NULL COMMENT '每次写入加一',
    CONSTRAINT pk_queue_usage PRIMARY KEY (queue_id)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='队列用量：与任务、尝试同事务维护，等于重新计数' COLLATE utf8mb4_bin
"""

CONCURRENCY_KEYS = """
CREATE TABLE concurrency_keys (
    namespace_id BINARY(16) NOT NULL COMMENT '命名空间标识',
    key_digest BINARY(32) NOT NULL COMMENT '资源键 UTF-8 字节的 SHA-256',
    concurrency_key VARBINARY(764) NOT NULL COMMENT '资源键原字节，最多 191 个字符；不折叠、不规范化',
    holder_attempt_id BINARY(16) COMMENT '当前持有许可的尝试；NULL 表示空闲',
    last_token BIGINT UNSIGNED NOT NULL COMMENT '最近使用的序号；领取与释放都加一，永不回退或重置',
    CONSTRAINT pk_concurrency_keys PRIMARY KEY (namespace_id, key_digest),
    INDEX ix_concurrency_keys_holder (holder_attempt_id)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='资源键：命名空间内跨队列的唯一许可与单调序号；行永不删除' COLLATE utf8mb4_bin
"""

LANES = """
CREATE TABLE lanes (
    lane_id BINARY(16) NOT NULL COMMENT 'SHA-256(队列‖处理器摘要‖键摘要) 的前 16 字节',
    application_id BINARY(16) NOT NULL COMMENT '所属应用',
    namespace_id BINARY(16) NOT NULL COMMENT '所属命名空间',
    queue_id BINARY(16) NOT NULL COMMENT '所属队列',
    handler_digest BINARY(16) NOT NULL COMMENT 'SHA-256(处理器‖0‖版本) 的前 16 字节',
    key_digest BINARY(32) NOT NULL COMMENT '资源键摘要；32 个零字节表示无键车道',
    head_dispatch_at DATETIME(6) COMMENT '就绪任务中最小的 dispatch_at；NULL 表示没有就绪任务',
    occupied BOOL NOT NULL COMMENT '1 表示资源键已被活跃尝试持有；无键车道恒为 0',
    touched_at DATETIME(6) NOT NULL COMMENT '最近一次重算时刻，UTC；空闲十分钟后可删除',
    claimable TINYINT UNSIGNED GENERATED ALWAYS AS (IF(head_dispatch_at IS NOT NULL AND occupied = 0, 1, 0)) STORED COMMENT '生成列：有就绪任务且键空闲时为 1，供领取索引使用',
    CONSTRAINT pk_lanes PRIMARY KEY (lane_id),
    INDEX ix_lanes_claim (queue_id, handler_digest, claimable, head_dispatch_at),
    INDEX ix_lanes_key (namespace_id, key_digest),
    INDEX ix_lanes_touched (touched_at)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='车道：同队列、同处理器、同资源键的任务一条；使领取成本与积压无关' COLLATE utf8mb4_bin
"""

WORKER_SESSIONS = """
CREATE TABLE worker_sessions (
    worker_ref BINARY(16) NOT NULL COMMENT '工作进程登记标识，跨重连不变',
    application_id BINARY(16) NOT NULL COMMENT '所属应用',
    namespace_id BINARY(16) NOT NULL COMMENT '所属命名空间',
    credential_id BINARY(16) NOT NULL COMMENT '登记所用凭据',
    worker_id BINARY(16) NOT NULL COMMENT '进程自报的随机身份，每次进程启动不同',
    registration_digest BINARY(32) NOT NULL COMMENT '队列、处理器与资源键声明的摘要；同一进程不得改变',
    session_id BINARY(16) NOT NULL COMMENT '当前会话标识；旧会话的消息一律失效',
    generation BIGINT UNSIGNED NOT NULL COMMENT '会话代次，每次接管加一',
    dispatcher_id BINARY(16) NOT NULL COMMENT '承载当前会话的派发进程',
    name VARCHAR(191) COMMENT '供人识别的名称；没有为 NULL',
    sdk VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '客户端库名称与版本',
    capacity INTEGER UNSIGNED NOT NULL COMMENT '最多同时持有的尝试数，1–1000',
    concurrency_keys BOOL NOT NULL COMMENT '1 表示声明支持资源键；否则只领取无键任务',
    connected_at DATETIME(6) NOT NULL COMMENT '当前会话建立时刻，UTC',
    ended_at DATETIME(6) COMMENT '当前会话结束时刻，UTC；仍连接或未知为 NULL',
    CONSTRAINT pk_worker_sessions PRIMARY KEY (worker_ref),
    CONSTRAINT uq_worker_sessions_namespace_id_credential_id_worker_id UNIQUE (namespace_id, credential_id, worker_id),
    CONSTRAINT uq_worker_sessions_session_id UNIQUE (session_id),
    INDEX ix_worker_sessions_dispatcher (dispatcher_id, ended_at)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='工作会话：进程身份、固定登记与当前代次；删除它不影响任何租约' COLLATE utf8mb4_bin
"""

DISPATCHERS = """
CREATE TABLE dispatchers (
    dispatcher_id BINARY(16) NOT NULL COMMENT '派发进程实例标识，每次启动不同',
    url VARCHAR(512) NOT NULL COMMENT '工作进程连接地址，ws 或 wss',
    hint_address VARCHAR(64) COMMENT '唤醒提示的 UDP 地址，主机:端口；没有为 NULL',
    sessions INTEGER UNSIGNED NOT NULL COMMENT '心跳时的会话数，供客户端选择最空闲者',
    started_at DATETIME(6) NOT NULL COMMENT '启动时刻，UTC',
    heartbeat_at DATETIME(6) NOT NULL COMMENT '最近心跳，UTC，每 5 秒；15 秒无心跳视为失联',
    CONSTRAINT pk_dispatchers PRIMARY KEY (dispatcher_id),
    INDEX ix_dispatchers_heartbeat (heartbeat_at)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='派发进程登记：供工作进程发现与唤醒提示；不授予任何权限' COLLATE utf8mb4_bin
"""

RECOVERY_CLOCK = """
CREATE TABLE recovery_clock (
    id TINYINT UNSIGNED NOT NULL COMMENT '固定为 1，保证只有一行',
    beat_at DATETIME(6) NOT NULL COMMENT '恢复进程最近一次跳动，UTC，每秒',
    grace_until DATETIME(6) NOT NULL COMMENT '在此之前不判定租约到期，UTC；停机后留给工作进程续租',
    CONSTRAINT pk_recovery_clock PRIMARY KEY (id),
    CONSTRAINT ck_recovery_clock_single CHECK (id = 1)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='恢复时钟：停机、失联或时钟跳变后的宽限' COLLATE utf8mb4_bin
"""

TASKS = """
CREATE TABLE tasks (
    task_id BINARY(16) NOT NULL COMMENT '任务标识，128 位，大致按时间递增，不用于排序判断',
    application_id BINARY(16) NOT NULL COMMENT '所属应用',
    namespace_id BINARY(16) NOT NULL COMMENT '所属命名空间',
    queue_id BINARY(16) NOT NULL COMMENT '所属队列',
    lane_id BINARY(16) NOT NULL COMMENT '所属车道，见 lanes',
    receipt_id BINARY(32) NOT NULL COMMENT '受理回执标识，清理任务时一并删除',
    handler VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '处理器名称，受理时冻结',
    handler_version VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '处理器版本，受理时冻结',
    payload_version VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '载荷契约版本，受理时冻结',
    business_key VARBINARY(764) COMMENT '业务追踪键原字节；NULL 表示未给；不限制并发',
    business_key_digest BINARY(32) COMMENT '业务键的 SHA-256，供精确筛选；无业务键为 NULL',
    concurrency_key VARBINARY(764) COMMENT '资源键原字节；NULL 表示无键；受理后不变',
    key_digest BINARY(32) NOT NULL COMMENT '资源键摘要；32 个零字节表示无键',
    priority TINYINT UNSIGNED NOT NULL COMMENT '优先级 0–9，每级相当于提前 30 秒',
    state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '任务状态：WAITING、LEASED、SUCCEEDED、FAILED、CANCELLED、NEEDS_REVIEW；LEASED 表示有活跃尝试，是否 RUNNING 见该尝试',
    ready TINYINT UNSIGNED COMMENT '1 表示等待且已到时、可被领取；其余为 NULL，从而离开领取区间',
    available_at DATETIME(6) NOT NULL COMMENT '最早可领取时刻，UTC；退避后更新',
    due_at DATETIME(6) COMMENT '等待且未到时的任务等于 available_at，其余为 NULL；供到时扫描',
    unstarted_deadline_at DATETIME(6) COMMENT '未开始时的最早截止（开始截止与总截止取小）；开始后或终结后为 NULL',
    dispatch_at DATETIME(6) GENERATED ALWAYS AS (available_at - INTERVAL (priority * 30) SECOND) STORED COMMENT '生成列：available_at 减去 priority×30 秒，仅供排序，不代表就绪',
    requested_available_at DATETIME(6) COMMENT '提交时给定的绝对可用时刻，UTC；未给为 NULL',
    delay_ms BIGINT UNSIGNED COMMENT '提交时给定的相对延迟，毫秒；未给为 NULL',
    start_deadline_at DATETIME(6) COMMENT '开始截止时刻，UTC；NULL 表示没有',
    timeout_ms BIGINT UNSIGNED COMMENT '总时限，毫秒，含等待；NULL 表示没有',
    deadline_at DATETIME(6) COMMENT '总截止时刻，UTC，受理时算定；NULL 表示没有',
    attempt_timeout_ms BIGINT UNSIGNED COMMENT '单次尝试时限，毫秒，从 Start 起；NULL 表示没有',
    max_attempts TINYINT UNSIGNED NOT NULL COMMENT '尝试预算 1–100，受理时冻结',
    backoff VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '退避方式：NONE、FIXED、LINEAR、EXPONENTIAL',
    backoff_initial_ms BIGINT UNSIGNED NOT NULL COMMENT '退避初值，毫秒',
    backoff_max_ms BIGINT UNSIGNED NOT NULL COMMENT '退避上限，毫秒',
    on_unknown VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin COMMENT '效果未知时：REVIEW 或 RETRY；NULL 表示未指定，按 REVIEW 处理',
    epoch BIGINT UNSIGNED NOT NULL COMMENT '最近一次尝试的序号，每次领取加一',
    attempts_used INTEGER UNSIGNED NOT NULL COMMENT '已结束尝试中获准的 Start 数，即已用预算；活跃尝试自身的另计',
    cancel_requested_at DATETIME(6) COMMENT '首次取消意图的时刻，UTC；NULL 表示没有',
    error_code VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin COMMENT '最近一次失败的代码；NULL 表示没有',
    error_message TEXT COMMENT '最近一次失败的说明，最多 4 KiB；NULL 表示没有',
    revision BIGINT UNSIGNED NOT NULL COMMENT '任务版本，受理为 1，每次状态变化加一',
    created_at DATETIME(6) NOT NULL COMMENT '受理时刻，UTC，数据库时间',
    updated_at DATETIME(6) NOT NULL COMMENT '最近一次变化时刻，UTC，数据库时间',
    finished_at DATETIME(6) COMMENT '首次进入终态的时刻，UTC；之后不变；未终结为 NULL',
    CONSTRAINT pk_tasks PRIMARY KEY (task_id),
    CONSTRAINT ck_tasks_priority CHECK (priority <= 9),
    CONSTRAINT ck_tasks_max_attempts CHECK (max_attempts BETWEEN 1 AND 100),
    CONSTRAINT ck_tasks_state CHECK (state IN ('WAITING', 'LEASED', 'SUCCEEDED', 'FAILED', 'CANCELLED', 'NEEDS_REVIEW')),
    CONSTRAINT ck_tasks_backoff CHECK (backoff IN ('NONE', 'FIXED', 'LINEAR', 'EXPONENTIAL')),
    CONSTRAINT ck_tasks_on_unknown CHECK (on_unknown IN ('REVIEW', 'RETRY')),
    CONSTRAINT ck_tasks_ready CHECK (ready IS NULL OR (ready = 1 AND state = 'WAITING' AND due_at IS NULL)),
    CONSTRAINT ck_tasks_finished CHECK ((finished_at IS NOT NULL) = (state IN ('SUCCEEDED', 'FAILED', 'CANCELLED'))),
    INDEX ix_tasks_claim (lane_id, ready, dispatch_at, task_id),
    INDEX ix_tasks_deadline (unstarted_deadline_at),
    INDEX ix_tasks_due (due_at),
    INDEX ix_tasks_list (queue_id, created_at, task_id),
    INDEX ix_tasks_list_business (queue_id, business_key_digest, created_at, task_id),
    INDEX ix_tasks_list_state (queue_id, state, created_at, task_id)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='任务：受理的一件工作、其冻结策略与当前状态；不含载荷' COLLATE utf8mb4_bin
"""

TASK_PAYLOADS = """
CREATE TABLE task_payloads (
    task_id BINARY(16) NOT NULL COMMENT '任务标识',
    payload MEDIUMBLOB NOT NULL COMMENT '提交时收到的 JSON 原文字节，最多 256 KiB，逐字节保留',
    CONSTRAINT pk_task_payloads PRIMARY KEY (task_id)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='任务载荷：只插入，与频繁变化的任务行分开' COLLATE utf8mb4_bin
"""

ATTEMPTS = """
CREATE TABLE attempts (
    task_id BINARY(16) NOT NULL COMMENT '任务标识',
    epoch BIGINT UNSIGNED NOT NULL COMMENT '尝试序号，从 1 起，等于领取时任务的 epoch',
    attempt_id BINARY(16) NOT NULL COMMENT '尝试标识，128 位；领取前由进程生成，可用于核对不明的提交',
    application_id BINARY(16) NOT NULL COMMENT '所属应用',
    namespace_id BINARY(16) NOT NULL COMMENT '所属命名空间',
    queue_id BINARY(16) NOT NULL COMMENT '所属队列',
    key_digest BINARY(32) COMMENT '资源键摘要；无键为 NULL',
    concurrency_token BIGINT UNSIGNED COMMENT '本次许可的资源键序号；无键为 NULL',
    state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '尝试状态：LEASED、RUNNING 为活跃；其余为已结束',
    worker_ref BINARY(16) NOT NULL COMMENT '执行进程，见 worker_sessions.worker_ref',
    session_id BINARY(16) NOT NULL COMMENT '当前持有本尝试的会话；只有 Resume 会改变',
    leased_at DATETIME(6) NOT NULL COMMENT '领取时刻，UTC',
    lease_expires_at DATETIME(6) COMMENT '租约到期时刻，UTC；已结束为 NULL',
    lease_cap_at DATETIME(6) COMMENT '租约不得超过的时刻，UTC；NULL 表示没有上限',
    started_at DATETIME(6) COMMENT 'Start 获准时刻，UTC；未开始为 NULL',
    start_command_id VARBINARY(64) COMMENT '获准的 Start 消息标识，重报时返回同一答复；未开始为 NULL',
    deadline_at DATETIME(6) COMMENT '本尝试的截止：Start 加时限与总截止取小；没有为 NULL',
    ended_at DATETIME(6) COMMENT '结束时刻，UTC；活跃为 NULL',
    end_command_id VARBINARY(64) COMMENT '结束它的结果或拒绝消息标识；由恢复或取消结束时为 NULL',
    result_digest BINARY(32) COMMENT '结果内容的 SHA-256，用于识别同一结果；没有为 NULL',
    ended_task_state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin COMMENT '结束时任务进入的状态，即结果的回执；活跃为 NULL',
    error_code VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin COMMENT '失败代码；没有为 NULL',
    error_message TEXT COMMENT '失败说明，最多 4 KiB；没有为 NULL',
    CONSTRAINT pk_attempts PRIMARY KEY (task_id, epoch),
    CONSTRAINT uq_attempts_attempt_id UNIQUE (attempt_id),
    CONSTRAINT uq_attempts_namespace_id_key_digest_concurrency_token UNIQUE (namespace_id, key_digest, concurrency_token),
    CONSTRAINT ck_attempts_state CHECK (state IN ('LEASED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'RETRYABLE', 'UNKNOWN', 'DECLINED', 'EXPIRED', 'CANCELLED')),
    CONSTRAINT ck_attempts_live CHECK ((state IN ('LEASED', 'RUNNING')) = (lease_expires_at IS NOT NULL)),
    CONSTRAINT ck_attempts_token CHECK ((key_digest IS NULL) = (concurrency_token IS NULL)),
    INDEX ix_attempts_lease (lease_expires_at, worker_ref)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='尝试：一次获准的执行；活跃的尝试本身就是队列许可' COLLATE utf8mb4_bin
"""

ATTEMPT_OUTPUTS = """
CREATE TABLE attempt_outputs (
    task_id BINARY(16) NOT NULL COMMENT '任务标识',
    epoch BIGINT UNSIGNED NOT NULL COMMENT '尝试序号',
    output MEDIUMBLOB NOT NULL COMMENT '成功结果的 JSON 原文字节，最多 256 KiB，逐字节保留',
    CONSTRAINT pk_attempt_outputs PRIMARY KEY (task_id, epoch)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='尝试输出：只插入，每个成功且有输出的尝试一行' COLLATE utf8mb4_bin
"""

LATE_EVIDENCE = """
CREATE TABLE late_evidence (
    attempt_id BINARY(16) NOT NULL COMMENT '迟到结果所属的尝试',
    evidence_digest BINARY(32) NOT NULL COMMENT '结果内容的 SHA-256，用于去重',
    received_at DATETIME(6) NOT NULL COMMENT '收到时刻，UTC，数据库时间',
    outcome VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT '迟到结果所称的结局：SUCCEEDED、FAILED、RETRY、UNKNOWN',
    error_code VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin COMMENT '所称失败代码；没有为 NULL',
    error_message TEXT COMMENT '所称失败说明；没有为 NULL',
    output MEDIUMBLOB COMMENT '所称输出的 JSON 原文字节；没有为 NULL',
    CONSTRAINT pk_late_evidence PRIMARY KEY (attempt_id, evidence_digest)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COMMENT='迟到证据：尝试结束后才到的结果，每个尝试最多 8 条，不改变任何计数与状态' COLLATE utf8mb4_bin
"""

TABLES = (
    APPLICATIONS,
    NAMESPACES,
    CREDENTIALS,
    CREDENTIAL_QUEUES,
    INSTALLATION,
    RECEIPTS,
    NAMESPACE_STREAMS,
    RESULT_EVENTS,
    STATE_EVENTS,
    AUDITS,
    APPLICATION_QUOTAS,
    QUEUES,
    QUEUE_USAGE,
    CONCURRENCY_KEYS,
    LANES,
    WORKER_SESSIONS,
    DISPATCHERS,
    RECOVERY_CLOCK,
    TASKS,
    TASK_PAYLOADS,
    ATTEMPTS,
    ATTEMPT_OUTPUTS,
    LATE_EVIDENCE,
)

# Random bytes from the server itself; the two digests are independent.
INSTALLATION_ROW = """
INSERT IGNORE INTO installation (id, installation_id, cursor_key, created_at)
VALUES (1, RANDOM_BYTES(16), RANDOM_BYTES(32), UTC_TIMESTAMP(6))
"""

RECOVERY_CLOCK_ROW = """
INSERT IGNORE INTO recovery_clock (id, beat_at, grace_until)
VALUES (1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
"""


def upgrade() -> None:
    # DDL commits by itself, so a run may be killed between any two statements: each can be repeated.
    for statement in TABLES:
        op.execute(statement.replace("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1))
    op.execute(INSTALLATION_ROW)
    op.execute(RECOVERY_CLOCK_ROW)
