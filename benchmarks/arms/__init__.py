"""What people would run instead of Lorry, each as a process of its own that a benchmark starts once and asks often."""
