"""``ctx.run`` of a plain function: what is awaited elsewhere simply takes its time here.

Each call is that of ``CurrentRun``, brought to its end without an event loop: the port of such a
place blocks and never awaits. Light.
"""

from __future__ import annotations

from collections.abc import AsyncIterable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from perdure.runtime.kernel.completion import completed
from perdure.runtime.plugins.byte_source import bytes_of
from perdure.runtime.plugins.contract import ONCE, Retry
from perdure.runtime.plugins.current_run import CurrentRun, ReportingRun
from perdure.runtime.plugins.run_messages import Step, refuse_limit, rule_of
from perdure.runtime.plugins.step_body import StepBody

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from perdure.runtime.plugins.byte_source import Piece
    from perdure.runtime.plugins.run_port import RunPort

Value = TypeVar("Value")
Parameters = ParamSpec("Parameters")


def _plain(
    call: Callable[Concatenate[CurrentRun, Parameters], Coroutine[Any, Any, Value]],
) -> Callable[Concatenate[SyncRun, Parameters], Value]:
    """Make the plain call of an awaited one: same parameters, same documentation."""

    @wraps(call)
    def plain(run: SyncRun, /, *args: Parameters.args, **more: Parameters.kwargs) -> Value:
        return completed(call(run._awaited, *args, **more))  # noqa: SLF001 - it is a method of its

    return plain


class SyncRun(ReportingRun):
    """The run that is being executed, as an entry sees it that is a plain function."""

    def __init__(self, port: RunPort) -> None:
        """Reach the run through a port that never awaits."""
        super().__init__(port)
        self._awaited = CurrentRun(port)

    export_text = _plain(CurrentRun.export_text)
    export_url = _plain(CurrentRun.export_url)
    export_binary_url = _plain(CurrentRun.export_binary_url)
    export_binary = _plain(CurrentRun.export_binary)
    export_json = _plain(CurrentRun.export_json)
    export_id = _plain(CurrentRun.export_id)
    export = _plain(CurrentRun.export)
    sleep = _plain(CurrentRun.sleep)
    ask = _plain(CurrentRun.ask)
    start = _plain(CurrentRun.start)

    # These take what the entry itself has written, which is plain here.

    def export_bytes(
        self,
        data: Piece | Iterable[Piece],
        description: str | None = None,
        *,
        mime: str | None = None,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Export bytes of any size, whole or piece by piece; give the item's id.

        A few are in the item itself. More become a blob, which is on disk before the item is: when
        this returns, both survive a power cut.
        """
        given: Any = data
        if isinstance(given, AsyncIterable):
            bytes_of(given)  # which refuses it: nothing is awaited here
        more: Any = {"mime": mime, "key": key, "metadata": metadata}
        return completed(self._awaited.export_bytes(given, description, **more))

    def step(
        self,
        name: str,
        fn: Callable[..., Value],
        *args: Any,
        retry: Retry = ONCE,
        timeout: float | None = None,
    ) -> Value:
        """Do something once: its result is recorded and returned again after a crash.

        The function itself runs at least once. Whatever it calls outside can be told apart by
        ``attempt_token`` and the step's name, which stay the same. A try that takes longer than
        ``timeout`` seconds is stopped and has failed; a plain function cannot be stopped, and is
        refused a time limit.
        """
        refuse_limit(timeout)
        step = Step(name=name, retry=rule_of(retry)).checked()
        body = StepBody(name, fn, args, retry).checked()
        return cast("Value", completed(self._port.step(step, body.plain)))
