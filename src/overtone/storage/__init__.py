"""Files that hold models and can be trusted."""
