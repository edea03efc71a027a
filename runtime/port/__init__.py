"""The one port: an ASGI server on trio and h11. It knows HTTP, and nothing of what is served."""

from runtime.port.counters import PortCounters as PortCounters
from runtime.port.gate import LOCAL_HOSTS as LOCAL_HOSTS
from runtime.port.gate import Gate as Gate
from runtime.port.limits import PortLimits as PortLimits
from runtime.port.listeners import BadCertificate as BadCertificate
from runtime.port.listeners import CannotListen as CannotListen
from runtime.port.listeners import open_listeners as open_listeners
from runtime.port.listeners import tls_context as tls_context
from runtime.port.port import Port as Port
from runtime.port.upgrade import Upgrade as Upgrade
from runtime.port.wire import Disconnected as Disconnected
