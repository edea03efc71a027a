"""The features of Perdure. Each may import those before it in this list, and nothing else does."""

from typing import Final

from perdure.runtime.kernel.features import Features
from perdure.runtime.runs.feature import RunsFeature

FEATURES: Final = Features([RunsFeature()])
