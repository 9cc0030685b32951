"""The adapter gate's promises: bounded time and memory, no model library, every reason on the page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from registry.adapter_files import REPAIRS
from tests.registry.adapter_bad_folders import BAD
from tests.registry.adapter_corpus import make_base

GATE = """
import json, re, sys, time
from pathlib import Path
from registry.adapter_files import base_shapes, check
from registry.errors import AdapterRejected
shapes, seen = base_shapes(Path(sys.argv[1])), {}
for folder in map(Path, sys.argv[2:]):
    start = time.monotonic()
    try:
        check(folder, base_shapes=shapes, base_names={"tiny/llama"}, max_rank=16, max_bytes=2**31)
    except AdapterRejected as refusal:
        seen[folder.name] = time.monotonic() - start
loaded = {"torch", "safetensors", "transformers", "peft", "vllm"} & set(sys.modules)
# getrusage would count the parent's memory from before exec as well; the kernel's high-water mark does not.
peak_kib = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
print(json.dumps([peak_kib // 1024, sorted(loaded), seen]))
"""


def test_every_hostile_folder_is_refused_within_a_second_and_64_mib_without_a_model_library(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    folders = [tmp_path / name for name in BAD if name not in ("no folder", "too large")]
    for folder in folders:
        folder.mkdir()
        BAD[folder.name][1](folder)
    command = [sys.executable, "-c", GATE, str(base), *map(str, folders)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    rss_mib, loaded, seconds = json.loads(answer.stdout)
    assert loaded == []
    assert seconds.keys() == {folder.name for folder in folders}
    assert max(seconds.values()) < 1.0
    assert rss_mib <= 64


def test_every_reason_code_is_explained_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text().partition("## Reasons")[2]
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert rows.keys() == REPAIRS.keys()
    for reason, repair in REPAIRS.items():
        assert repair in rows[reason].replace("\\", ""), reason
