"""The demonstration: four tenants, their tickets, their adapters. Nothing in the product imports it."""
