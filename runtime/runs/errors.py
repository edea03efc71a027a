"""What can be wrong with a request about runs, in the one table of errors."""

from typing import Final

from perdure.actors.errors import AnsweredOtherwise, NoSuchActor, NoSuchQuestion, NotNow
from perdure.actors.run.stream import RUN_PREFIX
from perdure.runtime.kernel.errors import ErrorKind, Translation, declare_errors

RUN_ERRORS: Final = declare_errors(
    {
        "RUN_NOT_FOUND": ErrorKind(
            404,
            retriable=False,
            meaning="there is no such run",
            remedy="list the runs to find its id",
            command="`perdure runs` lists runs.",
        ),
        "QUESTION_NOT_FOUND": ErrorKind(
            404,
            retriable=False,
            meaning="the run asks no such question",
            remedy="read `runs.questions`: it has those that are open",
        ),
        "UPLOAD_NOT_FOUND": ErrorKind(
            404,
            retriable=False,
            meaning="no such upload is open",
            remedy="open a new upload for the run",
        ),
        "RUN_NOT_TERMINAL": ErrorKind(409, retriable=False, meaning="the run has not ended yet"),
        "RUN_NOT_RUNNING": ErrorKind(
            409,
            retriable=False,
            meaning="the run is not running",
            remedy="read the run to see how it stands",
        ),
        "ALREADY_ANSWERED": ErrorKind(
            409,
            retriable=False,
            meaning="the question has another answer already",
            remedy="read the run to go on",
        ),
    },
    Translation(NotNow, "RUN_NOT_RUNNING", ("status",)),
    Translation(NoSuchQuestion, "QUESTION_NOT_FOUND", ("question_id",)),
    Translation(AnsweredOtherwise, "ALREADY_ANSWERED", ("question_id",)),
    Translation(NoSuchActor, "RUN_NOT_FOUND", (), "there is no such run", streams=RUN_PREFIX),
)
