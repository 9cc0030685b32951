-- Idempotency keys, quotas, rate limits.
SET ROLE lorry_owner;
RESET ROLE;
