-- What the database refuses of a batch; what the API may end or purge by itself; dropping the texts of old days.
SET ROLE lorry_owner;

-- How fast a batch's lines end: an average that forgets with a time constant of 30 s, kept by the fold.
ALTER TABLE batches ADD COLUMN pace DOUBLE PRECISION DEFAULT '0' NOT NULL,
    ADD COLUMN pace_at TIMESTAMP WITH TIME ZONE, ADD COLUMN pace_since TIMESTAMP WITH TIME ZONE;

ALTER TABLE batches ADD CONSTRAINT ck_batches_one_end CHECK (
    (failed_at IS NOT NULL) = (status = 'failed') AND (completed_at IS NOT NULL) = (status = 'completed')
    AND (expired_at IS NOT NULL) = (status = 'expired') AND (cancelled_at IS NOT NULL) = (status = 'cancelled'));
ALTER TABLE batches ADD CONSTRAINT ck_batches_all_counted_at_the_end CHECK (
    status NOT IN ('finalizing', 'completed', 'expired', 'cancelled')
    OR succeeded + failed + cancelled + expired = total);

CREATE FUNCTION lorry_check_batch_arrow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.status = 'validating' AND NEW.status IN ('failed', 'in_progress', 'cancelling'))
        OR (OLD.status = 'in_progress' AND NEW.status IN ('finalizing', 'expired', 'cancelling'))
        OR (OLD.status = 'finalizing' AND NEW.status IN ('completed'))
        OR (OLD.status = 'cancelling' AND NEW.status IN ('cancelled'))
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'batch % cannot go from % to %', OLD.id, OLD.status, NEW.status USING ERRCODE = 'check_violation',
        CONSTRAINT = 'batches_status_arrow';
END $$;
CREATE TRIGGER batches_status_arrow BEFORE UPDATE OF status ON batches
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION lorry_check_batch_arrow();

CREATE FUNCTION lorry_check_batch_counts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'batch %: counts never go down', OLD.id USING ERRCODE = 'check_violation', CONSTRAINT = 'batches_counts_grow';
END $$;
CREATE TRIGGER batches_counts_grow BEFORE UPDATE OF succeeded, failed, cancelled, expired ON batches
    FOR EACH ROW WHEN (NEW.succeeded < OLD.succeeded OR NEW.failed < OLD.failed OR NEW.cancelled < OLD.cancelled
        OR NEW.expired < OLD.expired) EXECUTE FUNCTION lorry_check_batch_counts();

-- What the API may do to a batch is ask for its end; what it counts is a job that it cancelled.
CREATE POLICY api_cancels ON batches AS RESTRICTIVE FOR UPDATE TO lorry_api USING (true) WITH CHECK (status = 'cancelling');
CREATE POLICY api_counts_cancels ON tallies AS RESTRICTIVE FOR INSERT TO lorry_api WITH CHECK (cancelled = 1);
GRANT INSERT (tenant_id, day, adapter_key, batch_id, cancelled) ON tallies TO lorry_api;

-- A tenant purges what has ended. A text whose job is open stays, whatever a fault in the API asks for.
CREATE POLICY api_purges_ended ON jobs AS RESTRICTIVE FOR DELETE TO lorry_api USING (finished_at IS NOT NULL);
CREATE POLICY api_purges_ended ON batches AS RESTRICTIVE FOR DELETE TO lorry_api
    USING (status IN ('failed', 'completed', 'expired', 'cancelled'));
CREATE POLICY api_purges_ended ON job_inputs AS RESTRICTIVE FOR DELETE TO lorry_api
    USING (NOT EXISTS (SELECT FROM jobs WHERE jobs.id = job_id AND jobs.finished_at IS NULL));
CREATE POLICY api_purges_ended ON job_outputs AS RESTRICTIVE FOR DELETE TO lorry_api
    USING (NOT EXISTS (SELECT FROM jobs WHERE jobs.id = job_id AND jobs.finished_at IS NULL));
GRANT DELETE ON jobs, job_inputs, job_outputs, batches TO lorry_api;

-- A download may hold a day's table for seconds: then we give up at once, so that nobody queues behind us, and ask again.
CREATE FUNCTION lorry_drop_days(before date) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public SET lock_timeout = '100ms' AS $$
DECLARE
    dropped integer := 0;
    old text;
BEGIN
    FOR old IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent IN ('job_inputs'::regclass, 'job_outputs'::regclass)
          AND c.relname ~ '_\d{8}$' AND to_date(right(c.relname, 8), 'YYYYMMDD') < before
        ORDER BY right(c.relname, 8)
    LOOP
        EXECUTE format('DROP TABLE %I', old);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
END $$;
REVOKE EXECUTE ON FUNCTION lorry_drop_days(date) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lorry_drop_days(date) TO lorry_system;
RESET ROLE;
