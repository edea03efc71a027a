"""The one import of plugin authors and clients; knows nothing that is not promised to them."""

from runtime.plugins.contract import FailedStep as FailedStep
from runtime.plugins.contract import PluginError as PluginError
from runtime.plugins.contract import Retry as Retry
from runtime.plugins.contract import RunCancelled as RunCancelled
from runtime.plugins.contract import RunContext as RunContext
from runtime.plugins.contract import StepError as StepError
from runtime.plugins.contract import SyncRunContext as SyncRunContext
from runtime.plugins.plugin import DeclarationError as DeclarationError
from runtime.plugins.plugin import entry as entry
from runtime.plugins.plugin import plugin as plugin
from runtime.secrets.secret import Secret as Secret


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  (asked for rarely)

        return version("perdure")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
