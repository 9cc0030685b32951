-- Batches, their files and refused lines; cancelled and expired jobs are counted as well.
SET ROLE lorry_owner;

CREATE TABLE batches (
    id UUID NOT NULL,
    tenant_id TEXT NOT NULL,
    source TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    status TEXT NOT NULL,
    completion_window TEXT NOT NULL,
    on_bad_line TEXT DEFAULT 'fail' NOT NULL,
    input_file_id UUID,
    output_file_id UUID,
    error_file_id UUID,
    output_expires_after_s INTEGER,
    rerun_of UUID,
    model TEXT,
    metadata JSONB DEFAULT '{}'::jsonb NOT NULL,
    errors JSONB,
    error_total INTEGER DEFAULT '0' NOT NULL,
    total INTEGER DEFAULT '0' NOT NULL,
    succeeded INTEGER DEFAULT '0' NOT NULL,
    failed INTEGER DEFAULT '0' NOT NULL,
    cancelled INTEGER DEFAULT '0' NOT NULL,
    expired INTEGER DEFAULT '0' NOT NULL,
    input_tokens BIGINT DEFAULT '0' NOT NULL,
    output_tokens BIGINT DEFAULT '0' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    in_progress_at TIMESTAMP WITH TIME ZONE,
    expires_at TIMESTAMP WITH TIME ZONE,
    finalizing_at TIMESTAMP WITH TIME ZONE,
    completed_at TIMESTAMP WITH TIME ZONE,
    failed_at TIMESTAMP WITH TIME ZONE,
    expired_at TIMESTAMP WITH TIME ZONE,
    cancelling_at TIMESTAMP WITH TIME ZONE,
    cancelled_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_batches PRIMARY KEY (id),
    CONSTRAINT ck_batches_status_known CHECK (status IN ('validating', 'failed', 'in_progress', 'finalizing', 'completed', 'expired', 'cancelling', 'cancelled')),
    CONSTRAINT ck_batches_counts_add_up CHECK (succeeded + failed + cancelled + expired <= total),
    CONSTRAINT ck_batches_on_bad_line CHECK (on_bad_line IN ('fail', 'skip')),
    CONSTRAINT ck_batches_source_known CHECK (source IN ('file', 'ndjson', 'rerun')),
    CONSTRAINT fk_batches_tenant_id FOREIGN KEY(tenant_id) REFERENCES tenants (id)
);
CREATE INDEX ix_batches_open ON batches (status) WHERE status IN ('in_progress', 'finalizing', 'cancelling');
CREATE INDEX ix_batches_tenant ON batches (tenant_id, created_at, id);

CREATE TABLE files (
    id UUID NOT NULL,
    tenant_id TEXT NOT NULL,
    purpose TEXT NOT NULL,
    content TEXT DEFAULT 'input' NOT NULL,
    filename TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    sha256 TEXT,
    path TEXT,
    batch_id UUID,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_files PRIMARY KEY (id),
    CONSTRAINT ck_files_disk_or_rows CHECK ((path IS NOT NULL) = (batch_id IS NULL)),
    CONSTRAINT ck_files_content_known CHECK (content IN ('input', 'output', 'error')),
    CONSTRAINT ck_files_bytes_positive CHECK (bytes >= 0),
    CONSTRAINT fk_files_tenant_id FOREIGN KEY(tenant_id) REFERENCES tenants (id)
);
CREATE INDEX ix_files_expires ON files (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX ix_files_tenant ON files (tenant_id, created_at, id);

CREATE TABLE batch_bad_lines (
    batch_id UUID NOT NULL,
    line_no INTEGER NOT NULL,
    tenant_id TEXT NOT NULL,
    custom_id TEXT,
    code TEXT NOT NULL,
    message TEXT NOT NULL,
    param TEXT,
    CONSTRAINT pk_batch_bad_lines PRIMARY KEY (batch_id, line_no),
    CONSTRAINT fk_batch_bad_lines_batch_id FOREIGN KEY(batch_id) REFERENCES batches (id) ON DELETE CASCADE
);

ALTER TABLE tallies ADD COLUMN cancelled BIGINT DEFAULT '0' NOT NULL, ADD COLUMN expired BIGINT DEFAULT '0' NOT NULL;
ALTER TABLE usage_days ADD COLUMN cancelled BIGINT DEFAULT '0' NOT NULL, ADD COLUMN expired BIGINT DEFAULT '0' NOT NULL;
ALTER TABLE jobs ADD CONSTRAINT fk_jobs_batch_id FOREIGN KEY (batch_id) REFERENCES batches (id);

DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['files', 'batches', 'batch_bad_lines'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY own_tenant ON %I TO lorry_api
            USING (tenant_id = NULLIF(current_setting(''lorry.tenant_id'', true), ''''))
            WITH CHECK (tenant_id = NULLIF(current_setting(''lorry.tenant_id'', true), ''''))', t);
        EXECUTE format('CREATE POLICY system_all ON %I TO lorry_system USING (true) WITH CHECK (true)', t);
    END LOOP;
END $$;
GRANT SELECT, INSERT ON files, batches, batch_bad_lines TO lorry_api;
GRANT DELETE ON files TO lorry_api;
GRANT UPDATE (status, cancelling_at) ON batches TO lorry_api;
GRANT INSERT ON batches, batch_bad_lines TO lorry_ingest;
GRANT SELECT, INSERT, UPDATE, DELETE ON files, batches, batch_bad_lines TO lorry_system;
RESET ROLE;
