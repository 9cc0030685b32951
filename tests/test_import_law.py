"""Who may import whom, who may read the environment: held by import-linter and by looking at the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("api", "registry", "workers")
PURE = ("workers/policy.py", "workers/slots.py", "workers/victims.py", "workers/waits.py", "registry/backlog/order.py")
READS_ENVIRONMENT = {"registry/settings.py"}
SETS_ENVIRONMENT = {"workers/main.py", "workers/probe/environment.py"}
"""vLLM is configured by variables of its own and CUDA's, which have to be set before it is imported."""
DEMO_DOOR = {("api/cli/demo.py", "demo.run")}
"""`lorry demo` hands over to the repository's demo, which is no part of the package."""


def sources() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def tree(source: str) -> ast.Module:
    return ast.parse((ROOT / source).read_text(encoding="utf-8"))


def imported(module: ast.Module) -> Iterator[str]:
    """Every module that the code imports, at the top or inside a function, also by `importlib.import_module`."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide who is imported"
            yield node.module or ""
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("import_module", "__import__"):
                yield str(node.args[0].value)


def environment_uses(module: ast.Module) -> Iterator[tuple[int, bool]]:
    """(line, whether it only sets) for each mention of os.environ or os.getenv, however imported."""
    setting = {
        id(node.value) for node in ast.walk(module) if isinstance(node, ast.Subscript | ast.Attribute) and _sets(node)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv", "putenv"):
            yield node.lineno, id(node) in setting or isinstance(node.ctx, ast.Store)
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from ((node.lineno, False) for alias in node.names if alias.name in ("environ", "getenv"))


def _sets(node: ast.Subscript | ast.Attribute) -> bool:
    """`os.environ[...] = …`, and the methods that only write."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Store | ast.Del)
    return node.attr in ("update", "setdefault", "pop")


def test_the_contracts_of_import_linter_are_kept() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run(
        [str(linter), "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "0 broken" in run.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_what_the_law_allows(package: str) -> None:
    forbidden = {"api": {"workers"}, "registry": {"api", "workers"}, "workers": {"api"}}[package] | {"tests", "demo"}
    found = {
        (source, name)
        for source in sources()
        if source.startswith(f"{package}/")
        for name in imported(tree(source))
        if name.partition(".")[0] in forbidden
    }
    assert found - DEMO_DOOR == set()


def test_vllm_is_imported_only_by_the_engine_and_the_probe() -> None:
    users = {source for source in sources() for name in imported(tree(source)) if name.partition(".")[0] == "vllm"}
    strangers = {s for s in users if not s.startswith(("workers/probe/", "workers/engine.py", "workers/engine_"))}
    assert strangers == set()
    assert "workers/engine.py" in users


def test_the_environment_is_read_in_settings_only() -> None:
    found = {
        (source, line)
        for source in sources()
        for line, only_sets in environment_uses(tree(source))
        if source not in READS_ENVIRONMENT and not (only_sets and source in SETS_ENVIRONMENT)
    }
    assert found == set()


@pytest.mark.parametrize("source", PURE)
def test_policy_and_slots_import_only_the_standard_library(source: str) -> None:
    foreign = {name for name in imported(tree(source)) if name.partition(".")[0] not in sys.stdlib_module_names}
    assert foreign <= {path.removesuffix(".py").replace("/", ".") for path in PURE}


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.environ['A']",
        "import os\nos.getenv('A')",
        "from os import environ",
        "import os as o\no.environ.get('A')",
    ],
)
def test_the_check_sees_every_way_to_read_the_environment(code: str) -> None:
    assert [only_sets for _, only_sets in environment_uses(ast.parse(code))] == [False]


@pytest.mark.parametrize(
    "code",
    ["import os\nos.environ['A'] = 'b'", "import os\nos.environ |= {'A': 'b'}", "import os\ndel os.environ['A']"],
)
def test_the_check_tells_setting_from_reading(code: str) -> None:
    assert [only_sets for _, only_sets in environment_uses(ast.parse(code))] == [True]


@pytest.mark.parametrize(
    "code", ["import vllm.x", "from vllm import y", "def f():\n    import vllm", "import_module('vllm.z')"]
)
def test_the_check_sees_every_way_to_import(code: str) -> None:
    assert [name.partition(".")[0] for name in imported(ast.parse(code))] == ["vllm"]
