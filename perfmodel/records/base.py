"""What every record is: frozen, keyword-only, closed to unknown fields."""

from typing import Literal, dataclass_transform

import msgspec

Severity = Literal["info", "warning", "error"]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen record; `msgspec.structs.replace` makes a changed copy."""


class Finding(Record):
    """One thing worth saying: what was seen, why it is so (in `message`), what to do (`hint`), and where."""

    code: str
    severity: Severity
    message: str
    hint: str = ""
    where: str | None = None
