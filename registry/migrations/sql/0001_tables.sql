-- The tables of the first release, as registry/models/ describes them. A test compares the two.

CREATE TABLE base_models (
    name TEXT NOT NULL,
    path TEXT NOT NULL,
    revision TEXT,
    template JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_base_models PRIMARY KEY (name)
);

CREATE TABLE job_inputs (
    day DATE NOT NULL,
    job_id UUID NOT NULL,
    tenant_id TEXT NOT NULL,
    body JSONB NOT NULL,
    CONSTRAINT pk_job_inputs PRIMARY KEY (day, job_id)
)
 PARTITION BY RANGE (day);

CREATE TABLE job_outputs (
    day DATE NOT NULL,
    job_id UUID NOT NULL,
    tenant_id TEXT NOT NULL,
    text TEXT NOT NULL,
    CONSTRAINT pk_job_outputs PRIMARY KEY (day, job_id)
)
 PARTITION BY RANGE (day);

CREATE TABLE tallies (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    tenant_id TEXT NOT NULL,
    day DATE NOT NULL,
    adapter_key INTEGER NOT NULL,
    batch_id UUID,
    at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    succeeded BIGINT DEFAULT '0' NOT NULL,
    failed BIGINT DEFAULT '0' NOT NULL,
    prompt_tokens BIGINT DEFAULT '0' NOT NULL,
    output_tokens BIGINT DEFAULT '0' NOT NULL,
    swap_ms DOUBLE PRECISION DEFAULT '0' NOT NULL,
    engine_ms DOUBLE PRECISION DEFAULT '0' NOT NULL,
    CONSTRAINT pk_tallies PRIMARY KEY (id)
);
CREATE INDEX ix_tallies_tenant_id ON tallies (tenant_id);

CREATE TABLE tenants (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    weight DOUBLE PRECISION DEFAULT '1' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_tenants PRIMARY KEY (id),
    CONSTRAINT ck_tenants_weight_positive CHECK (weight > 0),
    CONSTRAINT ck_tenants_id_slug CHECK (id ~ '^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$')
);

CREATE TABLE usage_days (
    tenant_id TEXT NOT NULL,
    day DATE NOT NULL,
    adapter_key INTEGER NOT NULL,
    succeeded BIGINT DEFAULT '0' NOT NULL,
    failed BIGINT DEFAULT '0' NOT NULL,
    prompt_tokens BIGINT DEFAULT '0' NOT NULL,
    output_tokens BIGINT DEFAULT '0' NOT NULL,
    swap_ms DOUBLE PRECISION DEFAULT '0' NOT NULL,
    engine_ms DOUBLE PRECISION DEFAULT '0' NOT NULL,
    CONSTRAINT pk_usage_days PRIMARY KEY (tenant_id, day, adapter_key)
);

CREATE TABLE api_keys (
    id UUID NOT NULL,
    tenant_id TEXT NOT NULL,
    name TEXT NOT NULL,
    prefix TEXT NOT NULL,
    sha256 BYTEA NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    revoked_at TIMESTAMP WITH TIME ZONE,
    last_used_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_api_keys PRIMARY KEY (id),
    CONSTRAINT ck_api_keys_sha256_length CHECK (octet_length(sha256) = 32),
    CONSTRAINT fk_api_keys_tenant_id FOREIGN KEY(tenant_id) REFERENCES tenants (id)
);
CREATE INDEX ix_api_keys_tenant_id ON api_keys (tenant_id);
CREATE UNIQUE INDEX uq_api_keys_sha256 ON api_keys (sha256);

CREATE TABLE base_aliases (
    alias TEXT NOT NULL,
    base_model TEXT NOT NULL,
    CONSTRAINT pk_base_aliases PRIMARY KEY (alias),
    CONSTRAINT fk_base_aliases_base_model FOREIGN KEY(base_model) REFERENCES base_models (name) ON DELETE CASCADE
);

CREATE TABLE deployments (
    name TEXT NOT NULL,
    base_model TEXT NOT NULL,
    is_default BOOLEAN DEFAULT false NOT NULL,
    device TEXT DEFAULT '0' NOT NULL,
    dtype TEXT DEFAULT 'bfloat16' NOT NULL,
    max_model_len INTEGER NOT NULL,
    max_num_seqs INTEGER NOT NULL,
    max_loras INTEGER NOT NULL,
    max_lora_rank INTEGER NOT NULL,
    max_cpu_loras INTEGER NOT NULL,
    tensor_parallel_size INTEGER DEFAULT '1' NOT NULL,
    gpu_memory_utilization DOUBLE PRECISION DEFAULT '0.9' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_deployments PRIMARY KEY (name),
    CONSTRAINT ck_deployments_rank_ceiling CHECK (max_lora_rank IN (1, 8, 16, 32, 64, 128, 256, 320, 512)),
    CONSTRAINT ck_deployments_slots CHECK (max_loras >= 1 AND max_cpu_loras >= max_loras),
    CONSTRAINT ck_deployments_engine_sizes CHECK (max_num_seqs >= 1 AND max_model_len >= 16),
    CONSTRAINT ck_deployments_memory_share CHECK (gpu_memory_utilization > 0 AND gpu_memory_utilization <= 1),
    CONSTRAINT ck_deployments_tensor_parallel CHECK (tensor_parallel_size >= 1),
    CONSTRAINT fk_deployments_base_model FOREIGN KEY(base_model) REFERENCES base_models (name)
);
CREATE UNIQUE INDEX uq_deployments_default ON deployments (base_model) WHERE is_default;

CREATE TABLE tenant_adapters (
    tenant_id TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    path TEXT NOT NULL,
    rank INTEGER NOT NULL,
    base_model TEXT NOT NULL,
    is_active BOOLEAN DEFAULT false NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    adapter_id INTEGER GENERATED ALWAYS AS IDENTITY (MAXVALUE 2147483647),
    digest TEXT NOT NULL,
    size_bytes BIGINT NOT NULL,
    facts JSONB NOT NULL,
    base_stated_by TEXT,
    state TEXT DEFAULT 'ready' NOT NULL,
    state_reason TEXT,
    activated_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_tenant_adapters PRIMARY KEY (tenant_id, name, version),
    CONSTRAINT ck_tenant_adapters_version_positive CHECK (version >= 1),
    CONSTRAINT ck_tenant_adapters_rank_positive CHECK (rank >= 1),
    CONSTRAINT ck_tenant_adapters_state_known CHECK (state IN ('ready', 'quarantined', 'retired')),
    CONSTRAINT ck_tenant_adapters_state_reason CHECK ((state = 'ready') = (state_reason IS NULL)),
    CONSTRAINT ck_tenant_adapters_active_is_ready CHECK (NOT is_active OR state = 'ready'),
    CONSTRAINT ck_tenant_adapters_digest_sha256 CHECK (digest ~ '^[0-9a-f]{64}$'),
    CONSTRAINT uq_tenant_adapters_adapter_id UNIQUE (adapter_id),
    CONSTRAINT uq_tenant_adapters_tenant_id_adapter_id UNIQUE (tenant_id, adapter_id),
    CONSTRAINT fk_tenant_adapters_tenant_id FOREIGN KEY(tenant_id) REFERENCES tenants (id),
    CONSTRAINT fk_tenant_adapters_base_model FOREIGN KEY(base_model) REFERENCES base_models (name)
);
CREATE INDEX ix_tenant_adapters_route ON tenant_adapters (base_model) WHERE is_active;
CREATE UNIQUE INDEX uq_tenant_adapters_active ON tenant_adapters (tenant_id, name) WHERE is_active;

CREATE TABLE jobs (
    id UUID NOT NULL,
    seq BIGINT GENERATED ALWAYS AS IDENTITY,
    tenant_id TEXT NOT NULL,
    deployment TEXT NOT NULL,
    adapter_id INTEGER,
    adapter_key INTEGER GENERATED ALWAYS AS (coalesce(adapter_id, 0)) STORED NOT NULL,
    model TEXT NOT NULL,
    state TEXT DEFAULT 'queued' NOT NULL,
    priority SMALLINT DEFAULT '0' NOT NULL,
    deadline TIMESTAMP WITH TIME ZONE,
    batch_id UUID,
    line_no INTEGER,
    custom_id TEXT,
    turn BIGINT,
    sent_to TEXT,
    fence INTEGER DEFAULT '0' NOT NULL,
    crashes SMALLINT DEFAULT '0' NOT NULL,
    attempts SMALLINT DEFAULT '0' NOT NULL,
    worker UUID,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    dispatched_at TIMESTAMP WITH TIME ZONE,
    claimed_at TIMESTAMP WITH TIME ZONE,
    started_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    error_code TEXT,
    error_message TEXT,
    finish_reason TEXT,
    prompt_tokens INTEGER,
    output_tokens INTEGER,
    timing JSONB,
    CONSTRAINT pk_jobs PRIMARY KEY (id),
    CONSTRAINT fk_jobs_tenant_id_adapter_id FOREIGN KEY(tenant_id, adapter_id) REFERENCES tenant_adapters (tenant_id, adapter_id),
    CONSTRAINT ck_jobs_state_known CHECK (state IN ('queued', 'dispatched', 'running', 'succeeded', 'failed', 'cancelled', 'expired')),
    CONSTRAINT ck_jobs_running_has_worker CHECK (state <> 'running' OR worker IS NOT NULL),
    CONSTRAINT ck_jobs_waiting_not_started CHECK (state NOT IN ('queued', 'dispatched') OR (started_at IS NULL AND worker IS NULL)),
    CONSTRAINT ck_jobs_finished CHECK ((finished_at IS NOT NULL) = (state IN ('succeeded', 'failed', 'cancelled', 'expired'))),
    CONSTRAINT ck_jobs_failed_has_code CHECK ((error_code IS NOT NULL) = (state = 'failed')),
    CONSTRAINT ck_jobs_line_of_batch CHECK ((batch_id IS NULL) = (line_no IS NULL)),
    CONSTRAINT ck_jobs_counters CHECK (fence >= 0 AND crashes >= 0 AND attempts >= 0),
    CONSTRAINT fk_jobs_tenant_id FOREIGN KEY(tenant_id) REFERENCES tenants (id),
    CONSTRAINT fk_jobs_deployment FOREIGN KEY(deployment) REFERENCES deployments (name)
)
 WITH (fillfactor = 80);
CREATE INDEX ix_jobs_backlog ON jobs (deployment, tenant_id, adapter_key, priority, seq) WHERE state = 'queued';
CREATE INDEX ix_jobs_deadline ON jobs (deadline) WHERE deadline IS NOT NULL AND finished_at IS NULL;
CREATE INDEX ix_jobs_dispatched ON jobs (deployment, dispatched_at) WHERE state = 'dispatched';
CREATE INDEX ix_jobs_running ON jobs (worker) WHERE state = 'running';
CREATE INDEX ix_jobs_tenant_seq ON jobs (tenant_id, seq);
CREATE UNIQUE INDEX uq_jobs_batch_line ON jobs (batch_id, line_no) WHERE batch_id IS NOT NULL;

CREATE TABLE workers (
    id UUID NOT NULL,
    name TEXT NOT NULL,
    deployment TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    capacity INTEGER NOT NULL,
    state TEXT DEFAULT 'starting' NOT NULL,
    held INTEGER DEFAULT '0' NOT NULL,
    live INTEGER DEFAULT '0' NOT NULL,
    residency JSONB DEFAULT '{}'::jsonb NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    beat_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_workers PRIMARY KEY (id),
    CONSTRAINT ck_workers_state_known CHECK (state IN ('starting', 'ready', 'draining', 'ended', 'dead')),
    CONSTRAINT ck_workers_capacity CHECK (capacity >= 1),
    CONSTRAINT fk_workers_deployment FOREIGN KEY(deployment) REFERENCES deployments (name) ON DELETE CASCADE
);
CREATE INDEX ix_workers_alive ON workers (deployment) WHERE state IN ('starting', 'ready', 'draining');
