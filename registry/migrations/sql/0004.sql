-- Kept answers (idempotency), limits of tenants, and the counters they are held against.
SET ROLE lorry_owner;

CREATE TABLE tenant_limits (
    tenant_id TEXT NOT NULL,
    queued_jobs BIGINT,
    stored_bytes BIGINT,
    posts_per_minute INTEGER,
    tokens_per_day BIGINT,
    CONSTRAINT pk_tenant_limits PRIMARY KEY (tenant_id),
    CONSTRAINT ck_tenant_limits_positive CHECK (queued_jobs >= 0 AND stored_bytes >= 0 AND posts_per_minute >= 1 AND tokens_per_day >= 0),
    CONSTRAINT fk_tenant_limits_tenant_id FOREIGN KEY(tenant_id) REFERENCES tenants (id)
);

CREATE TABLE jobs_taken (
    tenant_id TEXT NOT NULL,
    jobs BIGINT DEFAULT '0' NOT NULL,
    CONSTRAINT pk_jobs_taken PRIMARY KEY (tenant_id),
    CONSTRAINT fk_jobs_taken_tenant_id FOREIGN KEY(tenant_id) REFERENCES tenants (id)
);

CREATE TABLE jobs_ended (
    tenant_id TEXT NOT NULL,
    jobs BIGINT DEFAULT '0' NOT NULL,
    CONSTRAINT pk_jobs_ended PRIMARY KEY (tenant_id)
);

CREATE UNLOGGED TABLE post_rates (
    tenant_id TEXT NOT NULL,
    empty_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_post_rates PRIMARY KEY (tenant_id)
);

CREATE TABLE kept_answers (
    tenant_id TEXT NOT NULL,
    scope BYTEA NOT NULL,
    fingerprint BYTEA NOT NULL,
    status SMALLINT NOT NULL,
    location TEXT,
    body BYTEA NOT NULL,
    is_sealed BOOLEAN NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_kept_answers PRIMARY KEY (tenant_id, scope),
    CONSTRAINT ck_kept_answers_digests CHECK (octet_length(scope) = 32 AND octet_length(fingerprint) = 32),
    CONSTRAINT fk_kept_answers_tenant_id FOREIGN KEY(tenant_id) REFERENCES tenants (id)
);
CREATE INDEX ix_kept_answers_expires ON kept_answers (expires_at);

-- Counting is the table's own business, so that no way of submitting can forget it. The counter's row stays locked until
-- the transaction ends: whoever compares it with a limit after inserting sees every job that may still be committed.
CREATE FUNCTION lorry_count_taken() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO jobs_taken AS t (tenant_id, jobs)
    SELECT tenant_id, count(*) FROM fresh WHERE finished_at IS NULL GROUP BY tenant_id ORDER BY tenant_id
    ON CONFLICT (tenant_id) DO UPDATE SET jobs = t.jobs + excluded.jobs;
    RETURN NULL;
END $$;
CREATE TRIGGER jobs_count_taken AFTER INSERT ON jobs REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION lorry_count_taken();

DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['tenant_limits', 'jobs_taken', 'jobs_ended', 'post_rates', 'kept_answers'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY own_tenant ON %I TO lorry_api
            USING (tenant_id = NULLIF(current_setting(''lorry.tenant_id'', true), ''''))
            WITH CHECK (tenant_id = NULLIF(current_setting(''lorry.tenant_id'', true), ''''))', t);
        EXECUTE format('CREATE POLICY system_all ON %I TO lorry_system USING (true) WITH CHECK (true)', t);
    END LOOP;
END $$;
GRANT SELECT ON tenant_limits, jobs_ended TO lorry_api;
GRANT SELECT, INSERT, UPDATE ON jobs_taken, post_rates, kept_answers TO lorry_api;
GRANT SELECT, INSERT, UPDATE ON jobs_taken TO lorry_ingest;
-- The API's one hub for clients that wait asks about many tenants' jobs at once: whether they have ended, and no more.
GRANT SELECT (id, finished_at) ON jobs TO lorry_ingest;
GRANT SELECT, INSERT, UPDATE, DELETE ON tenant_limits, jobs_taken, jobs_ended, post_rates, kept_answers TO lorry_system;

-- Jobs from before this release: those that are open, and those whose end is in a tally that is still to be folded.
SET ROLE lorry_system;
INSERT INTO jobs_taken (tenant_id, jobs)
SELECT tenant_id, sum(n) FROM (
    SELECT tenant_id, count(*) AS n FROM jobs WHERE finished_at IS NULL GROUP BY tenant_id
    UNION ALL
    SELECT tenant_id, sum(succeeded + failed + cancelled + expired) FROM tallies GROUP BY tenant_id
) AS counted GROUP BY tenant_id;
RESET ROLE;
