"""The app's Alembic environment, as any app has one. It is run by ``database.py``."""
