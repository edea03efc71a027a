"""What the rules, the log or an operation refuse, as entries know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.actors.errors import Invalid
from perdure.eventlog.errors import RecordTooLarge, Unavailable
from perdure.runtime.kernel.errors import OperationError, translated
from perdure.runtime.plugins.contract import PluginError

if TYPE_CHECKING:
    from types import TracebackType


class _ToldToPlugins:
    """A context that holds nothing, so that one is enough: every report goes through it."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        if isinstance(error, Invalid | OperationError | Unavailable | RecordTooLarge):
            told = translated(error)
            raise PluginError(
                told.code, told.message, details=told.details, retriable=told.kind.retriable
            ) from error


told_to_plugins: Final = _ToldToPlugins()  # raises it as the error that entries can catch
