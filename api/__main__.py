"""`python -m api`: serve the API until SIGTERM."""

from api.server import make_server
from registry import heap, metrics
from registry.logs import configure_logs
from registry.settings import get_settings

if __name__ == "__main__":
    settings = get_settings()
    configure_logs(settings.log_level)
    metrics.serve(settings, "api")
    server = make_server(settings)
    heap.freeze()
    server.run()
