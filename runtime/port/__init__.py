"""The one port: an ASGI server on trio and h11. It knows HTTP, and nothing of what is served."""

from perdure.runtime.port.counters import PortCounters as PortCounters
from perdure.runtime.port.host_guard import LOCAL_HOSTS as LOCAL_HOSTS
from perdure.runtime.port.host_guard import Gate as Gate
from perdure.runtime.port.limits import PortLimits as PortLimits
from perdure.runtime.port.listeners import BadCertificate as BadCertificate
from perdure.runtime.port.listeners import CannotListen as CannotListen
from perdure.runtime.port.listeners import open_listeners as open_listeners
from perdure.runtime.port.listeners import tls_context as tls_context
from perdure.runtime.port.port import Port as Port
from perdure.runtime.port.upgrade import Upgrade as Upgrade
from perdure.runtime.port.wire import Disconnected as Disconnected
