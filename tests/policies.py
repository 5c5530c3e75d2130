"""A sample of each field of a policy, other than its initial value, as a value and as a word of the command line.

They are the examples of the definitions. Tests ask of every way to the database and back that it keeps the field.
"""

from typing import Any

from sqlalchemy_fairqueue.values.policies import POLICY

WORDS = {name: definition.example for name, definition in POLICY.items()}
SAMPLES: dict[str, Any] = {name: definition.parsed(definition.example) for name, definition in POLICY.items()}
