"""Channels: the log as its followers want to see it. They know no surface."""

from perdure.runtime.kernel.channels.service import Channels as Channels
from perdure.runtime.kernel.channels.subscription import Delivery as Delivery
from perdure.runtime.kernel.channels.subscription import Subscription as Subscription
