"""Channels: the log as its followers want to see it. They know no surface."""

from runtime.channels.following import Delivery as Delivery
from runtime.channels.following import Following as Following
from runtime.channels.service import Channels as Channels
