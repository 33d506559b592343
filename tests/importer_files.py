"""Import a text that a test wrote."""

import json
from pathlib import Path

from perfmodel.records import Imported
from sweeps.importers.merging import import_files


def import_text(folder: Path, content: str | list | dict, name: str = "file", **options: str) -> Imported:
    """What a text, a JSON document (a dict) or rows of JSON (a list) are imported as."""
    path = folder / name
    if isinstance(content, list):
        content = "\n".join(json.dumps(row) for row in content)
    elif isinstance(content, dict):
        content = json.dumps(content, indent=1)
    path.write_text(content)
    return import_files([path], **options)[0]


def codes(record: Imported) -> list[str]:
    """Codes of the record's findings."""
    return [finding.code for finding in record.findings]
