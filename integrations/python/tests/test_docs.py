"""Examples of docstrings and of pages do what they show, on a live cluster."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

import sluice

DOCS = Path(__file__).parents[3] / "docs"
MODULES = ["sluice", *(f"sluice.{it.name}" for it in pkgutil.iter_modules(sluice.__path__))]


def run(test: doctest.DocTest) -> None:
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=said.append)
    assert not runner.failures, "".join(said)


def names(client: sluice.Client) -> dict[str, Any]:
    """Returns what examples may use: functions that they define are pickled as those of a script."""
    step = client.wait(client.submit(["true"], cpus=0.1, memory="16MiB"))
    return {"__name__": "__main__", "asyncio": asyncio, "client": client, "sluice": sluice, "step": step}


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_docstrings(
    module: str, client: sluice.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.DocTestFinder().find(importlib.import_module(module), globs=names(client))
    for test in found:
        run(test)


@pytest.mark.parametrize("name", ["python.md", "integrating.md"])
def test_examples_of_pages(name: str, client: sluice.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    page = DOCS / name
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) > 5
    known = {**names(client), "__name__": "__main__"}
    for number, block in enumerate(blocks):
        assert ">>>" in block
        test = doctest.DocTestParser().get_doctest(block, {}, f"block {number}", str(page), 0)
        test.globs = known
        said: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        runner.run(test, out=said.append, clear_globs=False)
        assert not runner.failures, "".join(said)


def test_every_name_is_exported_once_for_types_and_once_for_use() -> None:
    text = Path(sluice.__file__).read_text()
    assert sorted(re.findall(r"(\w+) as \1\b", text)) == sluice.__all__
    for name in sluice.__all__:
        assert getattr(sluice, name) is not None
    with pytest.raises(AttributeError, match="nothing_such"):
        sluice.nothing_such  # noqa: B018
