"""The exceptions feducb raises, as one tree.

FeducbError
├── ConfigurationError (ValueError)          a setting that cannot be: its name, value, what was expected
│   ├── RowError                             a value in a row of a log that cannot be
│   ├── UnfitSettingError                    a setting that does not go with the source of an evaluation
│   └── PrivateScheduleError                 a schedule that reads private data, where none may
├── MissingExtraError                        a library that an extra of feducb brings is not installed
├── RefusedError (ValueError)                a message that is not taken in, and for which reason
├── StoreError                               an agent's file cannot do what was asked
│   └── StoreInUseError                      somebody else has it open
└── PrivacyError
    ├── ReleasesExhaustedError               release n + 1 of a budget for n
    ├── RecordOutOfBoundsError (ValueError)  an action or reward beyond what the noise was made for
    └── UnsealedReleaseError (TypeError)     a release that no privatizer built
"""

from __future__ import annotations

__all__ = [
    "ConfigurationError",
    "FeducbError",
    "MissingExtraError",
    "PrivacyError",
    "PrivateScheduleError",
    "RecordOutOfBoundsError",
    "RefusedError",
    "ReleasesExhaustedError",
    "RowError",
    "StoreError",
    "StoreInUseError",
    "UnfitSettingError",
    "UnsealedReleaseError",
]


class FeducbError(Exception):
    """Everything feducb raises on purpose."""


class ConfigurationError(FeducbError, ValueError):
    """A setting that cannot be.

    Attributes:
        setting: the setting's name.
        value: what was given.
        expected: what would have been accepted, in words.
    """

    def __init__(self, setting: str, value: object, expected: str) -> None:
        super().__init__(setting, value, expected)
        self.setting = setting
        self.value = value
        self.expected = expected

    def __str__(self) -> str:
        return f"{self.setting} is {self.value!r}, expected {self.expected}"


class UnfitSettingError(ConfigurationError):
    """A setting that does not go with the source of an evaluation, or that the source needs."""


class RowError(ConfigurationError):
    """A value in a column that cannot be.

    Attributes:
        column: which column.
        row: which row, counted from 1 without a header.
    """

    def __init__(self, column: str, row: int, value: object, expected: str) -> None:
        super().__init__(f"{column} in row {row}", value, expected)
        self.args = (column, row, value, expected)  # what makes it anew, in another process
        self.column = column
        self.row = row


class PrivateScheduleError(ConfigurationError):
    """A schedule that reads private data was given where releases must be public."""


class MissingExtraError(FeducbError):
    """What was asked for needs a library that is not installed; the message names its extra."""


class RefusedError(FeducbError, ValueError):
    """A message from outside that is not taken in; the others go on.

    Attributes:
        reason: one word out of a fixed list, to be counted.
        text: what was found and what was expected.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason, text)
        self.reason = reason
        self.text = text

    def __str__(self) -> str:
        return f"{self.reason}: {self.text}"


class StoreError(FeducbError):
    """An agent's file cannot do what was asked."""


class StoreInUseError(StoreError):
    """Another process, or another part of this one, has the file open."""


class PrivacyError(FeducbError):
    """Something that would have broken the privacy guarantee, and was not done."""


class ReleasesExhaustedError(PrivacyError):
    """The budget covers n releases and all of them have been made."""


class RecordOutOfBoundsError(PrivacyError, ValueError):
    """A record lies beyond the bounds that the noise was calibrated for."""


class UnsealedReleaseError(PrivacyError, TypeError):
    """Somebody other than the privatizer tried to build a release."""
