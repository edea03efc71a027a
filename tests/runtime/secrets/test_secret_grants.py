"""Grants: which tenants may refer to which secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from perdure.runtime.kernel.principal import LOCAL, Principal
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import CreateRun, GetRun, RetryRun
from perdure.runtime.secrets.references import SecretNotFound, SecretSource
from tests.runtime.secrets.guarded import PLUGINS, REFERENCE, VALUE, held
from tests.runtime.service import refused, service

ACME = Principal("acme", "ann")


@pytest.mark.parametrize(
    ("granted", "allowed"),
    [
        ((), set()),
        (("*:*",), {"acme/git-hub", "acme/gitlab", "a:b/git-hub", "other/git-hub"}),
        (("acme:git-hub",), {"acme/git-hub"}),
        (("acme:git*",), {"acme/git-hub", "acme/gitlab"}),
        (("*:git-*",), {"acme/git-hub", "a:b/git-hub", "other/git-hub"}),
        (("a:b:git-hub", "other:*"), {"a:b/git-hub", "other/git-hub"}),
        (("ACME:git-hub", "acme:GIT-HUB", "acme:git"), set()),
    ],
)
def test_a_tenant_may_refer_to_what_is_granted_to_it(
    granted: tuple[str, ...], allowed: set[str]
) -> None:
    """One name, all that begin so, or all, to one tenant or to all; to others it does not exist."""
    variables = {"PERDURE_SECRET_GIT_HUB": "x", "PERDURE_SECRET_GITLAB": "y"}
    source = SecretSource(variables, granted=granted)
    asked = [("acme", "git-hub"), ("acme", "gitlab"), ("a:b", "git-hub"), ("other", "git-hub")]
    nobody = SecretSource({}, granted=granted)
    found = {f"{tenant}/{name}" for tenant, name in asked if not said(source, name, tenant)}
    assert found == allowed
    for tenant, name in asked:
        if f"{tenant}/{name}" not in allowed:
            assert said(source, name, tenant) == said(nobody, name, tenant)


def said(source: SecretSource, name: str, tenant: str) -> str:
    """What is wrong with a reference; nothing if it leads somewhere."""
    try:
        source.find(name, tenant)
    except SecretNotFound as error:
        return str(error)
    return ""


def test_what_is_not_granted_is_not_even_looked_for(tmp_path: Path) -> None:
    """A file that cannot be read looks like one that is not there."""
    (tmp_path / "open").write_text("x", "utf-8")
    (tmp_path / "open").chmod(0o644)
    source = SecretSource({}, tmp_path, granted=["other:*"])
    with pytest.raises(SecretNotFound, match="there is no secret 'open'"):
        source.find("open", "acme")


@pytest.mark.parametrize("name", ["horse", "cow"])
async def test_a_secret_of_another_tenant_is_one_that_does_not_exist(
    autojump_clock: MockClock, name: str
) -> None:
    """The same error as for a name that nobody has, for a new run and for a retry."""
    source = SecretSource({"PERDURE_SECRET_HORSE": VALUE}, granted=["local:*"])
    async with service(None, PLUGINS, source=source) as s:

        async def ask(principal: Principal) -> Any:
            args = {"token": {"secret": name}}
            request = CreateRun(plugin_id="test", entry_id="use", args=args)
            return await s.create(principal, request)

        error = await refused("VALIDATION_ERROR", lambda: ask(ACME))
        assert error.message == (
            f"args: token: there is no secret {name!r}: set PERDURE_SECRET_{name.upper()}"
        )
        assert error.details == {
            "errors": [{"path": "args.token", "expected": "a secret that exists", "got": None}],
            "argument": "token",
            "reference": name,
        }
        request = CreateRun(plugin_id="test", entry_id="fails", args={"token": VALUE})
        run = (await s.create(ACME, request))["run"]
        await s.world.end(run["run_id"])
        again = RetryRun(run_id=run["run_id"], secrets={"token": {"secret": name}})
        assert (await refused("VALIDATION_ERROR", lambda: s.retry(ACME, again))).message == (
            error.message
        )
        if name == "horse":
            assert (await ask(LOCAL))["run"]["status"] == "queued"


async def test_a_grant_that_was_taken_back_ends_the_run(autojump_clock: MockClock) -> None:
    """It is looked at again when the entry is called, and a child is of its parent's tenant."""
    source = SecretSource({"PERDURE_SECRET_HORSE": VALUE}, granted=["acme:horse"])
    async with service(None, PLUGINS, source=source) as s:
        with held(s):
            request = CreateRun(plugin_id="test", entry_id="use", args={"token": REFERENCE})
            run = (await s.create(ACME, request))["run"]
        source._granted.clear()
        runs_of(s.node).executor._start_ready()
        await s.world.end(run["run_id"])
        error = (await s.get(ACME, GetRun(run_id=run["run_id"])))["run"]["error"]
        assert error is not None
        assert error["code"] == "SECRET_REQUIRED"
        request = CreateRun(plugin_id="test", entry_id="parent", args={"token": REFERENCE})
        run = (await s.create(ACME, request))["run"]
        await s.world.end(run["run_id"])
        error = (await s.get(ACME, GetRun(run_id=run["run_id"])))["run"]["error"]
        assert error is not None
        assert error["code"] == "VALIDATION_ERROR"
        assert "there is no secret 'horse'" in error["message"]
