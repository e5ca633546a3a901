"""Shows on many models what `plutino.export` writes; see `run.py`."""
