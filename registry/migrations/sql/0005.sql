-- What the backlog order and the explanations need. The dispatcher is the only writer of both tables.
SET ROLE lorry_owner;

CREATE TABLE service_counters (
    deployment TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    served DOUBLE PRECISION DEFAULT '0' NOT NULL,
    active BOOLEAN DEFAULT true NOT NULL,
    CONSTRAINT pk_service_counters PRIMARY KEY (deployment, tenant_id),
    CONSTRAINT fk_service_counters_deployment FOREIGN KEY(deployment) REFERENCES deployments (name) ON DELETE CASCADE,
    CONSTRAINT fk_service_counters_tenant_id FOREIGN KEY(tenant_id) REFERENCES tenants (id) ON DELETE CASCADE
);

CREATE TABLE job_lengths (
    deployment TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    adapter_key INTEGER NOT NULL,
    prompt_tokens DOUBLE PRECISION NOT NULL,
    output_tokens DOUBLE PRECISION NOT NULL,
    CONSTRAINT pk_job_lengths PRIMARY KEY (deployment, tenant_id, adapter_key),
    CONSTRAINT fk_job_lengths_deployment FOREIGN KEY(deployment) REFERENCES deployments (name) ON DELETE CASCADE,
    CONSTRAINT fk_job_lengths_tenant_id FOREIGN KEY(tenant_id) REFERENCES tenants (id) ON DELETE CASCADE
);

ALTER TABLE jobs ADD COLUMN charged INTEGER DEFAULT '0' NOT NULL, ADD COLUMN waiting_reason TEXT,
    ADD COLUMN admit_reason TEXT,
    ADD CONSTRAINT ck_jobs_reasons_short CHECK (char_length(waiting_reason) <= 200 AND char_length(admit_reason) <= 200);
ALTER TABLE tallies ADD COLUMN deployment TEXT, ADD COLUMN charged BIGINT DEFAULT '0' NOT NULL;
CREATE INDEX ix_jobs_due ON jobs (deployment, deadline, seq) WHERE state = 'queued' AND deadline IS NOT NULL;

DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['service_counters', 'job_lengths'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY own_tenant ON %I TO lorry_api
            USING (tenant_id = NULLIF(current_setting(''lorry.tenant_id'', true), ''''))
            WITH CHECK (tenant_id = NULLIF(current_setting(''lorry.tenant_id'', true), ''''))', t);
        EXECUTE format('CREATE POLICY system_all ON %I TO lorry_system USING (true) WITH CHECK (true)', t);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON service_counters, job_lengths TO lorry_system;
RESET ROLE;
