-- Up to this count a tenant that came back from idleness is served ahead of its turn; the previous release ignores it.
SET ROLE lorry_owner;

ALTER TABLE service_counters ADD COLUMN ahead_until FLOAT DEFAULT 0 NOT NULL;
RESET ROLE;
