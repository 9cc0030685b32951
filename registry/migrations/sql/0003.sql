-- Webhook endpoints and deliveries.
SET ROLE lorry_owner;

CREATE TABLE webhook_endpoints (
    id UUID NOT NULL,
    tenant_id TEXT NOT NULL,
    kind TEXT DEFAULT 'registered' NOT NULL,
    name TEXT NOT NULL,
    url TEXT,
    event_types TEXT[] DEFAULT '{}' NOT NULL,
    payload TEXT DEFAULT 'full' NOT NULL,
    deliver TEXT DEFAULT 'events' NOT NULL,
    secret BYTEA NOT NULL,
    secret_hint TEXT NOT NULL,
    old_secret BYTEA,
    old_secret_until TIMESTAMP WITH TIME ZONE,
    failing_since TIMESTAMP WITH TIME ZONE,
    disabled_at TIMESTAMP WITH TIME ZONE,
    disabled_reason TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_webhook_endpoints PRIMARY KEY (id),
    CONSTRAINT ck_webhook_endpoints_kind_known CHECK (kind IN ('registered', 'inline')),
    CONSTRAINT ck_webhook_endpoints_inline_has_no_url CHECK ((url IS NULL) = (kind = 'inline')),
    CONSTRAINT ck_webhook_endpoints_payload_known CHECK (payload IN ('full', 'thin')),
    CONSTRAINT ck_webhook_endpoints_deliver_known CHECK (deliver IN ('events', 'results')),
    CONSTRAINT ck_webhook_endpoints_old_secret_ends CHECK ((old_secret IS NULL) = (old_secret_until IS NULL)),
    CONSTRAINT ck_webhook_endpoints_disabled_has_reason CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL)),
    CONSTRAINT fk_webhook_endpoints_tenant_id FOREIGN KEY(tenant_id) REFERENCES tenants (id)
);
CREATE INDEX ix_webhook_endpoints_tenant ON webhook_endpoints (tenant_id, id);
CREATE UNIQUE INDEX uq_webhook_endpoints_inline ON webhook_endpoints (tenant_id) WHERE kind = 'inline';

CREATE TABLE webhook_deliveries (
    id UUID DEFAULT uuidv7() NOT NULL,
    tenant_id TEXT NOT NULL,
    endpoint_id UUID NOT NULL,
    type TEXT NOT NULL,
    subject UUID,
    url TEXT,
    lane TEXT NOT NULL,
    chunk_no INTEGER,
    lines INTEGER[],
    is_last BOOLEAN DEFAULT false NOT NULL,
    state TEXT DEFAULT 'pending' NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    sent_at TIMESTAMP WITH TIME ZONE,
    claimed_at TIMESTAMP WITH TIME ZONE,
    fence INTEGER DEFAULT '0' NOT NULL,
    attempts INTEGER DEFAULT '0' NOT NULL,
    failures INTEGER DEFAULT '0' NOT NULL,
    log JSONB DEFAULT '[]'::jsonb NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    delivered_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_webhook_deliveries PRIMARY KEY (id),
    CONSTRAINT ck_webhook_deliveries_state_known CHECK (state IN ('pending', 'sent', 'sending', 'delivered', 'exhausted')),
    CONSTRAINT ck_webhook_deliveries_delivered CHECK (state <> 'delivered' OR delivered_at IS NOT NULL),
    CONSTRAINT ck_webhook_deliveries_chunk CHECK ((chunk_no IS NULL) = (lines IS NULL)),
    CONSTRAINT fk_webhook_deliveries_tenant_id FOREIGN KEY(tenant_id) REFERENCES tenants (id),
    CONSTRAINT fk_webhook_deliveries_endpoint_id FOREIGN KEY(endpoint_id) REFERENCES webhook_endpoints (id) ON DELETE CASCADE
);
CREATE INDEX ix_webhook_deliveries_due ON webhook_deliveries (lane, due_at) WHERE state = 'pending';
CREATE INDEX ix_webhook_deliveries_flying ON webhook_deliveries (state, tenant_id, lane) WHERE state IN ('sent', 'sending');
CREATE INDEX ix_webhook_deliveries_log ON webhook_deliveries (endpoint_id, id);

CREATE TABLE webhook_streams (
    endpoint_id UUID NOT NULL,
    batch_id UUID NOT NULL,
    tenant_id TEXT NOT NULL,
    chunks INTEGER DEFAULT '0' NOT NULL,
    cursor_at TIMESTAMP WITH TIME ZONE,
    cursor_line INTEGER,
    CONSTRAINT pk_webhook_streams PRIMARY KEY (endpoint_id, batch_id),
    CONSTRAINT fk_webhook_streams_endpoint_id FOREIGN KEY(endpoint_id) REFERENCES webhook_endpoints (id) ON DELETE CASCADE,
    CONSTRAINT fk_webhook_streams_batch_id FOREIGN KEY(batch_id) REFERENCES batches (id) ON DELETE CASCADE
);

ALTER TABLE jobs ADD COLUMN notify BOOLEAN DEFAULT false NOT NULL, ADD COLUMN webhook_url TEXT;
ALTER TABLE batches ADD COLUMN webhook_url TEXT;
-- Lines in the order of their ends: an entry is written once, by the settling update, and for batches only.
CREATE INDEX ix_jobs_batch_finished ON jobs (batch_id, finished_at, line_no) WHERE batch_id IS NOT NULL AND finished_at IS NOT NULL;

-- One delivery for each endpoint that wants the event, in the transaction that brings it about. A disabled endpoint's
-- deliveries are recorded as exhausted, so that a later redelivery by time range finds them. Deliveries of one lane
-- queue behind each other: an endpoint, or a host that inline URLs name.
CREATE FUNCTION lorry_announce(tenant text, happened text, subject_id uuid, inline_url text) RETURNS void
    LANGUAGE sql AS $$
    INSERT INTO webhook_deliveries (tenant_id, endpoint_id, type, subject, url, lane, state)
    SELECT tenant, e.id, happened, subject_id, CASE e.kind WHEN 'inline' THEN inline_url END,
        CASE e.kind WHEN 'inline' THEN tenant || ' ' || coalesce(substring(inline_url FROM '^[a-z]+://[^/?#]+'), '')
            ELSE e.id::text END,
        CASE WHEN e.disabled_at IS NULL THEN 'pending' ELSE 'exhausted' END
    FROM webhook_endpoints e
    WHERE e.tenant_id = tenant AND CASE e.kind
        WHEN 'inline' THEN inline_url IS NOT NULL AND happened <> 'batch.in_progress' ELSE happened = ANY (e.event_types) END
$$;

CREATE FUNCTION lorry_announce_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM lorry_announce(NEW.tenant_id, 'job.' || NEW.state, NEW.id, NEW.webhook_url);
    RETURN NULL;
END $$;
-- `notify` is set at submission, when anybody wants to hear of this job; all other jobs pay for reading one column.
-- A batch's lines are not announced one by one: the batch and its chunks of results speak for them.
CREATE TRIGGER jobs_announce AFTER UPDATE OF state ON jobs FOR EACH ROW
    WHEN (NEW.notify AND NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL AND NEW.batch_id IS NULL) EXECUTE FUNCTION lorry_announce_job();

CREATE FUNCTION lorry_announce_batch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM lorry_announce(NEW.tenant_id, 'batch.' || NEW.status, NEW.id, NEW.webhook_url);
    IF NEW.status = 'in_progress' THEN
        INSERT INTO webhook_streams (endpoint_id, batch_id, tenant_id)
        SELECT e.id, NEW.id, NEW.tenant_id FROM webhook_endpoints e
        WHERE e.tenant_id = NEW.tenant_id AND e.deliver = 'results'
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER batches_announce_new AFTER INSERT ON batches FOR EACH ROW
    WHEN (NEW.status IN ('in_progress', 'completed', 'failed', 'expired', 'cancelled'))
    EXECUTE FUNCTION lorry_announce_batch();
CREATE TRIGGER batches_announce AFTER UPDATE OF status ON batches FOR EACH ROW
    WHEN (NEW.status IS DISTINCT FROM OLD.status
        AND NEW.status IN ('in_progress', 'completed', 'failed', 'expired', 'cancelled'))
    EXECUTE FUNCTION lorry_announce_batch();

DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['webhook_endpoints', 'webhook_deliveries', 'webhook_streams'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY own_tenant ON %I TO lorry_api
            USING (tenant_id = NULLIF(current_setting(''lorry.tenant_id'', true), ''''))
            WITH CHECK (tenant_id = NULLIF(current_setting(''lorry.tenant_id'', true), ''''))', t);
        EXECUTE format('CREATE POLICY system_all ON %I TO lorry_system USING (true) WITH CHECK (true)', t);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON webhook_endpoints TO lorry_api;
GRANT SELECT, INSERT ON webhook_deliveries, webhook_streams TO lorry_api;
GRANT UPDATE (state, due_at, failures) ON webhook_deliveries TO lorry_api;
-- The triggers run as whoever ends the job or makes the batch. The ingest role never sees a secret.
GRANT SELECT (id, tenant_id, kind, event_types, deliver, disabled_at) ON webhook_endpoints TO lorry_ingest;
GRANT INSERT ON webhook_deliveries, webhook_streams TO lorry_ingest;
GRANT SELECT, INSERT, UPDATE, DELETE ON webhook_endpoints, webhook_deliveries, webhook_streams TO lorry_system;
RESET ROLE;
