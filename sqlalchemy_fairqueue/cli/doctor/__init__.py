"""``fairqueue doctor``: what may be wrong with an installation, and what to do about it.

A module a subject; each check looks, changes nothing, and yields findings. A check that cannot look says so and keeps
nobody else from looking.
"""
