"""A failpoint ends the process at its place, and only there."""

from __future__ import annotations

import subprocess
import sys

from registry import failpoints
from registry.settings import child_environment

PROGRAM = "from registry import failpoints; failpoints.reach('one'); failpoints.reach('two'); print('went on')"


def run(**changes: str) -> subprocess.CompletedProcess[str]:
    environment = child_environment(**changes)
    return subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)


def test_the_named_place_ends_the_process_and_no_other_does() -> None:
    assert (run(LORRY_FAILPOINT="two").returncode, run(LORRY_FAILPOINT="two").stdout) == (failpoints.EXIT_CODE, "")
    assert run(LORRY_FAILPOINT="elsewhere").stdout == "went on\n"
    assert run().stdout == "went on\n"
