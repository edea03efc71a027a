"""Channels: the log as its followers want to see it. They know no surface."""

from perdure.runtime.channels.following import Delivery as Delivery
from perdure.runtime.channels.following import Following as Following
from perdure.runtime.channels.service import Channels as Channels
