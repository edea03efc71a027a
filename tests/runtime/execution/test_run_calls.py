"""Each call of ``ctx.run`` does the same in every place: inline, thread, two processes, fake."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from perdure.fake import FakeRun
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.current_run import CurrentRun
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs.requests import AnswerRun, CancelRun, CreateRun
from perdure.runtime.secrets.redaction import holds_a_secret
from tests.runtime.execution.anywhere_plugin import PLACES, Bodies, GuardedAnywhere
from tests.runtime.execution.retried_bodies import INLINE
from tests.runtime.execution.test_anywhere import ANYWHERE, anywhere, begin, run
from tests.runtime.execution.test_current_run import items
from tests.runtime.process.test_processes import lines, result, until_stage
from tests.runtime.service import real_service

EVERYWHERE = pytest.mark.parametrize("place", [*PLACES, "fake"])
WAITS = pytest.mark.parametrize("how", ["sleep", "ask", "retry", "nested"])
NO_NAME = ["StepError", "the name of a step is a text of 1 to 500 characters"]
USED = ["StepError", "step 'used' was used before in this run; every step needs a name of its own"]


def invalid(message: str) -> list[str]:
    """What a call raises whose arguments are wrong."""
    return ["PluginError", f"VALIDATION_ERROR: {message}"]


REFUSED = {
    "progress 2.0": invalid("progress is a number from 0.0 to 1.0, not 2.0"),
    "progress nan": invalid("progress is a number from 0.0 to 1.0, not nan"),
    "progress text": invalid("progress is a number from 0.0 to 1.0, not a str"),
    "progress bool": invalid("progress is a number from 0.0 to 1.0, not a bool"),
    "message": invalid("a message is a text, not a int"),
    "stage": invalid("a stage is a text, not a int"),
    "line": invalid("a log line is a text, not a int"),
    "level": invalid("a level is a text, not a int"),
    "result of another": invalid("'nobody.1' is not an export of this run"),
    "result": invalid("5 is not an export of this run"),
    "type": invalid("an export is one of text, url, binary_url, binary, json, id, not 'pdf'"),
    "text": invalid("an export of type text holds a text"),
    "description": invalid("a description is a text, not a int"),
    "key": invalid("an export's key is a text that is not empty"),
    "mime": invalid("a MIME type is a text, not a int"),
    "metadata": invalid("the metadata of an export is a mapping, not a int"),
    "unknown": ["TypeError", "Unexpected keyword argument 'colour'"],
    "base64": invalid("this is not base64: Only base64 data is allowed"),
    "large": [
        "PluginError",
        "PAYLOAD_TOO_LARGE: 65537 bytes are too many: at most 65536 fit; export an address",
    ],
    "bytes": invalid("bytes are wanted here, not str"),
    "piece": invalid("bytes are wanted here, not str"),
    "used": USED,
    "used to sleep": USED,
    "long name": NO_NAME,
    "long name to ask": NO_NAME,
    "no name": NO_NAME,
    "no text": NO_NAME,
    "tries": invalid("a step is tried at least once"),
    "retry": invalid("the rule of a step's tries is a Retry, not a int"),
    "called": [
        "StepError",
        (
            "step 's' takes a function and its arguments, not a int: write `step(name, function,"
            " argument)` and not `step(name, function(argument))`"
        ),
    ],
    "jitter": invalid("the jitter of a step's tries is from 0 to 1, not 2"),
    "no jitter": invalid("the jitter of a step's tries is a number, not a str"),
    "on": invalid("a step is tried again on a class of exceptions, or on a tuple of such classes"),
    "delay": invalid("the wait between two tries is a number of seconds up to 6000000000, not nan"),
    "seconds": invalid("a sleep is a number of seconds up to 6000000000, not '1'"),
    "for ever": invalid("a sleep is a number of seconds up to 6000000000, not inf"),
    "plugin": invalid("the id of a plugin is a text, not a int"),
    "entry": invalid("the id of an entry is a text, not a NoneType"),
    "args": invalid("the arguments of a run is a mapping, not a list"),
}


async def told(place: str, what: str, **args: Any) -> Any:
    """Execute a body somewhere, and give what it tells."""
    if place == "fake":
        return await getattr(Bodies(), what)(FakeRun(), INLINE, **args)
    async with anywhere() as s:
        return await result(s, await run(s, place, what, **args))


@EVERYWHERE
async def test_a_wrong_call_is_refused_with_the_same_words_everywhere(place: str) -> None:
    """At the call, with a code that the entry can catch; the run goes on."""
    assert await told(place, "refusals") == REFUSED


@EVERYWHERE
async def test_a_result_that_cannot_be_recorded_is_misuse_everywhere(place: str) -> None:
    """The step is not tried again, and has not failed for good."""
    kind, message = await told(place, "unrecordable")
    assert kind == "StepError"
    assert message.startswith("the result of step 's' cannot be recorded: ")


@ANYWHERE
async def test_every_call_gives_the_same(place: str) -> None:
    """Ids of items in order, the value of a step, the answer to a question."""
    async with anywhere() as s:
        run_id = await begin(s, place, "every_call")
        await until_stage(s, run_id, "input_required")
        (question,) = (await s.read(run_id))["questions"]
        await s.answer(LOCAL, AnswerRun(run_id=run_id, question_id=question, answer={"a": 1}))
        end = await s.finished(run_id)
        assert end["status"] == "succeeded", end["error"]
        assert [ref["export_item_id"] for ref in end["result_refs"]] == [f"{run_id}.1"]
        types = [item["type"] for item in await items(s, run_id)]
        assert types == ["text", "url", "binary_url", "binary", "binary", "json", "url", "binary"]


async def test_every_call_of_a_fake_gives_the_same() -> None:
    """It notes them all, and the suite misses none that ``ctx.run`` offers."""
    fake = FakeRun(answers={"asked": {"a": 1}})
    given = await Bodies().every_call(fake, INLINE)
    offered = {name for name, _ in inspect.getmembers(CurrentRun) if not name.startswith("_")}
    assert given.keys() == offered
    assert (given["step"], given["ask"], given["start"]) == ([1, "two"], {"a": 1}, True)
    assert [export["type"] for export in fake.exports][3:5] == ["binary", "bytes"]
    assert fake.results == ("fake-run.1",)


@ANYWHERE
async def test_a_secret_is_refused_with_the_same_words_everywhere(place: str) -> None:
    """Where it would have to be altered: in bytes, keys, names, questions and results of steps."""
    async with real_service({"guarded": declared(GuardedAnywhere)}) as s:
        args = {"token": "hush-hush-and-hush"}
        request = CreateRun(plugin_id="guarded", entry_id=place, args=args)
        end = await s.finished((await s.create(LOCAL, request))["run"]["run_id"])
        assert await result(s, end) == {
            "bytes": invalid(holds_a_secret("an export of bytes")),
            "binary": invalid(holds_a_secret("an export of bytes")),
            "key": invalid(holds_a_secret("the key of an export")),
            "name": invalid(holds_a_secret("the name of a step")),
            "question": invalid(holds_a_secret("a question")),
            "result": ["StepError", holds_a_secret("the result of step 's'")],
        }


@WAITS
@ANYWHERE
async def test_a_cancel_request_ends_every_wait_everywhere(place: str, how: str) -> None:
    """With RunCancelled, which says why."""
    async with anywhere(cancel_grace=10) as s:
        run_id = await begin(s, place, "waits", how=how)
        stages = {"ask": "input_required", "retry": "retrying"}
        await until_stage(s, run_id, stages.get(how, "waiting"))
        await s.cancel(LOCAL, CancelRun(run_id=run_id, reason="enough"))
        assert (await s.finished(run_id))["status"] == "canceled"
        assert ("info", "RunCancelled enough") in lines(s, run_id)


@WAITS
async def test_a_canceled_fake_ends_every_wait(how: str) -> None:
    """As the real one does."""
    fake = FakeRun(cancelled=True, cancel_reason="enough")
    with pytest.raises(Exception, match="enough"):
        await Bodies().waits(fake, INLINE, how)
    assert fake.lines == [("info", "RunCancelled enough")]
