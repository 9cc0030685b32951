-- What a dead worker held is picked before all else. The previous release neither sets nor clears the mark: it picks such
-- jobs when their tenants are next, as before.
SET ROLE lorry_owner;

ALTER TABLE jobs ADD COLUMN rescued BOOLEAN DEFAULT false NOT NULL;
CREATE INDEX ix_jobs_rescued ON jobs (deployment, seq) WHERE rescued AND state = 'queued';
RESET ROLE;
