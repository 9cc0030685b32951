"""`python -m registry.migrations`: bring this installation's database to the newest revision."""

from registry.logs import configure_logs, get_logger
from registry.migrations import upgrade
from registry.settings import get_settings

if __name__ == "__main__":
    settings = get_settings()
    configure_logs(settings.log_level)
    upgrade(settings.resolved_database_url)
    get_logger("migrations").info("schema is up to date")
