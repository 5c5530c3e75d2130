"""``fairqueue top``: a live table of channels."""
