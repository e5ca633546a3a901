"""The sets of models that `bench-peers` chooses from.

Each is a module with its `CASES`, and with the `PACKAGES` that building them needs beside those of
all sets. All sets share a cache, so no name of a model stands in two of them.
"""

from types import ModuleType

from peers import wider, zoo

SETS: dict[str, ModuleType] = {"sixteen": zoo, "wider": wider}
