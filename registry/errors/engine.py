"""What running a job can meet; `workers/outcomes.py` turns each into a state."""

from __future__ import annotations

from registry.errors.tree import LorryError


class EngineError(LorryError):
    """What running a job can meet; the settling rules of `workers/outcomes.py` turn each into a state."""

    code = "engine_error"


class EngineStartFailed(EngineError):
    """The engine did not come up; the message carries vLLM's reason."""

    code = "engine_start_failed"


class AdapterLoadFailed(EngineError):
    """The engine refused the adapter; only this adapter's jobs fail."""

    code = "adapter_load_failed"


class AdapterFilesLost(AdapterLoadFailed):
    """The adapter's files are not where they were stored: a fault of the installation, not of the adapter."""

    code = "adapter_files_lost"


class InvalidGeneration(EngineError):
    """The engine refused the request itself; only this job fails."""

    code = "invalid_generation"


class GenerationFailed(EngineError):
    """The engine lost this one request; it is tried once more."""

    code = "generation_failed"


class OutputCorrupted(EngineError):
    """The adapter computes NaN on a clean cache too; its output is never delivered."""

    code = "output_corrupted"


class WorkerLost(EngineError):
    """The worker died each time this job ran, at last with nothing beside it."""

    code = "worker_lost"


class EngineDead(EngineError):
    """The engine is gone with everything in it: hand back and restart."""

    code = "engine_dead"
