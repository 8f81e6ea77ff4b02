"""Which runs are made, and what do they cost? A plan is a file: read, edited, priced, launched."""
