"""Builds start clean; all else is in pyproject.toml.

setuptools puts into a wheel whatever lies in ``build/``, packages of earlier builds included.
"""

import shutil

from setuptools import setup
from setuptools.command.build import build


class CleanBuild(build):
    """A build that takes nothing over from the one before."""

    def run(self) -> None:
        """Throw away what earlier builds have made, then build."""
        shutil.rmtree("build", ignore_errors=True)
        super().run()


setup(cmdclass={"build": CleanBuild})
