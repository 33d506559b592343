"""What goes wrong with a server. It ends one K, not the sweep: the finding says what happened, and a resumed run tries again."""

from perfmodel.errors import PerfError
from perfmodel.records import Finding


class EngineError(PerfError):
    """A server that cannot be measured; `code` is that of the finding it becomes."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.code = code

    def finding(self, where: str) -> Finding:
        """The error as a finding about `where`."""
        return Finding(code=self.code, severity="error", message=self.message, hint=self.hint, where=where)
