-- Pauses, drains, quarantines, restores.
SET ROLE lorry_owner;

ALTER TABLE deployments ADD COLUMN paused_at TIMESTAMP WITH TIME ZONE;
ALTER TABLE tenants ADD COLUMN paused_at TIMESTAMP WITH TIME ZONE;
ALTER TABLE workers ADD COLUMN drain_requested_at TIMESTAMP WITH TIME ZONE;
ALTER TABLE tenant_adapters ADD COLUMN paused_at TIMESTAMP WITH TIME ZONE,
    ADD COLUMN load_failures INTEGER DEFAULT '0' NOT NULL,
    ADD COLUMN load_failing_since TIMESTAMP WITH TIME ZONE,
    ADD COLUMN has_jobs_to_fail BOOLEAN DEFAULT false NOT NULL;
-- Nearly always empty, so that a pick and a chore pay nothing for them.
CREATE INDEX ix_tenants_paused ON tenants (id) WHERE paused_at IS NOT NULL;
CREATE INDEX ix_tenant_adapters_paused ON tenant_adapters (adapter_id) WHERE paused_at IS NOT NULL;
CREATE INDEX ix_tenant_adapters_going ON tenant_adapters (adapter_id) WHERE has_jobs_to_fail;

CREATE TABLE restores (
    restored_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_restores PRIMARY KEY (restored_at)
);
GRANT SELECT ON restores TO lorry_api, lorry_ingest;
GRANT SELECT, INSERT, UPDATE, DELETE ON restores TO lorry_system;

-- What came out of a backup may have ended, and been announced, between the backup and the loss. Its events are kept as
-- undelivered, for somebody to look at and send, and are never sent by themselves. Ids carry their time (UUIDv7).
CREATE FUNCTION lorry_hold_restored() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.state := 'exhausted';
    NEW.log := '[{"code": null, "error": "restored", "latency_ms": 0}]'::jsonb;
    RETURN NEW;
END $$;
CREATE FUNCTION lorry_is_restored(subject uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM restores r WHERE uuid_extract_timestamp(subject) < r.restored_at)
$$;
CREATE TRIGGER webhook_deliveries_restored BEFORE INSERT ON webhook_deliveries FOR EACH ROW
    WHEN (NEW.state = 'pending' AND lorry_is_restored(NEW.subject)) EXECUTE FUNCTION lorry_hold_restored();
RESET ROLE;
