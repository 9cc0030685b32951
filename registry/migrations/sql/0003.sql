-- Webhook endpoints and deliveries.
SET ROLE lorry_owner;
RESET ROLE;
