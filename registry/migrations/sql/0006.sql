-- Pauses, drains and quarantines.
SET ROLE lorry_owner;
RESET ROLE;
