"""The run that holds a folder, as its lock names it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Holder:
    """A run that holds a folder.

    Attributes:
      process: the number of its process; None if unknown.
      machine: the name of its machine.
      processes: how many processes compute for it; 0 if that is not known.
    """

    process: int | None
    machine: str
    processes: int = 1

    def __str__(self) -> str:
        return f"process {self.process} on {self.machine}"


UNKNOWN = Holder(None, "an unknown machine")
