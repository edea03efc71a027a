"""The secrets of runs: taken out of what is asked for, given back when an entry is called.

A value that a caller passes is sealed before the run's first event is written, and forgotten after
its last. A reference stays a reference in the log; it is looked up when the run is asked for, so
that a mistake shows at once, and again when its entry is about to be called.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import trio

import perdure.runtime.secrets.errors  # noqa: F401 - declares the code that is raised here
from perdure.eventlog.errors import LogClosed
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.invalid_value import invalid
from perdure.runtime.secrets.logged_run import about_run
from perdure.runtime.secrets.redaction import PLAIN_VALUE, Redactor, holds_a_secret
from perdure.runtime.secrets.references import ALL_TO_ALL, FOLDER, SecretNotFound, SecretSource
from perdure.runtime.secrets.sealed_files import SealFolder
from perdure.runtime.secrets.secret import SEALED, is_sealed, reference_in
from perdure.runtime.secrets.vault import Vault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from perdure.actors.run.events import RunCreated
    from perdure.eventlog.env import Env

_THREADS: Final = 4  # small files
_log = logging.getLogger("perdure.secrets")


@dataclass(frozen=True, slots=True)
class Accepted:
    """Arguments as the log may hold them, and what belongs in the places of their secrets."""

    args: dict[str, Any]
    sealed: dict[str, Any] = field(default_factory=dict, repr=False)  # values that were passed
    found: dict[str, Any] = field(default_factory=dict, repr=False)  # values that are referred to

    @property
    def real(self) -> dict[str, Any]:
        """The arguments that the entry is to see."""
        return {**self.args, **self.sealed, **self.found}

    @property
    def redactor(self) -> Redactor:
        """What knows the secret values."""
        redactor = Redactor()
        redactor.register(*self.values)
        return redactor

    @property
    def values(self) -> tuple[Any, ...]:
        """All secret values."""
        return (*self.sealed.values(), *self.found.values())


class Secrets:
    """Everything about secrets that a host needs."""

    def __init__(
        self, env: Env, *, vault: Vault | None = None, source: SecretSource | None = None
    ) -> None:
        """Without a vault, seal in memory; without a source, no reference leads anywhere."""
        self._env = env
        self._vault = vault or Vault(env)
        self._source = source or SecretSource()
        self._threads = trio.CapacityLimiter(_THREADS)

    def apart(self) -> Secrets:
        """Give secrets that are looked up in the same places and sealed in memory only."""
        return Secrets(self._env, source=self._source)

    # A run is asked for

    async def accept(
        self, names: Collection[str], args: Mapping[str, Any], tenant: str
    ) -> Accepted:
        """Take the secrets out of a tenant's arguments; ``names`` are those that are secret."""
        accepted = Accepted(dict(args))
        for name in sorted(names & args.keys()):
            value = args[name]
            if is_sealed(value):
                told = f"args: {name} is the mark of a sealed value, not a value"
                raise invalid(told, f"args.{name}", "a value")
            reference = reference_in(value)
            if reference is not None:
                accepted.found[name] = await self._find(name, reference, tenant, "VALIDATION_ERROR")
            elif value is not None:
                accepted.sealed[name] = value
                accepted.args[name] = dict(SEALED)
        if accepted.values:
            _refuse_elsewhere(accepted, names)
        return accepted

    @asynccontextmanager
    async def sealed(
        self, run_id: str, accepted: Accepted, exists: Callable[[], bool]
    ) -> AsyncIterator[None]:
        """Put away what was passed for a run that comes into being in the block.

        If it does not, it is forgotten: also if the caller gives up. Where that is not known,
        because the log has closed itself, start-up finds out.
        """
        await self._seal(run_id, accepted)
        unknown = False
        try:
            yield
        except LogClosed:
            unknown = True
            raise
        finally:
            if accepted.sealed and not unknown and not exists():
                with trio.CancelScope(shield=True):
                    await self.drop(run_id)

    async def _seal(self, run_id: str, accepted: Accepted) -> None:
        if accepted.sealed:
            try:
                await self._vault.seal(run_id, accepted.sealed)
            except OSError as error:
                why = error.strerror or type(error).__name__
                raise OperationError(
                    "UNAVAILABLE", f"secret arguments cannot be put away: {why}; nothing was done"
                ) from error

    async def hash_key(self) -> bytes:
        """Give the key that secret parts of requests are hashed with."""
        return await self._vault.hash_key()

    # A run is executed

    async def resolve(self, names: Collection[str], created: RunCreated) -> Accepted:
        """Give a run's arguments with its secrets; SECRET_REQUIRED if one is not there."""
        accepted = Accepted(dict(created.args))
        sealed = await self._opened(names, created)
        for name in sorted(names & created.args.keys()):
            value = created.args[name]
            reference = reference_in(value)
            if reference is not None:
                accepted.found[name] = await self._find(
                    name, reference, created.tenant, "SECRET_REQUIRED"
                )
            elif is_sealed(value):
                if name not in sealed:
                    raise secret_required([name], "cannot be opened: the seal or its key is gone")
                accepted.sealed[name] = sealed[name]
        return accepted

    async def redactor(self, names: Collection[str], created: RunCreated) -> Redactor:
        """Give a redactor that knows the secrets of a run, as far as they can be found."""
        redactor = Redactor(names)
        redactor.register(*(await self._opened(names, created)).values())
        for name in sorted(names & created.args.keys()):
            reference = reference_in(created.args[name])
            if reference is not None:
                try:
                    redactor.register(
                        await self._find(name, reference, created.tenant, "SECRET_REQUIRED")
                    )
                except OperationError:
                    continue
        return redactor

    async def _opened(self, names: Collection[str], created: RunCreated) -> dict[str, Any]:
        if any(is_sealed(created.args.get(name)) for name in names):
            return await self._vault.open(created.run_id)
        return {}

    async def _find(self, argument: str, reference: str, tenant: str, code: str) -> str:
        try:
            return await self._env.run_sync(
                self._source.find, reference, tenant, limiter=self._threads
            )
        except SecretNotFound as error:
            told = f"args: {argument}: {error}"
            details = {"argument": argument, "reference": reference}
            if code == "VALIDATION_ERROR":
                path = f"args.{argument}"
                raise invalid(told, path, "a secret that exists", **details) from error
            raise OperationError(code, told, **details) from error

    # A run has ended

    async def drop(self, run_id: str) -> None:
        """Forget what was sealed for a run; what cannot be removed now is at the next start."""
        try:
            with trio.CancelScope(shield=True):  # the last thing that many a process does
                await self._vault.drop(run_id)
        except OSError as error:
            with about_run(run_id):
                _log.warning("what was sealed for run %s cannot be removed: %s", run_id, error)

    async def run_ids(self) -> list[str]:
        """Give the runs for which something is sealed."""
        return await self._vault.run_ids()


def open_secrets(
    env: Env,
    data_dir: Path,
    variables: Mapping[str, str],
    *,
    granted: Sequence[str] = ALL_TO_ALL,
) -> Secrets:
    """Give the secrets of a data directory; raise SecretsUnusable if they cannot be kept there."""
    seals = SealFolder(data_dir)
    seals.check()
    return Secrets(
        env,
        vault=Vault(env, seals),
        source=SecretSource(variables, data_dir / FOLDER, granted=granted),
    )


def secret_required(names: Collection[str], why: str) -> OperationError:
    """Say which secret arguments are not there any more."""
    listed = ", ".join(repr(name) for name in sorted(names))
    return OperationError(
        "SECRET_REQUIRED", f"the secret argument {listed} {why}", arguments=sorted(names)
    )


def _refuse_elsewhere(accepted: Accepted, names: Collection[str]) -> None:
    """Refuse a secret value that stands in another argument too: there it would be logged."""
    redactor = accepted.redactor
    for name, value in accepted.args.items():
        if name not in names and redactor.finds({name: value}):
            shown = redactor.text(name)
            raise invalid(holds_a_secret(f"argument {shown!r}"), f"args.{shown}", PLAIN_VALUE)
