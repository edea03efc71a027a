"""The features of Perdure: each may import those before it. The command line imports this list."""

from typing import Final

from perdure.runtime.kernel.features import Features
from perdure.runtime.runs.feature import RunsFeature

FEATURES: Final = Features([RunsFeature()])
