"""The notebook of the documents: kept without outputs and machine paths, and run from the first cell to the last."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from perfcli.app import VERBS

NOTEBOOK = Path(__file__).resolve().parent.parent / "docs" / "walkthrough.ipynb"


@pytest.fixture
def notebook() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def test_the_notebook_is_clean(notebook):
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
    assert not re.search(r"/(tmp|work|home|root|Users)/", NOTEBOOK.read_text(encoding="utf-8"))


def test_the_notebook_calls_verbs_that_exist(notebook):
    source = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    verbs = re.findall(r'^perf\("([a-z-]+)"', source, flags=re.MULTILINE)
    assert set(verbs) <= set(VERBS)
    assert {"sweep-k", "show", "predict", "report", "compare"} <= set(verbs)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_notebook_runs_from_start_to_end(notebook, tmp_path):
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert (tmp_path / "walkthrough-run" / "report.html").stat().st_size > 1_000_000
    assert (tmp_path / "compare.html").exists()
    said = "\n".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert "K= 1  τ=1.00" in said
    assert "datasheet" in said
