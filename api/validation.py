"""Kept for importers during the move: see `registry.validation`."""

from registry.validation import as_lorry_error as as_lorry_error
