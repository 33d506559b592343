"""The whole diagnosis: of files, of a configuration, or of both together."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from perfmodel.records import Diagnosis

from ..progress import Reporter, silent
from .config_check import CHECKS, check_configs
from .rules import diagnose_files, worst_first


def diagnose_all(
    files: Sequence[Path],
    target: str | None,
    draft: str | None,
    block_size: int | None,
    context: int | None,
    report: Reporter = silent,
) -> Diagnosis:
    """Findings about the files and the pair, worst first; `report` is told how far reading is. Raises `InputError`."""
    record = diagnose_files(files, report) if files else Diagnosis(files=(), findings=())
    if target is None or draft is None:
        return record
    found = check_configs(target, draft, block_size, context)
    return msgspec.structs.replace(
        record,
        files=(*record.files, target, draft),
        findings=worst_first([*record.findings, *found]),
        checked=(*record.checked, *CHECKS),
    )
