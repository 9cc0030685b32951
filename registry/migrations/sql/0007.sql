-- Documents longer than the context: a job that waits for its parts, which are jobs of their own.
SET ROLE lorry_owner;

ALTER TABLE jobs ADD COLUMN parent_id UUID, ADD COLUMN part_no INTEGER,
    ADD COLUMN waits_for_parts BOOLEAN DEFAULT false NOT NULL, ADD COLUMN overflow JSONB,
    ADD CONSTRAINT fk_jobs_parent_id FOREIGN KEY (parent_id) REFERENCES jobs (id) ON DELETE CASCADE,
    ADD CONSTRAINT ck_jobs_part_of_parent CHECK ((parent_id IS NULL) = (part_no IS NULL)),
    ADD CONSTRAINT ck_jobs_waits_in_the_backlog CHECK (NOT waits_for_parts OR state NOT IN ('dispatched', 'running'));
-- Both hold only what is being worked on: parts are deleted when their job goes on.
CREATE INDEX ix_jobs_parts ON jobs (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX ix_jobs_waits_for_parts ON jobs (id) WHERE waits_for_parts;

-- A part takes no place of its tenant's: the job that it belongs to has one.
CREATE OR REPLACE FUNCTION lorry_count_taken() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO jobs_taken AS t (tenant_id, jobs)
    SELECT tenant_id, count(*) FROM fresh WHERE finished_at IS NULL AND parent_id IS NULL GROUP BY tenant_id ORDER BY tenant_id
    ON CONFLICT (tenant_id) DO UPDATE SET jobs = t.jobs + excluded.jobs;
    RETURN NULL;
END $$;
RESET ROLE;
