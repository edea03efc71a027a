"""The frame of programs whose system calls are recorded: a directory, answers, perhaps a mutant."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import trio

from tests.crash.writing_child import answers_file, end_with_standard_input


def main(
    serve: Callable[[Path, int], Awaitable[None]], mutants: Mapping[str, Callable[[], None]]
) -> None:
    """Serve the directory that is named; the mutant, if there is one, changes how it is done."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("answers", type=answers_file)
    parser.add_argument("--mutant", choices=[*mutants])
    options = parser.parse_args()
    if options.mutant is not None:
        mutants[options.mutant]()
    threading.Thread(target=end_with_standard_input, daemon=True).start()
    trio.run(serve, options.directory, options.answers)
