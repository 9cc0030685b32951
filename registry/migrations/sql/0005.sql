-- What the backlog order and the explanations need.
SET ROLE lorry_owner;
RESET ROLE;
