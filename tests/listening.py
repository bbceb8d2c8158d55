"""Whether a server that was started listens. That somebody answers on its port proves nothing: the port was free when
it was chosen, and another process may have taken it since.
"""

from __future__ import annotations

import psutil


def listens(pid: int, port: int) -> bool:
    """Whether this process itself listens on the port now; False if it has ended."""
    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except psutil.NoSuchProcess:
        return False
    return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in connections)
