"""Find η*, the learning rate for a large pretraining run, from runs that cost a fraction of it."""

__version__ = "0.1.0"
