"""``fairqueue doctor``: findings about an installation, each with its remedy.

A module a subject. A check reads, changes nothing, and yields findings; its SQL is in ``queries``. A check that fails
becomes a finding, and the others go on.
"""
