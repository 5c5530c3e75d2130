"""``fairqueue top``: channels as they move."""
