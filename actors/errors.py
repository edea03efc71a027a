"""Why a rule refuses a command, and what can be wrong with an actor.

Refusal
├── Invalid            the caller's fault: such a command can never succeed
│   └── TooLarge       what it holds does not fit
├── NotNow             the caller's fault, or its bad luck: not in this status
├── Fenced             an execution that is no longer the one in charge; it must stop
├── NoSuchQuestion     the caller's fault: nothing of that name waits for an answer
└── AnsweredOtherwise  somebody else's answer came first
Crowded                nobody's fault: too many wait for one actor; try again
NoSuchActor            there is no such stream
Crashed                our fault: the rules themselves failed
"""

from perdure.eventlog.errors import Overloaded


class Refusal(Exception):
    """A command that the rules do not allow. Nothing has happened."""


class Invalid(Refusal):
    """The command makes no sense, whatever the state."""


class TooLarge(Invalid):
    """Something has more bytes than it may have."""

    def __init__(self, size: int, limit: int) -> None:
        """Name both sizes."""
        super().__init__(f"{size} bytes are too many: at most {limit} fit; export an address")
        self.size = size
        self.limit = limit


class NotNow(Refusal):
    """The command is not allowed in the status at hand."""

    def __init__(self, command: str, status: str) -> None:
        """Name the command and the status."""
        super().__init__(f"{command} is not possible: the run is {status}")
        self.command = command
        self.status = status


class Fenced(Refusal):
    """The command comes from an execution that has been replaced, or of a run that is over."""

    def __init__(self, epoch: int, current: int) -> None:
        """Name the epoch of the command and the one in charge."""
        super().__init__(f"activation {epoch} is not in charge any more (it is {current})")
        self.epoch = epoch
        self.current = current


class NoSuchQuestion(Refusal):
    """No question of this id was asked by the run."""

    def __init__(self, question_id: str) -> None:
        """Name the question."""
        super().__init__(f"the run has asked no question {question_id!r}")
        self.question_id = question_id


class AnsweredOtherwise(Refusal):
    """The question has another answer already."""

    def __init__(self, question_id: str) -> None:
        """Name the question."""
        super().__init__(f"question {question_id!r} has another answer already")
        self.question_id = question_id


class Crowded(Overloaded):
    """Too many wait for one actor. Nobody's fault; try again."""

    def __init__(self, waiting: int) -> None:
        """Say how many."""
        super().__init__(waiting)
        self.args = (f"{waiting} asks wait for this actor already",)


class NoSuchActor(Exception):
    """Its stream does not exist."""

    def __init__(self, stream: str) -> None:
        """Name the stream."""
        super().__init__(stream)
        self.stream = stream


class Crashed(Exception):
    """The actor's own rules failed, on this command or on what its stream holds."""
