"""The command line: one file a verb."""

from etastar.cli.app import main

__all__ = ["main"]
