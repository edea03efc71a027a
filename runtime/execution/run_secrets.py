"""The secrets of one run while it is executed: what its entry sees and nobody else may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.runtime.plugins.contract import PluginError
from perdure.runtime.secrets.redaction import Redactor, holds_a_secret
from perdure.runtime.secrets.secret import reference_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.actors.run.events import RunCreated
    from perdure.runtime.execution.creator import NewRun
    from perdure.runtime.execution.executor import Executor
    from perdure.runtime.plugins.plugin import Entry


class RunRedactor(Redactor):
    """Knows the secrets of a run, and tells its entry where none may be."""

    def refuse(self, what: str, *values: Any) -> None:
        """Refuse data with a secret in it."""
        if any(map(self.finds, values)):
            raise PluginError("VALIDATION_ERROR", holds_a_secret(what))


class Scanner:
    """Looks for secrets in bytes that arrive piece by piece."""

    def __init__(self, redactor: RunRedactor) -> None:
        """Look for what the redactor knows."""
        self._redactor = redactor
        self._end = b""

    def see(self, piece: bytes | memoryview) -> None:
        """Refuse a piece that has a secret in it, or the last part of one."""
        if self._redactor.knows_values:
            data = self._end + bytes(piece)
            self._redactor.refuse("an export of bytes", data)
            self._end = data[max(0, len(data) - self._redactor.longest) :]


class RunSecrets:
    """What an execution knows and keeps to itself."""

    def __init__(self, executor: Executor, entry: Entry, created: RunCreated) -> None:
        """Know nothing before ``arguments``."""
        self._creator = executor.creator
        self._context = executor.context
        self._entry = entry
        self._created = created
        self.redactor = RunRedactor(entry.secrets)

    async def arguments(self) -> dict[str, Any]:
        """Give the arguments that the entry is called with, its secrets among them."""
        resolved = await self._context.secrets.resolve(self._entry.secrets, self._created)
        self.redactor.register(*resolved.values)
        return self._entry.check(resolved.real)

    def know_of_child(self, plugin_id: str, entry_id: str, args: Mapping[str, Any]) -> None:
        """Learn the values that are passed on to secret arguments of a child."""
        for name in self._context.entries.secrets(plugin_id, entry_id) & args.keys():
            if reference_in(args[name]) is None:
                self.redactor.register(args[name])

    async def accept_child(
        self, run_id: str, plugin_id: str, entry_id: str, args: Mapping[str, Any]
    ) -> NewRun:
        """Take the secrets out of a child's arguments; refuse one where it would be logged."""
        names = self._context.entries.secrets(plugin_id, entry_id)
        plain = {name: value for name, value in args.items() if name not in names}
        self.redactor.refuse("the start of a child", plugin_id, entry_id, plain)
        tenant = self._created.tenant
        return await self._creator.accept(run_id, plugin_id, entry_id, args, tenant)
