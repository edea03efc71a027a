"""The one run that a command is about, by its id or a prefix of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from perdure.runtime.client.client import Caller
    from perdure.runtime.kernel.terminal.invocation import Invocation

ID_LENGTH: Final = 36  # of a whole run id


async def run_id_of(invocation: Invocation, caller: Caller, beginning: str) -> str:
    """Give the id of the one run that begins so, or raise RUN_NOT_FOUND."""
    from perdure.runtime.kernel.errors import OperationError

    if not caller.at_work and not invocation.data.log.exists():
        message = f"there is no log in {invocation.data.path}, so there are no runs"
        raise OperationError("RUN_NOT_FOUND", message)
    if len(beginning) >= ID_LENGTH:
        return beginning
    found = await caller.call("runs.find", {"beginning": beginning})
    run_ids: list[str] = found["run_ids"]
    if not run_ids:
        raise OperationError("RUN_NOT_FOUND", f"there is no run {beginning!r}")
    if len(run_ids) > 1:
        few = "\n".join(f"  {run_id}" for run_id in run_ids)
        more = "\n  and more" if found["more"] else ""
        message = f"{beginning!r} fits several runs; give more of the id:\n{few}{more}"
        raise OperationError("RUN_NOT_FOUND", message)
    return run_ids[0]


async def found_run(
    invocation: Invocation, caller: Caller, beginning: str, at: str | None = None
) -> Any:  # noqa: ANN401 - a RunAnswer
    """Read the one run that begins so."""
    run_id = await run_id_of(invocation, caller, beginning)
    return await caller.call("runs.get", {"run_id": run_id, "at": at})
