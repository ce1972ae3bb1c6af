"""Runs a server's command, and ends it with all that it started when the process that wanted it is gone.

A script with the arguments `PID COMMAND ...`, in a session of its own. Nobody else would stop a server whose starter
was killed. It knows nothing of this project, so that nothing here can bring it down.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress

PATIENCE_S = 20


def main(starter: int, *command: str) -> int:
    """Return the status that the command ended with, as a shell gives it."""
    server = subprocess.Popen(command)
    while os.getppid() == starter:
        with suppress(subprocess.TimeoutExpired):
            status = server.wait(timeout=1)
            return status if status >= 0 else 128 - status
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        server.wait(timeout=PATIENCE_S)
    os.killpg(0, signal.SIGKILL)  # this process too
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
