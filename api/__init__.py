"""HTTP and command line."""
