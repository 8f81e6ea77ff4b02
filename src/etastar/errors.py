"""How does etastar say that an input cannot be used?

Every message names the value, says what was expected, and carries a hint. The command line prints
the two lines and exits with 2; a library caller catches `EtastarError`.
"""


class EtastarError(Exception):
    """A bad input, named, with what to do about it.

    `message` names the offending value and what was expected; `hint` says how to go on.
    """

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}"


class InputError(EtastarError):
    """A file, table, expression or typed value that does not hold what is needed."""


class SpecError(EtastarError):
    """A training or world specification that cannot be carried out."""
