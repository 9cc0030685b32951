-- Roles belong to the whole cluster: made if missing, never changed here.
-- lorry_ingest bypasses row-level security because COPY FROM is refused under it; one function uses it.
DO $$
DECLARE wanted record;
BEGIN
    FOR wanted IN SELECT * FROM (VALUES
        ('lorry_owner', 'NOLOGIN'), ('lorry_api', 'NOLOGIN NOBYPASSRLS'),
        ('lorry_system', 'NOLOGIN NOBYPASSRLS'), ('lorry_ingest', 'NOLOGIN BYPASSRLS')) AS roles (name, attributes)
    LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted.name) THEN
                EXECUTE format('CREATE ROLE %I %s', wanted.name, wanted.attributes);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;  -- another database's migration was quicker
        END;
        IF NOT pg_has_role(session_user, wanted.name, 'SET') THEN
            EXECUTE format('GRANT %I TO %I', wanted.name, session_user);
        END IF;
    END LOOP;
END $$;
GRANT USAGE, CREATE ON SCHEMA public TO lorry_owner;
GRANT USAGE ON SCHEMA public TO lorry_api, lorry_system, lorry_ingest;
SET ROLE lorry_owner;
