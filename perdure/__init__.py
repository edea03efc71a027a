"""The one import of plugin authors and clients; knows nothing that is not promised to them."""

from runtime.contract import FailedStep as FailedStep
from runtime.contract import PluginError as PluginError
from runtime.contract import Retry as Retry
from runtime.contract import RunCancelled as RunCancelled
from runtime.contract import RunContext as RunContext
from runtime.contract import StepError as StepError
from runtime.contract import SyncRunContext as SyncRunContext
from runtime.plugin import DeclarationError as DeclarationError
from runtime.plugin import entry as entry
from runtime.plugin import plugin as plugin
from runtime.secret import Secret as Secret


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  (asked for rarely)

        return version("perdure")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
