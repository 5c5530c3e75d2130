"""Roles: what each may do with an installation, and what it may not."""
