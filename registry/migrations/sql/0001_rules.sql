-- What the database refuses: forbidden state changes, other tenants' rows, rights a role does not need.

CREATE FUNCTION lorry_check_arrow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.state = 'queued' AND NEW.state IN ('dispatched', 'cancelled', 'expired', 'failed'))
        OR (OLD.state = 'dispatched' AND NEW.state IN ('running', 'queued', 'cancelled', 'expired', 'failed'))
        OR (OLD.state = 'running' AND NEW.state IN ('succeeded', 'failed', 'queued', 'cancelled', 'expired'))
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'job % cannot go from % to %', OLD.id, OLD.state, NEW.state USING ERRCODE = 'check_violation',
        CONSTRAINT = 'jobs_state_arrow';
END $$;
CREATE TRIGGER jobs_state_arrow BEFORE UPDATE OF state ON jobs
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION lorry_check_arrow();

CREATE FUNCTION lorry_check_fence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job %: the fence never goes down', OLD.id USING ERRCODE = 'check_violation', CONSTRAINT = 'jobs_fence_grows';
END $$;
CREATE TRIGGER jobs_fence_grows BEFORE UPDATE OF fence ON jobs
    FOR EACH ROW WHEN (NEW.fence < OLD.fence) EXECUTE FUNCTION lorry_check_fence();

-- The state is in every partial index, so no update is HOT: vacuum often and at full speed.
ALTER TABLE jobs SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

CREATE SEQUENCE job_turns;

-- Texts by day. The default partition catches days that nobody made a table for, so that no submission is refused.
CREATE TABLE job_inputs_default PARTITION OF job_inputs DEFAULT;
CREATE TABLE job_outputs_default PARTITION OF job_outputs DEFAULT;

CREATE FUNCTION lorry_make_partitions(first_day date, days integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public AS $$
DECLARE
    made integer := 0;
    d date;
    parent text;
    kept boolean;
BEGIN
    FOR d IN SELECT first_day + n FROM generate_series(0, days - 1) AS n LOOP
        FOREACH parent IN ARRAY ARRAY['job_inputs', 'job_outputs'] LOOP
            EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE day = %L)', parent || '_default', d) INTO kept;
            IF NOT kept AND to_regclass(format('%I', parent || '_' || to_char(d, 'YYYYMMDD'))) IS NULL THEN
                EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                    parent || '_' || to_char(d, 'YYYYMMDD'), parent, d, d + 1);
                made := made + 1;
            END IF;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;

ALTER TABLE tenants ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenants FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_itself ON tenants TO lorry_api
    USING (id = NULLIF(current_setting('lorry.tenant_id', true), ''));
CREATE POLICY system_all ON tenants TO lorry_system USING (true) WITH CHECK (true);

DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['api_keys', 'tenant_adapters', 'jobs', 'job_inputs', 'job_outputs', 'tallies', 'usage_days'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY own_tenant ON %I TO lorry_api
            USING (tenant_id = NULLIF(current_setting(''lorry.tenant_id'', true), ''''))
            WITH CHECK (tenant_id = NULLIF(current_setting(''lorry.tenant_id'', true), ''''))', t);
        EXECUTE format('CREATE POLICY system_all ON %I TO lorry_system USING (true) WITH CHECK (true)', t);
    END LOOP;
END $$;
-- What the API may do to a job is submit it and cancel it: a fault there cannot make a job look done.
CREATE POLICY api_submits ON jobs AS RESTRICTIVE FOR INSERT TO lorry_api WITH CHECK (state = 'queued' AND fence = 0);
CREATE POLICY api_cancels ON jobs AS RESTRICTIVE FOR UPDATE TO lorry_api USING (true) WITH CHECK (state = 'cancelled');
-- A caller is unknown until its key is found: the key's own hash opens that one row.
CREATE POLICY presented_key ON api_keys FOR SELECT TO lorry_api
    USING (encode(sha256, 'hex') = NULLIF(current_setting('lorry.key_sha256', true), ''));

GRANT SELECT ON base_models, base_aliases, deployments TO lorry_api;
GRANT SELECT ON tenants, api_keys, tenant_adapters, jobs, job_inputs, job_outputs, usage_days, tallies TO lorry_api;
GRANT UPDATE (last_used_at) ON api_keys TO lorry_api;
GRANT INSERT ON tenant_adapters, jobs, job_inputs TO lorry_api;
GRANT UPDATE (is_active, activated_at) ON tenant_adapters TO lorry_api;
GRANT UPDATE (state, finished_at) ON jobs TO lorry_api;
GRANT INSERT ON jobs, job_inputs TO lorry_ingest;
GRANT SELECT, INSERT, UPDATE, DELETE ON tenants, api_keys, base_models, base_aliases, deployments, tenant_adapters,
    jobs, job_inputs, job_outputs, tallies, usage_days, workers TO lorry_system;
GRANT USAGE ON SEQUENCE job_turns TO lorry_system;
REVOKE EXECUTE ON FUNCTION lorry_make_partitions(date, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lorry_make_partitions(date, integer) TO lorry_system;
SELECT lorry_make_partitions((now() AT TIME ZONE 'UTC')::date - 1, 9);
RESET ROLE;
-- /readyz compares the schema's revision with the release's.
GRANT SELECT ON alembic_version TO lorry_api, lorry_system;
