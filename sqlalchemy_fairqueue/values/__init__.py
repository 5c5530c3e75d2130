"""Values that calls take and give; they know nothing of sessions or SQL."""
