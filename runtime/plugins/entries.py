"""The entries that a host can execute: found by name, and checked before a run exists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from perdure.eventlog import cbor
from perdure.eventlog.errors import CodecError
from perdure.runtime.kernel.errors import ErrorKind, OperationError, declare_errors
from perdure.runtime.kernel.invalid_value import invalid, invalid_request, invalid_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perdure.actors.run.core import Run
    from perdure.runtime.plugins.loading import Problem
    from perdure.runtime.plugins.plugin import Entry, Plugin
    from perdure.runtime.secrets.redaction import Redactor


PLUGIN_ERRORS: Final = declare_errors(
    {
        "PLUGIN_NOT_FOUND": ErrorKind(
            404,
            retriable=False,
            meaning="no such plugin is loaded",
            remedy="list the plugins to see what can be run",
            command="`perdure plugins` lists plugins, and those that failed to load.",
        ),
        "ENTRY_NOT_FOUND": ErrorKind(
            404,
            retriable=False,
            meaning="the plugin has no such entry",
            command="`perdure plugins` lists entries.",
        ),
    }
)


class Pinned(NamedTuple):
    """What executes a run, whatever is loaded after it was found."""

    version: str
    entry: Entry | None


class Entries:
    """What plugins can do, and why some could not be loaded."""

    def __init__(self, plugins: Mapping[str, Plugin]) -> None:
        """Look into these plugins."""
        self.plugins = plugins
        self.problems: Sequence[Problem] = ()

    def find(self, plugin_id: str, entry_id: str) -> Entry:
        """Give an entry; say what there is if it does not exist."""
        plugin = self.plugins.get(plugin_id)
        if plugin is None:
            raise OperationError("PLUGIN_NOT_FOUND", f"no plugin {plugin_id!r} is loaded")
        entry = plugin.entries.get(entry_id)
        if entry is None:
            known = ", ".join(sorted(plugin.entries))
            raise OperationError(
                "ENTRY_NOT_FOUND", f"plugin {plugin_id!r} has no entry {entry_id!r}, but {known}"
            )
        return entry

    def get(self, plugin_id: str, entry_id: str) -> Entry | None:
        """Give an entry, if it is loaded."""
        plugin = self.plugins.get(plugin_id)
        return plugin.entries.get(entry_id) if plugin is not None else None

    def of(self, run: Run) -> Entry | None:
        """Give the entry of a run, if it is loaded."""
        return self.get(run.created.plugin_id, run.created.entry_id)

    def secrets(self, plugin_id: str, entry_id: str) -> frozenset[str]:
        """Give the secret arguments of an entry; none if it is not loaded."""
        entry = self.get(plugin_id, entry_id)
        return frozenset() if entry is None else entry.secrets

    def pinned(self, run: Run) -> Pinned:
        """Give the version and the entry that a run is to be executed with, both of one plugin."""
        plugin = self.plugins.get(run.created.plugin_id)
        return Pinned(plugin.version if plugin is not None else "", self.of(run))

    def resumes(self, run: Run) -> bool:
        """Tell whether a run's entry can be called again."""
        entry = self.of(run)
        return entry is not None and entry.resumes

    def is_in_host(self, run: Run) -> bool:
        """Tell whether a run's entry is executed in the process of its host."""
        entry = self.of(run)
        return entry is not None and entry.where != "process"

    def is_compatible(self, run: Run) -> bool:
        """Tell whether a run can go on with the plugin that is loaded."""
        plugin = self.plugins.get(run.created.plugin_id)
        return plugin is not None and (
            run.plugin_version in {None, plugin.version} or run.plugin_version in plugin.compatible
        )


def check_args(entry: Entry, args: dict[str, Any], redactor: Redactor) -> None:
    """Refuse arguments that the entry does not take, or that cannot be kept.

    The redactor knows those that are secret: an error does not say them.
    """
    try:
        entry.check(args)
        cbor.check(args)
    except CodecError as error:
        raise invalid(redactor.text(f"args: {error}"), "args", "values of JSON") from None
    except ValueError:
        values = invalid_values(args, entry.arguments, "args.", hide=redactor.text)
        raise invalid_request("", values) from None
