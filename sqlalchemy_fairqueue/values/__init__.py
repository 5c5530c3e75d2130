"""Values that calls take and return. Nothing here knows of sessions or SQL."""
