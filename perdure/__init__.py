"""The one import of plugin authors and clients; knows nothing that is not promised to them.

Names are imported when first used: ``perdure.eventlog`` must not load ``perdure.runtime``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.runtime.plugins.contract import FailedStep as FailedStep
    from perdure.runtime.plugins.contract import PluginError as PluginError
    from perdure.runtime.plugins.contract import Retry as Retry
    from perdure.runtime.plugins.contract import RunCancelled as RunCancelled
    from perdure.runtime.plugins.contract import StepError as StepError
    from perdure.runtime.plugins.plugin import DeclarationError as DeclarationError
    from perdure.runtime.plugins.plugin import entry as entry
    from perdure.runtime.plugins.plugin import plugin as plugin
    from perdure.runtime.plugins.run_context import RunContext as RunContext
    from perdure.runtime.plugins.run_context import SyncRunContext as SyncRunContext
    from perdure.runtime.secrets.secret import Secret as Secret

    __version__: str

_HOMES = {
    "FailedStep": "perdure.runtime.plugins.contract",
    "PluginError": "perdure.runtime.plugins.contract",
    "Retry": "perdure.runtime.plugins.contract",
    "RunCancelled": "perdure.runtime.plugins.contract",
    "RunContext": "perdure.runtime.plugins.run_context",
    "StepError": "perdure.runtime.plugins.contract",
    "SyncRunContext": "perdure.runtime.plugins.run_context",
    "DeclarationError": "perdure.runtime.plugins.plugin",
    "entry": "perdure.runtime.plugins.plugin",
    "plugin": "perdure.runtime.plugins.plugin",
    "Secret": "perdure.runtime.secrets.secret",
}


if not TYPE_CHECKING:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
        if name == "__version__":
            return import_module("importlib.metadata").version("perdure")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "__version__"})
