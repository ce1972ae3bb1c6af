"""The process behind `policies.llama_server`: llama.cpp's server in xllamacpp, until it is told to end.

Run as a script with nine arguments; it knows nothing of this project, so that only native code can bring it down.
"""

import signal
import sys
from typing import Any


def main(model: str, adapter: str, name: str, host: str, *numbers: str) -> None:
    """Serve until SIGTERM. `adapter` is empty for none."""
    xllamacpp: Any = __import__("xllamacpp")
    port, slots, context, threads, cache_mib = map(int, numbers)
    params = xllamacpp.CommonParams()
    params.model.path = model
    if adapter:
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(adapter, 1.0)]
    params.model_alias = {name}
    params.hostnames = [host]
    params.port = port
    params.cors_origins = f"http://{host}:{port}"  # no page of another site may read from it
    params.ui = False
    params.use_jinja = True
    params.n_parallel, params.n_ctx, params.cache_ram_mib = slots, context, cache_mib
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server = xllamacpp.Server(params)
    print(f"listening on {server.listening_address}", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
