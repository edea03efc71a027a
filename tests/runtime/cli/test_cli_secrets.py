"""Secrets on the command line."""

from __future__ import annotations

import pytest

from tests.runtime.cli.terminal import Shell, wait_for_line
from tests.runtime.secrets import canary
from tests.runtime.secrets.canary import CANARY

MODULES = {"PERDURE_MODULES": "tests.runtime.secrets.guarded"}
REFERENCE = 'token={"secret": "horse"}'


@pytest.mark.parametrize("way", [f"token={CANARY}", REFERENCE])
def test_a_run_gets_its_secret_and_no_file_does(shell: Shell, way: str) -> None:
    """By value or by reference; afterwards nothing is sealed any more."""
    said = shell.call(
        *("run", "test.use", "--arg", way, "--arg", "url=x"), **MODULES, PERDURE_SECRET_HORSE=CANARY
    )
    assert said.exit_code == 0, said.output
    assert canary.leaks(said.output) == []
    assert canary.in_files(shell.data) == []
    assert not (shell.data / "sealed").exists() or not list((shell.data / "sealed").iterdir())


def test_a_retry_takes_the_secret_again(shell: Shell) -> None:
    """Without it, it says what to do."""
    shell.call("run", "test.use", "--arg", f"token={CANARY}", **MODULES)
    (first,) = shell.runs()
    refused = shell.call("retry", first["run_id"], **MODULES)
    assert refused.exit_code != 0
    assert "'token'" in refused.output
    assert "--secret NAME=VALUE" in refused.output
    wrong = shell.call("retry", first["run_id"], "--secret", "token", **MODULES)
    assert "NAME=VALUE" in wrong.output
    for way in (f"token={CANARY}", REFERENCE):
        again = shell.call(
            *("retry", first["run_id"], "--secret", way), **MODULES, PERDURE_SECRET_HORSE=CANARY
        )
        assert again.exit_code == 0, again.output
    assert canary.in_files(shell.data) == []


def test_a_secret_that_does_not_fit_is_not_said(shell: Shell) -> None:
    """The error names the argument."""
    said = shell.call("run", "test.choosy", "--arg", "token=short1", **MODULES)
    assert said.exit_code == 2
    assert "args.token" in said.output
    assert "short1" not in said.output
    lost = shell.call("run", "test.use", "--arg", 'token={"secret": "cow"}', **MODULES)
    assert "PERDURE_SECRET_COW" in lost.output


def test_a_key_that_others_can_read_stops_everything(shell: Shell) -> None:
    """With the remedy."""
    shell.call("run", "test.use", "--arg", f"token={CANARY}", **MODULES)
    (shell.data / "seal.key").chmod(0o644)
    said = shell.call("run", "test.use", "--arg", f"token={CANARY}", **MODULES)
    assert said.exit_code == 2
    assert "chmod 600" in said.output


def test_secrets_are_this_users_unless_settings_say_otherwise(shell: Shell) -> None:
    """Whoever uses the command line is the tenant `local`."""
    words = ("run", "test.use", "--arg", REFERENCE)
    more = {**MODULES, "PERDURE_SECRET_HORSE": CANARY}
    assert shell.call(*words, **more).exit_code == 0
    said = shell.call(*words, **more, PERDURE_GRANTED_SECRETS="acme:*,local:cow")
    assert said.exit_code == 2
    assert "there is no secret 'horse'" in said.output


def test_an_answer_that_holds_a_secret_is_refused(shell: Shell) -> None:
    """Also when no server runs, and the answer is written here."""
    words = ("run", "test.confirm", "--arg", f"token={CANARY}")
    with shell.process(*words, **MODULES) as process:
        wait_for_line(process, lambda line: "cannot be answered here" in line)
    run_id = shell.runs()[0]["run_id"]
    refused = shell.call("answer", run_id, f"it is {CANARY}", **MODULES)
    assert refused.exit_code == 2
    assert canary.leaks(refused.output) == []
    assert canary.in_files(shell.data) == []
    assert shell.call("answer", run_id, "yes", **MODULES).exit_code == 0
