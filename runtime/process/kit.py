"""The process side of an entry: what ``python -m perdure.child module:Class`` runs.

It finds the plugin's class, waits to be told to start an entry, executes it (a plain function as
it is, an async one on asyncio), says what came of it, and waits for the next. It ends when its
server is gone. It imports no trio and little else, so that it starts quickly.
"""

from __future__ import annotations

import inspect
import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from perdure.runtime.kernel.variables import CODE, READ_FD, WRITE_FD
from perdure.runtime.plugins.contract import PluginError
from perdure.runtime.plugins.error_text import is_cancellation, traced
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.plugins.run_context import SyncRunContext
from perdure.runtime.plugins.run_messages import Log
from perdure.runtime.plugins.sync_run import SyncRun
from perdure.runtime.process.error_message import error_of, sayable
from perdure.runtime.process.kit_logging import RunHandler
from perdure.runtime.process.messages import Begun, Raise, Return
from perdure.runtime.process.pipes import Pipes
from perdure.runtime.process.process_port import ProcessPort

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.runtime.plugins.plugin import Entry
    from perdure.runtime.process.pipes import Talk


def execute(entries: Mapping[str, Entry], talk: Talk) -> None:
    """Execute one entry and say what came of it."""
    try:
        entry = entries[talk.start["entry_id"]]
        talk.say(Begun())
        value = _call(entry, talk, entry.check(talk.start["args"]))
        _flush()
        _return(talk, value)
    except BaseException as error:  # noqa: BLE001 - whatever happens is said
        _flush()
        if trace := traced(error):
            talk.say(Log(level="error", text=sayable(trace)))
        talk.end(Raise(error=error_of(error), cancelled=is_cancellation(error)))


def _return(talk: Talk, value: Any) -> None:  # noqa: ANN401 - what the entry returned
    try:
        talk.end(Return(value=value))
    except PluginError as unsaid:
        text = f"the value that the entry returned cannot be recorded: {unsaid.message}"
        raise PluginError("PLUGIN_ERROR", text) from unsaid


def _flush() -> None:
    """What was printed belongs to the run that is about to end."""
    sys.stdout.flush()
    sys.stderr.flush()


def _call(entry: Entry, talk: Talk, args: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what the entry returns
    handler: Any = entry.handler
    if inspect.iscoroutinefunction(handler):
        from perdure.runtime.process.kit_async import call  # noqa: PLC0415 - asyncio takes its time to import

        return call(handler, talk, args)
    return handler(SyncRunContext(SyncRun(ProcessPort(talk))), **args)


def main() -> None:
    """Serve one run after the other, until the server is gone."""
    pipes = Pipes(int(os.environ[READ_FD]), int(os.environ[WRITE_FD]))
    handler = RunHandler()
    handler.install()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # it is read as it is printed
    module, _, name = sys.argv[1].partition(":")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - the plugin's own folder
    if code := os.environ.get(CODE):
        sys.path.insert(0, code)  # the plugin as it was loaded, whatever is on disk by now
    cls: Any = import_module(module)
    for part in name.split("."):
        cls = getattr(cls, part)
    entries = declared(cls).entries
    while True:
        handler.talk = pipes.talks.get()
        execute(entries, handler.talk)
