"""Queue workers: dispatcher, planner, engines, settling, leaving the house."""
