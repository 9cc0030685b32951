"""Batches: many jobs submitted together. Submission checks every line, then stores all of them or none."""
