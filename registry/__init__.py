"""What Lorry knows: the registry in PostgreSQL and everything that changes it."""
