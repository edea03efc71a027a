"""What entries say of their run: one set of messages, on the wire too."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, get_args

import pytest

from perdure import Retry, StepError
from perdure.runtime.plugins.run_messages import (
    Ask,
    Bytes,
    Export,
    FromEntry,
    Log,
    Progress,
    Request,
    Result,
    RunMessage,
    Sleep,
    Stage,
    Start,
    Step,
    rule_of,
)
from perdure.runtime.plugins.step_names import StepNames
from perdure.runtime.process.message_parser import parse
from perdure.runtime.process.messages import Malformed, to_line

SAID = {
    Progress: Progress(progress=0.5, message="half"),
    Stage: Stage(stage="loading"),
    Log: Log(text="a line", level="warning"),
    Result: Result(items=["run.1"]),
    Export: Export(id=1, type="json", content={"a": [1]}, description="d", key="k", mime="a/b"),
    Bytes: Bytes(id=2, metadata={"m": 1}),
    Step: Step(id=3, name="s", retry=rule_of(Retry(tries=4, delay=0.5))),
    Sleep: Sleep(id=4, seconds=1.5, name="nap"),
    Ask: Ask(id=5, question="which?"),
    Start: Start(id=6, plugin_id="p", entry_id="e", args={"n": 1}),
}


def test_each_kind_of_message_is_tried() -> None:
    """None is missing from these tests."""
    assert SAID.keys() == set(get_args(FromEntry))


@pytest.mark.parametrize("message", SAID.values(), ids=lambda said: type(said).__name__)
def test_a_message_means_the_same_on_the_wire(message: RunMessage) -> None:
    """Said by a process and read by the server it is what it was, and passes the same checks."""
    assert parse(to_line(message)) == message.checked()


@pytest.mark.parametrize("kind", [kind for kind in SAID if issubclass(kind, Request)])
def test_a_request_on_the_wire_has_a_number(kind: Any) -> None:
    """Without one it could not be answered."""
    message = SAID[kind]
    line = to_line(message).replace(f'"id":{message.id},'.encode(), b"")  # type: ignore[attr-defined]
    line = line.replace(f',"id":{message.id}'.encode(), b"")  # type: ignore[attr-defined]
    with pytest.raises(Malformed, match="missing required field `id`"):
        parse(line)


def test_what_authors_may_give_becomes_what_can_be_said() -> None:
    """Bytes in any form, and any mapping."""
    item = Export(type="binary", content=memoryview(b"ab"), metadata=MappingProxyType({"m": 1}))  # type: ignore[arg-type]
    assert (item.checked().content, item.metadata) == (b"ab", {"m": 1})
    args: Any = MappingProxyType({"n": 1})
    assert Start(plugin_id="p", entry_id="e", args=args).checked().args == {"n": 1}


def test_a_wait_without_a_name_gets_the_next_free_one() -> None:
    """By its kind, past names that the entry has given itself."""
    names = StepNames()
    names.claim("sleep-2", "sleep")
    assert [names.claim(None, "sleep") for _ in range(2)] == ["sleep-1", "sleep-3"]
    assert names.claim("", "ask") == "ask-1"
    with pytest.raises(StepError, match="'sleep-1' was used before"):
        names.claim("sleep-1")


def test_a_rule_holds_for_very_many_tries() -> None:
    """The wait grows to its longest and stays there; the last try is the last."""
    rule = rule_of(Retry(tries=5000))
    assert [rule.delay_after(failed) for failed in (1, 2, 20, 4999, 5000)] == [1, 2, 300, 300, None]
