-- NULL is `auto`: sized by the worker at its start. What it came to stands in the worker's row.
SET ROLE lorry_owner;

ALTER TABLE deployments ALTER COLUMN max_loras DROP NOT NULL, ALTER COLUMN max_cpu_loras DROP NOT NULL;
ALTER TABLE workers ADD COLUMN sizing JSONB;
RESET ROLE;
